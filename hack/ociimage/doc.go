// Package ociimage builds a container image from files, without a registry, a daemon or a Dockerfile.
//
// The images that tests and demos need are a static binary or two, perhaps on top of a small root folder.
// Build turns a Spec into such an image; WriteTar puts it where `ctr images import`, `docker load` and
// `kind load image-archive` can read it. The same Spec gives the same digest on every machine of the same
// architecture: entries are sorted, times are the Unix epoch, and everything belongs to root.
package ociimage
