// Package router puts fake routers in front of the engines of a cluster under test, and
// sets faults on each of their processes. See package fake for what they play, and package
// bundle for their image.
package router
