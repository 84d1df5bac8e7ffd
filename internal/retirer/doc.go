// Package retirer takes away the replicas that a ModelDeployment no longer asks
// for. It is the host of package retire, where all decisions are made: it gathers
// what is to be known, steps, persists the decision, acts on it, and tells.
//
// A round begins with what the cache has. Where that changes nothing but what is
// to be read next, it is enough: a read checks the member on the API server
// itself. Everything else is decided anew from what the API server says, and
// written only if nothing changed meanwhile.
//
// Reads are made in the background, so that a slow member holds nobody up. They
// are kept in memory: a proof in progress that a restart loses is earned again.
package retirer
