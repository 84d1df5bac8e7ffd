// Package router asks inference routers what they know of a replica, and tells those
// to leave it alone that have to be told.
//
// There is one Family for each family of routers. What it returns are facts with the
// moments they are of, and never verdicts: internal/withdraw decides what they prove.
// What a router does not say, or says in a way that is known to be wrong sometimes, is
// unknown, which is the zero value of everything. A fact's meaning can depend on the
// router's version and on how it was started, so both are facts too.
package router
