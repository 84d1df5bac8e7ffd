// Package fake plays inference routers: vllm-router, SMG, the sgl-model-gateway and the
// llm-d EPP with its gateway. It follows Pods as each of them does, with what each of them
// misses, answers their control APIs and their metrics, and sends real requests on to real
// engines: plain, or prefill first and decode after.
//
// What a family and a version do lies in traits; how Pods become workers in discovery, a
// pure function of a sequence of events; which worker is chosen in pick. How requests are
// counted differs most: a family's books are its own, with its errors. Faults, set by POST
// /fault, make a router do what another version does, or what none should.
//
// A process is one run of a router. Everything that a restart forgets is in it.
package fake
