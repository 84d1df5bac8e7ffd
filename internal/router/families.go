package router

import (
	"k8s.io/utils/clock"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// Of is the family of a name; false where there is none of that name.
func Of(name v1alpha1.RouterName) (Family, bool) {
	return of(name, clock.RealClock{})
}

func of(name v1alpha1.RouterName, c clock.PassiveClock) (Family, bool) {
	switch name {
	case v1alpha1.LLMDRouter:
		return llmd{c}, true
	case v1alpha1.VLLMRouter:
		return vllm{c}, true
	case v1alpha1.SGLangGateway:
		return sglang{c}, true
	}
	return nil, false
}
