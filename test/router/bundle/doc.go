// Package bundle puts the fake routers into a container image, under the names and tags
// of the routers they play: what an image is called is part of what is known of a router.
package bundle
