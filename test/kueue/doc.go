// Package kueue has no code: its tests run lastcall beside the controllers of Kueue, on a real node. They are apart
// from the other suites, as Kueue takes minutes to compile:
//
//	make test-kueue
package kueue
