// Package cli is the host of kubectl lastcall: it reads files, asks the pure
// packages that the webhook asks too, and prints what they say. The commands about a
// cluster gather facts with reads, decide what they mean with a pure function, and print
// that; scale, retry and finalizers --remove change one thing each, and guard it with
// what was read.
//
// Exit codes are the same for every command, but that gauges gives a verdict:
//
//	0  done; gauges: idle
//	1  the input is refused, invalid or not readable as YAML; gauges: busy; of a
//	   cluster: something could not be read or changed, or there is nothing to retry
//	2  gauges: unknown
//	3  the command cannot be run as asked: a wrong flag, a file that is not there
package cli
