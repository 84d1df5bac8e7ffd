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
// Its journal on standard output says as JSON lines when requests start and
// end, when SIGTERM arrives and when the process ends (see Event).
//
// The control port, 9901 unless --control-port says otherwise, has
//
//	POST   /faults   {"metrics": "hang"}: change what is wrong (see Faults)
//	GET    /faults   what is wrong
//	DELETE /faults   nothing is wrong
//	GET    /state    the counters (see State)
//	POST   /sigterm  as the signal
//	POST   /crash    end at once with code 1
package standin
