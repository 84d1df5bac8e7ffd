package ociimage

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// collect returns every entry of the layer by its clean path without the leading slash, parents included.
func collect(spec Spec) (map[string]File, error) {
	entries := map[string]File{}
	if spec.Root != "" {
		if err := collectRoot(entries, spec.Root); err != nil {
			return nil, err
		}
	}
	seen := map[string]bool{}
	for _, file := range spec.Files {
		key, err := resolve(entries, clean(file.Path))
		if err != nil {
			return nil, fmt.Errorf("image file %q: %w", file.Path, err)
		}
		if key == "" {
			return nil, fmt.Errorf("image file %q: the path names no file", file.Path)
		}
		if seen[key] {
			return nil, fmt.Errorf("image file %q: listed twice", file.Path)
		}
		seen[key] = true
		entries[key] = file
	}
	for key := range maps.Clone(entries) {
		for parent := path.Dir(key); parent != "."; parent = path.Dir(parent) {
			if _, ok := entries[parent]; !ok {
				entries[parent] = File{Mode: fs.ModeDir | 0o755}
			}
		}
	}
	return entries, nil
}

func clean(name string) string {
	return strings.TrimPrefix(path.Clean("/"+name), "/")
}

// resolve follows the symbolic links among the parents of key, so that /bin/sh lands in /usr/bin where /bin is a link
// to it. Archive readers disagree on an entry whose parent is a link.
func resolve(entries map[string]File, key string) (string, error) {
	const maxLinks = 40 // as Linux has it
	for range maxLinks {
		next := key
		for i, r := range key {
			if link := entries[key[:i]].Link; r == '/' && link != "" {
				if !path.IsAbs(link) {
					link = path.Join(path.Dir(key[:i]), link)
				}
				next = clean(path.Join(link, key[i:]))
				break
			}
		}
		if next == key {
			return key, nil
		}
		key = next
	}
	return "", errors.New("too many levels of symbolic links")
}

func collectRoot(entries map[string]File, root string) error {
	return filepath.WalkDir(root, func(source string, d fs.DirEntry, err error) error {
		if err != nil || source == root {
			return err
		}
		relative, err := filepath.Rel(root, source)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		file := File{Mode: info.Mode()}
		switch info.Mode().Type() {
		case 0:
			file.Source = source
		case fs.ModeDir:
		case fs.ModeSymlink:
			if file.Link, err = os.Readlink(source); err != nil {
				return err
			}
		default:
			return fmt.Errorf("image root %s: is neither a file, a directory nor a symbolic link", source)
		}
		entries[filepath.ToSlash(relative)] = file
		return nil
	})
}

func writeLayer(w io.Writer, entries map[string]File) error {
	layer := tar.NewWriter(w)
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		if err := writeEntry(layer, key, entries[key]); err != nil {
			return fmt.Errorf("image file /%s: %w", key, err)
		}
	}
	return layer.Close()
}

func writeEntry(layer *tar.Writer, key string, file File) error {
	header := &tar.Header{Name: key, ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
	mode, content := file.Mode, file.Data
	switch {
	case file.Link != "":
		header.Typeflag, header.Linkname, mode = tar.TypeSymlink, file.Link, 0o777
	case mode.IsDir():
		header.Typeflag, header.Name = tar.TypeDir, key+"/"
		mode |= defaultMode(mode, 0o755)
	case file.Source != "":
		info, err := os.Stat(file.Source)
		if err != nil {
			return err
		}
		if content, err = os.ReadFile(file.Source); err != nil {
			return err
		}
		header.Typeflag = tar.TypeReg
		mode |= defaultMode(mode, info.Mode())
	default:
		header.Typeflag = tar.TypeReg
		mode |= defaultMode(mode, 0o644)
	}
	header.Mode = tarMode(mode)
	header.Size = int64(len(content))
	if err := layer.WriteHeader(header); err != nil {
		return err
	}
	_, err := layer.Write(content)
	return err
}

// defaultMode is the fallback when mode has no permission bits of its own.
func defaultMode(mode, fallback fs.FileMode) fs.FileMode {
	if mode&^fs.ModeType != 0 {
		return 0
	}
	return fallback
}

// tarMode has the permission bits where tar, like chmod(2), wants them.
func tarMode(mode fs.FileMode) int64 {
	bits := int64(mode.Perm())
	for flag, bit := range map[fs.FileMode]int64{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if mode&flag != 0 {
			bits |= bit
		}
	}
	return bits
}
