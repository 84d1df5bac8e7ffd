package operator

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// Between two attempts at what fails again and again the operator waits longer
// each time. A failure that is not repeated for twice the longest wait is
// forgotten.
const (
	firstDelay   = time.Second
	longestDelay = time.Minute
)

// attempts remembers what failed, so that it is not tried again at once. It is
// lost when the process ends, which costs one more attempt.
type attempts struct {
	mu       sync.Mutex
	clock    clock.Clock
	backoff  *flowcontrol.Backoff
	retryAt  map[types.NamespacedName]map[string]time.Time
	failures map[types.NamespacedName]map[string]Failure
}

func newAttempts(c clock.Clock) *attempts {
	backoff := flowcontrol.NewBackOff(firstDelay, longestDelay)
	backoff.Clock = c
	return &attempts{
		clock:    c,
		backoff:  backoff,
		retryAt:  map[types.NamespacedName]map[string]time.Time{},
		failures: map[types.NamespacedName]map[string]Failure{},
	}
}

// delay keeps everybody away from a slot, or from a Service or budget, for a
// while.
func (a *attempts) delay(md types.NamespacedName, what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := md.String() + "/" + what
	now := a.clock.Now()
	a.backoff.GC()
	a.backoff.Next(id, now)
	a.keepAway(md, what, now.Add(a.backoff.Get(id)))
}

// wait keeps everybody away for a time that does not grow: nothing has failed.
func (a *attempts) wait(md types.NamespacedName, what string, d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keepAway(md, what, a.clock.Now().Add(d))
}

func (a *attempts) keepAway(md types.NamespacedName, what string, until time.Time) {
	if a.retryAt[md] == nil {
		a.retryAt[md] = map[string]time.Time{}
	}
	a.retryAt[md][what] = until
}

// fail notes why an object was not taken. It reports whether that is news.
func (a *attempts) fail(md types.NamespacedName, object string, f Failure) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failures[md] == nil {
		a.failures[md] = map[string]Failure{}
	}
	news := a.failures[md][object] != f
	a.failures[md][object] = f
	return news
}

// succeed forgets the failure of an object.
func (a *attempts) succeed(md types.NamespacedName, object string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.failures[md], object)
}

func (a *attempts) forget(md types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.failures, md)
	delete(a.retryAt, md)
}

// annotate adds what is remembered to what was seen.
func (a *attempts) annotate(seen *Seen) {
	key := types.NamespacedName{Namespace: seen.Deployment.Namespace, Name: seen.Deployment.Name}
	a.mu.Lock()
	defer a.mu.Unlock()
	seen.Failures = maps.Clone(a.failures[key])
	seen.RetryAt = maps.Clone(a.retryAt[key])
}

// of are the moments at which something is to be tried again.
func (a *attempts) of(md *v1alpha1.ModelDeployment) (all []time.Time) {
	key := types.NamespacedName{Namespace: md.Namespace, Name: md.Name}
	a.mu.Lock()
	defer a.mu.Unlock()
	for what, at := range a.retryAt[key] {
		if a.clock.Now().Before(at) {
			all = append(all, at)
		} else {
			delete(a.retryAt[key], what)
		}
	}
	return all
}
