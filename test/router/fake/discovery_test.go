package fake

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// follow runs events through a discovery and returns which Pods have workers after them,
// as the process applies changes.
func follow(t *testing.T, o Options, events ...Event) map[string]string {
	t.Helper()
	o, err := o.complete()
	require.NoError(t, err)
	traits, err := traitsOf(o)
	require.NoError(t, err)
	d := newDiscovery(traits.follows, newSelection(o, traits))
	workers := map[string]podInfo{} // by address
	for _, e := range events {
		var registered []podInfo
		for _, p := range workers {
			registered = append(registered, p)
		}
		for _, c := range d.see(e, registered) {
			_, taken := workers[c.pod.ip]
			switch {
			case c.remove:
				delete(workers, c.pod.ip)
			case taken && traits.follows != followsEndpoint:
				d.refused(c.pod)
			default:
				workers[c.pod.ip] = c.pod
			}
		}
	}
	names := map[string]string{}
	for ip, p := range workers {
		names[ip] = p.name
	}
	return names
}

var a, b = pod("a", "10.0.0.1"), pod("b", "10.0.0.2")

func apply(pod *corev1.Pod, changes ...func(*corev1.Pod)) Event {
	return Event{Kind: Applied, Pod: with(pod, changes...)}
}

func gone(pod *corev1.Pod) Event { return Event{Kind: Deleted, Pod: pod} }

var tick = Event{Kind: Tick}

func relist(pods ...*corev1.Pod) Event { return Event{Kind: Relisted, Pods: pods} }

func TestWhatDropsAWorker(t *testing.T) {
	// What happens to Pod a, and then a look around where the router has one.
	happenings := map[string][]Event{
		"its label goes":                              {apply(a, unlabelled)},
		"it is not Ready":                             {apply(a, unready)},
		"an annotation changes":                       {apply(a, annotated("x", "y"))},
		"it begins to terminate":                      {apply(a, terminating)},
		"it is not Ready, and then terminates":        {apply(a, unready), apply(a, unready, terminating)},
		"it loses its label, and then terminates":     {apply(a, unlabelled), apply(a, unlabelled, terminating)},
		"it is deleted without a word":                {gone(a)},
		"it has another Pod's name and UID":           {gone(a), apply(with(pod("c", a.Status.PodIP)))},
		"it is no longer Running":                     {apply(a, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })},
		"its active ports are none":                   {apply(a, annotated(activePorts, "none"))},
		"its active ports are none, in the older way": {apply(a, annotated(legacyActivePorts, "none"))},
	}
	// The Pod that its address is of afterwards; a is still there unless it says otherwise.
	for family, c := range map[string]struct {
		options Options
		look    []Event // after what happened, with the Pods that are left
		dropped map[string]string
	}{
		"vllm-router": {
			options: Options{Family: VLLMRouter, Version: "0.1.15"},
			dropped: map[string]string{"it begins to terminate": ""},
		},
		"sgl-model-gateway": {
			options: Options{Family: SGLModelGateway, Version: "0.3.0"},
			dropped: map[string]string{"it begins to terminate": ""},
		},
		"SMG 1.9.0 before its list": {
			options: Options{Family: SMG, Version: "1.9.0"},
			dropped: map[string]string{"it begins to terminate": "", "it is not Ready, and then terminates": ""},
		},
		"SMG main before it looks around": {options: Options{Family: SMG}},
		"SMG main": {
			options: Options{Family: SMG}, look: []Event{tick},
			dropped: map[string]string{
				"its label goes": "", "it begins to terminate": "", "it is not Ready, and then terminates": "",
				"it loses its label, and then terminates": "", "it is deleted without a word": "", "it has another Pod's name and UID": "c",
			},
		},
		"llm-d 0.10.0": {
			options: Options{Family: LLMD, Version: "0.10.0"},
			dropped: map[string]string{
				"its label goes": "", "it is not Ready": "", "it begins to terminate": "", "it is not Ready, and then terminates": "",
				"it loses its label, and then terminates": "", "it is deleted without a word": "", "it has another Pod's name and UID": "c",
				"its active ports are none": "", "its active ports are none, in the older way": "",
			},
		},
		"llm-d 0.8.0": {
			options: Options{Family: LLMD, Version: "0.8.0"},
			dropped: map[string]string{
				"its label goes": "", "it is not Ready": "", "it begins to terminate": "", "it is not Ready, and then terminates": "",
				"it loses its label, and then terminates": "", "it is deleted without a word": "", "it has another Pod's name and UID": "c",
			},
		},
	} {
		t.Run(family, func(t *testing.T) {
			c.options.Selector = "app=engine"
			for what, events := range happenings {
				all := append([]Event{{Kind: Listed, Pods: []*corev1.Pod{a, b}}}, events...)
				left := follow(t, c.options, append(all, c.look...)...)
				want, dropped := c.dropped[what]
				if !dropped {
					want = "a"
				}
				assert.Equal(t, want, left[a.Status.PodIP], what)
				assert.Equal(t, "b", left[b.Status.PodIP], what)
			}
		})
	}
}

func TestWhatTheListOfSMGFinds(t *testing.T) {
	o := Options{Family: SMG, Version: "1.9.0", Selector: "app=engine"}
	begin := Event{Kind: Listed, Pods: []*corev1.Pod{a, b}}
	for what, c := range map[string]struct {
		events []Event
		left   string
	}{
		"a Pod whose label went":                {[]Event{begin, apply(a, unlabelled), relist(with(a, unlabelled), b)}, ""},
		"a Pod that went without a word":        {[]Event{begin, gone(a), relist(b)}, ""},
		"a Pod that is not Ready stays":         {[]Event{begin, apply(a, unready), relist(with(a, unready), b)}, "a"},
		"a new Pod of the same name":            {[]Event{begin, relist(with(a, func(p *corev1.Pod) { p.UID = "2" }), b)}, ""},
		"that one is added by the list after":   {[]Event{begin, relist(with(a, func(p *corev1.Pod) { p.UID = "2" }), b), relist(with(a, func(p *corev1.Pod) { p.UID = "2" }), b)}, "a"},
		"nothing, of a list that begins anew":   {[]Event{begin, gone(a), {Kind: Listed, Pods: []*corev1.Pod{b}}}, "a"},
		"a Pod that the watch had not shown":    {[]Event{{Kind: Listed}, relist(a, b)}, "a"},
		"the same Pod does not come back twice": {[]Event{begin, relist(a, b), relist(a, b)}, "a"},
	} {
		assert.Equal(t, c.left, follow(t, o, c.events...)[a.Status.PodIP], what)
	}
}

// A router of these families that was told through its API forgets that when it restarts,
// and when anything it keeps of the Pod changes.
func TestWhatBringsAWorkerBack(t *testing.T) {
	begin := Event{Kind: Listed, Pods: []*corev1.Pod{a}}
	for what, c := range map[string]struct {
		options Options
		event   Event
		back    bool
	}{
		"vllm-router, the same Pod again":       {Options{Family: VLLMRouter}, apply(a), false},
		"vllm-router, an annotation":            {Options{Family: VLLMRouter}, apply(a, annotated("x", "y")), false},
		"vllm-router, a label of no selector":   {Options{Family: VLLMRouter}, apply(a, label("x", "y")), false},
		"vllm-router, a watch that begins anew": {Options{Family: VLLMRouter}, begin, false},
		"vllm-router, another address":          {Options{Family: VLLMRouter}, apply(a, func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.9" }), true},
		"SMG 1.9.0, its list":                   {Options{Family: SMG, Version: "1.9.0"}, relist(a), false},
		"SMG main, when it looks around":        {Options{Family: SMG}, tick, true},
	} {
		c.options.Selector = "app=engine"
		o, err := c.options.complete()
		require.NoError(t, err)
		traits, err := traitsOf(o)
		require.NoError(t, err)
		d := newDiscovery(traits.follows, newSelection(o, traits))
		require.Len(t, d.see(begin, nil), 1)
		assert.Equal(t, c.back, len(d.see(c.event, nil)) == 1, what) // nothing is registered: it was removed
	}
}

func TestAnAddressThatIsTakenIsTriedAgain(t *testing.T) {
	o := Options{Family: VLLMRouter, Selector: "app=engine"}
	successor := pod("c", a.Status.PodIP)
	events := []Event{{Kind: Listed, Pods: []*corev1.Pod{a}}, apply(successor)}
	assert.Equal(t, "a", follow(t, o, events...)[a.Status.PodIP], "its own worker is in the way")
	events = append(events, apply(a, terminating), apply(successor))
	assert.Equal(t, "c", follow(t, o, events...)[a.Status.PodIP])
}

func TestRolesOfAPair(t *testing.T) {
	o := Options{Family: VLLMRouter, PD: Sequential, Selector: "app=engine", PrefillSelector: "role=p", DecodeSelector: "role=d"}
	o, err := o.complete()
	require.NoError(t, err)
	s := newSelection(o, traits{})
	prefill, ok := s.info(with(a, label("role", "p"), annotated("vllm.ai/bootstrap-port", "8998")))
	assert.True(t, ok)
	assert.Equal(t, Prefill, prefill.role)
	assert.Equal(t, 8998, prefill.bootstrapPort)
	decode, ok := s.info(with(a, label("role", "d")))
	assert.True(t, ok)
	assert.Equal(t, Decode, decode.role)
	_, ok = s.info(a)
	assert.False(t, ok, "it looks for pairs only")
}
