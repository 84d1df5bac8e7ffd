// Package e2e proves lastcall on a real kubelet: the chart installed with the
// real helm, stand-in engines that opted in, and deletes of every kind. What
// happened when is read from the containers' logs and from events, not from
// polling.
package e2e
