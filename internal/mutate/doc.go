// Package mutate decides what admission makes of a Pod: which container is the
// engine, how long it may take to leave, which hook it gets, and what its user
// must be told.
//
// The answer is a JSON Patch that is built, not diffed: it touches the grace
// period, the preStop hook and one annotation, so a field that no Go type here
// knows is left as it came. A Pod that already is as it should be gets no patch.
//
// The package is pure: a Pod in, a patch and warnings out.
package mutate
