// Package election lets one replica of a binary work while the others wait.
package election
