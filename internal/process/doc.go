// Package process is what the binaries that run in a cluster have in common: how
// they log, where they serve metrics and health, and how they start and end.
package process
