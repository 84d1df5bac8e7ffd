package operator

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/render"
)

// TestSimulation plays deployments that people edit and nodes take Pods from,
// with an operator whose cache lags, that crashes between any two writes, and
// that at times runs twice. What must hold is checked at every write; once faults
// stop, everything must come to be as the spec says.
func TestSimulation(t *testing.T) {
	seeds := uint64(100)
	if more, err := strconv.ParseUint(os.Getenv("SIMULATION_SEEDS"), 10, 64); err == nil {
		seeds = more
	}
	reached := map[string]int{}
	for seed := range seeds {
		s := &simulation{T: t, seed: seed, random: rand.New(rand.NewPCG(seed, 1)), reached: reached}
		s.run()
		if t.Failed() {
			return
		}
	}
	t.Log(reached)
	for _, what := range []string{
		"create", "crash", "stale", "edit", "scale", "drop", "delete", "evict", "restart",
		"remove Outdated", "remove PodDeleted", "remove PodEnded", "remove PodRestarted", "conflict",
	} {
		require.Positive(t, reached[what], "%q never happened, so nothing is known of it", what)
	}
}

type simulation struct {
	*testing.T
	*world
	seed    uint64
	random  *rand.Rand
	reached map[string]int
	// cached is what the operator's cache shows: the world at some earlier moment.
	cached *Seen
	story  []string
}

func (s *simulation) run() {
	s.world = newWorld(role("a", int32(1+s.random.IntN(3)), 1), role("b", int32(s.random.IntN(3)), int32(1+s.random.IntN(3))))
	s.cached = s.seen()
	for range 150 {
		s.now = s.now.Add(time.Second)
		switch s.random.IntN(10) {
		case 0:
			s.fault()
		case 1, 2, 3, 4:
			s.kubelet()
		default:
			s.operate(true)
		}
		if s.random.IntN(5) == 0 {
			s.cached = s.seen()
		}
	}
	for _, pod := range s.pods { // the retirer undoes its marks, as it must
		pod.Labels[names.LabelServing] = names.Serving
	}
	for range 300 {
		s.now = s.now.Add(time.Second)
		before := s.uids
		s.kubelet()
		s.cached = s.seen()
		s.operate(false)
		quiet := s.uids == before && !slices.ContainsFunc(s.seen().Pods, func(p corev1.Pod) bool { return leaving(&p) || !podReady(&p) })
		if quiet && !Decide(s.seen()).Acts() {
			break
		}
	}
	s.settled()
}

func (s *simulation) tell(format string, args ...any) {
	s.story = append(s.story, s.now.Sub(start).String()+" "+fmt.Sprintf(format, args...))
}

func (s *simulation) must(ok bool, what string, args ...any) {
	if !ok {
		s.Fatalf("seed %d: %s\n%s", s.seed, fmt.Sprintf(what, args...), strings.Join(s.story, "\n"))
	}
}

// any is one of the Pods, or nil.
func (s *simulation) any() *corev1.Pod {
	all := slices.Sorted(maps.Keys(s.pods))
	if len(all) == 0 {
		return nil
	}
	return s.pods[all[s.random.IntN(len(all))]]
}

func (s *simulation) fault() {
	roles := s.md.Spec.Roles
	role := &roles[s.random.IntN(len(roles))]
	pod := s.any()
	what := []string{"edit", "scale", "drop", "delete", "evict", "restart", "unready", "withdraw"}[s.random.IntN(8)]
	switch {
	case what == "edit":
		s.edit(fmt.Sprint("image-", s.random.IntN(3)))
	case what == "scale":
		role.Replicas = new(int32(s.random.IntN(4)))
	case what == "drop" && len(roles) > 1:
		s.md.Spec.Roles = roles[:1]
	case pod == nil:
		return
	default:
		s.tell("%s %s", what, pod.Name)
		switch what {
		case "delete":
			s.leave(pod.Name)
		case "evict":
			pod.Status.Phase = corev1.PodFailed
		case "restart":
			if engine := engineStatus(pod); engine != nil {
				engine.RestartCount++
			}
		case "unready":
			s.down(pod.Name)
		case "withdraw":
			pod.Labels[names.LabelServing] = []string{names.Serving, names.Withdrawn}[s.random.IntN(2)]
		}
		s.reached[what]++
		return
	}
	s.tell("%s: the image is %s, the roles are %s", what, s.md.Spec.Engine.Image, counts(s.md.Spec.Roles))
	s.reached[what]++
}

func counts(roles []v1alpha1.Role) (text string) {
	for _, r := range roles {
		text += fmt.Sprintf("%s %d x %d ", r.Name, *r.Replicas, *r.Size)
	}
	return text
}

// kubelet brings Pods up and takes leaving ones away, each in its time.
func (s *simulation) kubelet() {
	for _, name := range slices.Sorted(maps.Keys(s.pods)) {
		switch pod := s.pods[name]; {
		case s.random.IntN(3) > 0:
		case leaving(pod):
			delete(s.pods, name)
		case !ended(pod):
			s.up(name)
		}
	}
}

// operate is one reconcile. With faults it can crash between two writes, and
// decide on an old view what is then not confirmed.
func (s *simulation) operate(faults bool) {
	if plan := Decide(s.cached); !plan.Acts() {
		return
	}
	plan := Decide(s.seen())
	if faults && s.random.IntN(4) == 0 {
		// Another operator was slow between its view and its writes.
		plan = Decide(s.cached)
		s.reached["stale"]++
		s.write(plan, true)
		return
	}
	s.write(plan, false)
}

func (s *simulation) write(plan *Plan, stale bool) {
	crash := -1
	if s.random.IntN(5) == 0 {
		crash = s.random.IntN(4)
	}
	step := func() bool {
		crash--
		if crash == -1 {
			s.tell("crash")
			s.reached["crash"]++
			return false
		}
		return true
	}
	for _, r := range plan.Remove {
		if !step() {
			return
		}
		s.check(r, stale)
		s.reached["remove "+r.Reason]++
		if !s.delete(r.Pod, r.UID) {
			s.reached["conflict"]++
		}
	}
	for _, c := range plan.Create {
		for _, pod := range c.Pods {
			if !step() {
				return
			}
			if s.create(pod) {
				s.tell("create %s", pod.Name)
				s.reached["create"]++
			} else {
				s.must(stale, "%s is created while it is there", pod.Name)
			}
		}
	}
}

// check is what must hold of every delete.
func (s *simulation) check(r Removal, stale bool) {
	pod := s.pods[r.Pod]
	s.tell("remove %s: %s", r.Pod, r.Reason)
	if pod == nil || pod.UID != r.UID {
		s.must(stale, "%s is deleted, which is not there", r.Pod)
		return
	}
	at, member, _ := slotOf(s.md, pod.Name)
	if stale {
		return // the spec may be another one by now
	}
	i := slices.IndexFunc(s.md.Spec.Roles, func(role v1alpha1.Role) bool { return role.Name == at.role })
	s.must(i >= 0 && at.ordinal < render.Replicas(&s.md.Spec.Roles[i]), "%s is deleted, which is the retirer's", pod.Name)

	this, amiss := (*replica)(nil), 0
	for _, other := range replicas(s.md, s.seen().Pods) {
		switch {
		case other.slot == at:
			this = other
		case other.role == at.role && other.ordinal < render.Replicas(&s.md.Spec.Roles[i]) && (!other.ready() || other.withdrawn()):
			amiss++
		}
	}
	if member > 0 {
		leader := this.pods[0]
		s.must(leader == nil || ended(leader) || overdue(leader, s.now), "%s goes before its leader", pod.Name)
	}
	if r.Reason == names.ReplacedOutdated && this.ready() {
		s.must(amiss == 0, "%s is rolled while %d others are amiss", pod.Name, amiss)
	}
}

// settled is how everything must end.
func (s *simulation) settled() {
	seen := s.seen()
	s.must(len(doing(Decide(seen))) == 0, "there is always more to do: %v", doing(Decide(seen)))
	for _, role := range s.md.Spec.Roles {
		hash := render.Hash(s.md, &role)
		for ordinal := range render.Replicas(&role) {
			for _, want := range render.Replica(s.md, &role, ordinal) {
				pod := s.pods[want.Name]
				s.must(pod != nil && podReady(pod) && !leaving(pod), "%s is not Ready in the end", want.Name)
				s.must(pod.Annotations[names.AnnotationSpecHash] == hash, "%s has an old spec in the end", want.Name)
			}
		}
	}
}
