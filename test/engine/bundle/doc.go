// Package bundle puts the stand-in engine into container images, with the real
// python3 and /bin/sh that an engine's image has.
//
// Python and the shell come from the distribution's packages, whose versions
// apt knows; they are unpacked once into the user's cache, under a key made of
// the packages' own checksums. It works on Debian and Ubuntu, without root.
package bundle
