package cli

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/internal/manifest"
)

// maxManifest is the largest manifest that is read, in bytes: what kubectl get
// prints for some thousand Pods.
const maxManifest = 64 << 20

// read returns a file, or standard input for "-", up to one byte more than limit.
func (s Streams) read(name string, limit int64) ([]byte, error) {
	in := s.In
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, exit{exitUsage, err}
		}
		defer file.Close() //nolint:errcheck // it was only read
		in = file
	}
	text, err := io.ReadAll(io.LimitReader(in, limit+1))
	if err != nil {
		return nil, exit{exitUsage, fmt.Errorf("reading %s: %w", displayName(name), err)}
	}
	return text, nil
}

func displayName(name string) string {
	if name == "-" {
		return "standard input"
	}
	return name
}

// files is the flag -f of the commands that take manifests.
type files []string

func (f *files) addFlag(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP((*[]string)(f), "filename", "f", nil, "a manifest, YAML or JSON; - is standard input; may be repeated")
}

// input is one manifest.
type input struct {
	name      string
	documents []manifest.Document
}

// read reads all manifests.
func (f files) read(s Streams) ([]input, error) {
	if len(f) == 0 {
		return nil, usage("which manifest? Name it with -f FILE, or -f - for standard input")
	}
	var inputs []input
	standardInput := 0
	for _, name := range f {
		if name == "-" {
			standardInput++
		}
		if standardInput > 1 {
			return nil, usage("-f - was given twice, but standard input can be read once")
		}
		text, err := s.read(name, maxManifest)
		if err != nil {
			return nil, err
		}
		if len(text) > maxManifest {
			return nil, exit{exitFailed, fmt.Errorf("%s: larger than %d MiB", displayName(name), maxManifest>>20)}
		}
		documents, err := manifest.Split(text)
		if err != nil {
			return nil, exit{exitFailed, fmt.Errorf("%s: %w", displayName(name), err)}
		}
		inputs = append(inputs, input{displayName(name), documents})
	}
	return inputs, nil
}

// errNoObjects is what kubectl says too: an empty manifest is a mistake upstream.
var errNoObjects = exit{exitFailed, errors.New("no objects in the manifests")}
