// Package operator makes and replaces the replicas of ModelDeployments. It never
// takes one away for good: a replica that the spec no longer asks for is the
// retirer's.
//
// One reconcile is, in this order:
//
//	gather   everything about one ModelDeployment into a Seen
//	decide   a pure function: Seen in, Plan out
//	confirm  a plan that creates or deletes Pods is decided again on a Seen read
//	         from the API server itself, because the cache can lag behind our own
//	         writes; only that plan is carried out
//	act      Services and budgets by server-side apply, Pods by create, deletes by
//	         UID
//	report   status, then events and metrics for what is now true
//
// Nothing is remembered between two reconciles but how long to wait before
// something that failed is tried again, so a crash between any two writes, or
// another replica of the operator taking over, changes nothing.
//
// A slot is a role and an ordinal. Its Pods have the slot's name, so the API
// server itself keeps two Pods out of one slot, and a slot is filled again only
// once no Pod of it is left on the API server.
package operator
