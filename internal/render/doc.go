// Package render makes of a ModelDeployment the objects that run it: the Pods of
// a replica, the Services, and the PodDisruptionBudgets.
//
// What is rendered for a role has a digest, Hash. It is the same for every
// replica of the role, so a Pod that carries another one was made from an older
// role, or by a lastcall with another drain hook, and is to be replaced. It says
// what a Pod would do, not how the role is written: unset and default fields, nil
// and empty lists, 1000m and 1 have one digest.
//
// Every function is total: package validate says what is wrong with a
// ModelDeployment, and of one that is wrong something is rendered that the API
// server refuses.
//
// The package is pure.
package render
