package router

import (
	"strings"

	"github.com/lastcall-dev/lastcall/internal/withdraw"
)

// reasons are why facts are unknown, the ones that matter most first.
type reasons []string

func (r *reasons) add(why string) {
	if why != "" {
		*r = append(*r, why)
	}
}

// of notes why a fact is as it is, and returns it.
func (r *reasons) of(fact withdraw.Tri, why string) withdraw.Tri {
	r.add(why)
	return fact
}

func (r reasons) String() string { return strings.Join(r, "; ") }
