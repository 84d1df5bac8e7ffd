// Package names holds every word of lastcall that a user can see: labels,
// annotations, the finalizer, and the closed sets of reasons. Status, events,
// metrics, warnings and logs use these constants, so a word found in a cluster
// is found here with one search.
//
// The package imports nothing: it is the bottom of the import graph.
package names
