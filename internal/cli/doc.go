// Package cli is the host of kubectl lastcall: it reads files, asks the pure
// packages that the webhook asks too, and prints what they say. Only status needs a
// cluster: it gathers facts with reads, decides what they mean, and prints that.
//
// Exit codes are the same for every command, but that gauges gives a verdict:
//
//	0  done; gauges: idle
//	1  the input is refused, invalid or not readable as YAML; gauges: busy; status:
//	   something could not be read
//	2  gauges: unknown
//	3  the command cannot be run as asked: a wrong flag, a file that is not there
package cli
