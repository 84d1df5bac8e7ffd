// Package standin plays an inference engine without a model: the HTTP surface,
// the /metrics text and the way out of vLLM or of SGLang, at a token rate that
// the test chooses.
//
// It is honest where a drain can be fooled: vLLM's gauges move with each engine
// step; SGLang's move after a prefill (where they do not yet count the request
// that joins), on every 40th decode step and when it reports itself idle, so a
// busy SGLang reads idle at first. On SIGTERM vLLM cuts what is running and
// SGLang drains, looking every five seconds.
//
// Faults are switched while it runs, on a control port (see Faults).
package standin
