// Package withdraw decides from evidence whether anything can still send a new
// request to a replica.
//
// The evidence is facts with the times they are of, and never somebody's verdict.
// The zero value of every fact is unknown, and what is unknown proves nothing. A
// fact has two times: it was true at some moment between the question and the
// answer. Where it must be after something, the question's time counts.
package withdraw
