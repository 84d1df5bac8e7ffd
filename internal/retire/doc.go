// Package retire is the protocol that takes replicas away: what is withdrawn,
// read, deleted, kept, and when. It is one pure function,
//
//	Step(now, spec, status, observations) -> (status, actions)
//
// and a host that calls it for each ModelDeployment, in this order:
//
//  1. gather what is to be known into Observations, from the API server itself
//     where an operation runs or is about to start: a cached Pod is never proof
//     that something was undone;
//  2. Step;
//  3. where the status changed, write it under an optimistic lock; on a conflict
//     stop and begin again, and do nothing else;
//  4. carry out the actions: each is idempotent and names what it means by UID;
//     what comes of them is an observation of the next round;
//  5. tell of the difference between the two statuses in events and metrics;
//  6. come back at WakeAt.
//
// The status is all that is remembered between two rounds, but for the reads: the
// host keeps those of its own process and hands them over in the order they were
// made. So a proof that a restart interrupts is earned again, and everything else
// goes on where it was.
//
// # States of a target
//
// A target is one replica, and targets advance alone.
//
//	Admitted -> Disqualified -> Withdrawing -> Draining -> Deleting -> Settling -> Completed
//	    \            \              \             \           :
//	     +------------+--------------+-------------+- - - - - +--> Aborted
//
//	Admitted      its members, their containers and its Kueue Workload are bound: no
//	              other is touched
//	Disqualified  its members are marked, so that nothing new chooses them
//	Withdrawing   evidence is collected that nothing can choose them any more
//	Draining      its engine is read until it is proven idle
//	Deleting      the decision stands; its members are being deleted
//	Settling      every delete was accepted; its Pods are leaving, and its Workload is
//	              deleted
//	Completed     its Pods are gone
//	Aborted       it was kept and serves again; the reason says what ran out
//
// What is withdrawn by a router begins with Disqualified: those of its processes that
// have to be told are told, and marked is what they have all let go. In Draining they
// are asked on: where one can choose the target again, it goes back to Withdrawing.
//
// What does not run goes from Admitted to Deleting, what a Deletion takes from
// Admitted to Draining, and where that waits for idle without a bound, from there to
// Deleting when nothing runs any more. Deleting ends Aborted only where no delete was accepted and
// the proof could not be earned again in the time of Draining, or the replica is
// wanted again: nothing is held for ever.
//
// Only three ways lead back: a mark that somebody removed (Withdrawing, Draining, or
// Deleting before any delete was accepted, to Disqualified; a Deletion marks it again
// where it is, or would never end), a delete that was
// refused (the proof is earned again before the next one, in Deleting), and a replica
// thought not to run that does (Deleting to Admitted). No deadline moves for any of
// them.
//
// # What holds at every moment
//
//   - No member with work is deleted, but by a Deletion that ran out of time.
//   - Nothing but what was bound is touched, and the Workload of Pods that others have
//     deleted or that a Deletion takes, which Kueue would hold without end.
//   - No Workload is deleted while a Pod of its replica stays.
//   - What is kept, or wanted again, serves again.
//   - Every operation ends by its deadline once faults stop, or when a process that
//     came late has looked for the time of Withdrawing.
package retire
