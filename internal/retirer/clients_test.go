package retirer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/probe"
	"github.com/lastcall-dev/lastcall/internal/retire"
)

// listed is an API server with lists and nothing else. It has two objects to a page.
type listed struct {
	client.Reader
	slices []discoveryv1.EndpointSlice
	pods   []corev1.Pod
	fail   error
	hang   func(client.ObjectList) bool
	lists  int
}

func (l *listed) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	l.lists++
	if l.hang != nil && l.hang(into) {
		<-ctx.Done()
		return ctx.Err()
	}
	if l.fail != nil {
		return l.fail
	}
	var o client.ListOptions
	o.ApplyOptions(options)
	from := 0
	if o.Continue != "" {
		if _, err := fmt.Sscan(o.Continue, &from); err != nil {
			return err
		}
	}
	total := 0
	switch into := into.(type) {
	case *discoveryv1.EndpointSliceList:
		total = len(l.slices)
		into.Items = l.slices[from:min(from+2, total)]
	case *corev1.PodList:
		var matching []corev1.Pod
		for _, pod := range l.pods {
			if pod.Namespace == o.Namespace && o.LabelSelector.Matches(labelsOf(pod)) {
				matching = append(matching, pod)
			}
		}
		total = len(matching)
		into.Items = matching[from:min(from+2, total)]
	}
	if from+2 < total {
		into.SetContinue(fmt.Sprint(from + 2))
	}
	return nil
}

type labelsOf corev1.Pod

func (l labelsOf) Has(label string) bool                       { _, ok := l.Labels[label]; return ok }
func (l labelsOf) Get(label string) string                     { return l.Labels[label] }
func (l labelsOf) Lookup(label string) (value string, ok bool) { value, ok = l.Labels[label]; return }

func slice(service string, endpoints ...discoveryv1.Endpoint) discoveryv1.EndpointSlice {
	s := discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "slice-of-" + service}, Endpoints: endpoints}
	if service != "" {
		s.Labels = map[string]string{discoveryv1.LabelServiceName: service}
	}
	return s
}

func ofPod(uid types.UID) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{"10.0.0.7"}, TargetRef: &corev1.ObjectReference{UID: uid}}
}

func newClients(l client.Reader) *clients {
	return &clients{live: l, clock: clock.RealClock{}, listings: map[string]*listing{}}
}

func clientsOfMember(change ...func(*corev1.Pod)) *clientsOf {
	md := &v1alpha1.ModelDeployment{ObjectMeta: metav1.ObjectMeta{Name: "chat"}}
	s := &seen{deployment: md, pods: map[types.UID]*corev1.Pod{}}
	s.add(member(change...), false)
	s.add(member(func(p *corev1.Pod) { p.UID, p.Status.PodIPs = "worker", []corev1.PodIP{{IP: "10.0.0.8"}} }), false)
	s.add(member(func(p *corev1.Pod) {
		p.UID, p.Status.PodIPs, p.Name = "other replica", []corev1.PodIP{{IP: "10.0.0.9"}}, "chat-server-0"
	}), false)
	return s.clientsOf(s.pods["a"])
}

func TestAMemberIsBehindTheServicesWhoseSlicesHaveIt(t *testing.T) {
	byHand := discoveryv1.Endpoint{Addresses: []string{"::ffff:10.0.0.7"}}
	for what, tc := range map[string]struct {
		slices []discoveryv1.EndpointSlice
		want   []string
	}{
		"none":                              {nil, nil},
		"one":                               {[]discoveryv1.EndpointSlice{slice("chat", ofPod("b"), ofPod("a"))}, []string{"chat"}},
		"another's":                         {[]discoveryv1.EndpointSlice{slice("chat", ofPod("b"))}, nil},
		"several slices, each Service once": {[]discoveryv1.EndpointSlice{slice("z", ofPod("a")), slice("chat"), slice("chat", ofPod("a")), slice("z", ofPod("a"))}, []string{"chat", "z"}},
		"the group by which members find each other":    {[]discoveryv1.EndpointSlice{slice("chat-server", ofPod("a"))}, nil},
		"an address alone":                              {[]discoveryv1.EndpointSlice{slice("byhand", byHand)}, []string{"byhand"}},
		"the address of another Pod that had it before": {[]discoveryv1.EndpointSlice{slice("chat", ofPod("old"))}, nil},
		"a slice of no Service":                         {[]discoveryv1.EndpointSlice{slice("", ofPod("a"))}, []string{"slice-of-"}},
		"a name for an address":                         {[]discoveryv1.EndpointSlice{slice("dns", discoveryv1.Endpoint{Addresses: []string{"a.example"}})}, nil},
	} {
		t.Run(what, func(t *testing.T) {
			before := clock.RealClock{}.Now()
			got := newClients(&listed{slices: tc.slices}).look(t.Context(), clientsOfMember())
			assert.True(t, got.known)
			assert.Equal(t, tc.want, append([]string(nil), got.services...))
			assert.False(t, got.sentAt.Before(before))
			assert.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.0.0.8/32")}, got.peers, "the other member of its replica")
		})
	}
}

func TestPeersAreWhatIsDeclared(t *testing.T) {
	pod := func(namespace, app, ip string, host bool) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Labels: map[string]string{"app": app}},
			Spec:       corev1.PodSpec{HostNetwork: host}, Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: ip}}},
		}
	}
	l := &listed{pods: []corev1.Pod{
		pod("serving", "scraper", "10.1.0.1", false), pod("serving", "scraper", "fd00::1", false), pod("serving", "scraper", "10.1.0.3", false),
		pod("serving", "scraper", "192.0.2.9", true), pod("serving", "client", "10.1.0.4", false), pod("monitoring", "scraper", "10.1.0.5", false),
	}}
	of := clientsOfMember()
	scraper := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "scraper"}}
	of.peers = []v1alpha1.WithdrawalPeer{{CIDR: "10.9.0.0/16"}, {PodSelector: scraper}}
	var got []string
	for _, p := range newClients(l).look(t.Context(), of).peers {
		got = append(got, p.String())
	}
	assert.Equal(t, []string{"10.0.0.8/32", "10.9.0.0/16", "10.1.0.1/32", "fd00::1/128", "10.1.0.3/32"}, got, "of all pages, none of a node")
	of.peers = []v1alpha1.WithdrawalPeer{{PodSelector: scraper, Namespace: "monitoring"}}
	assert.Contains(t, newClients(l).look(t.Context(), of).peers, netip.MustParsePrefix("10.1.0.5/32"))
}

func TestWhatCannotBeListedIsNotKnown(t *testing.T) {
	assert.Equal(t, sightings{}, newClients(&listed{fail: errors.New("away")}).look(t.Context(), clientsOfMember()))
}

func TestALookEndsThoughTheAPIServerDoesNotAnswer(t *testing.T) {
	for what, hang := range map[string]func(client.ObjectList) bool{
		"at all":   func(client.ObjectList) bool { return true },
		"of peers": func(l client.ObjectList) bool { _, ok := l.(*corev1.PodList); return ok },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				of := clientsOfMember()
				of.peers = []v1alpha1.WithdrawalPeer{{PodSelector: &metav1.LabelSelector{}}}
				start := clock.RealClock{}.Now()
				assert.False(t, newClients(&listed{hang: hang}).look(context.Background(), of).known)
				assert.LessOrEqual(t, time.Since(start), 2*listTimeout)
			})
		})
	}
}

func TestANamespaceIsListedOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &listed{}
		c := newClients(l)
		for range 50 {
			go c.look(context.Background(), &clientsOf{namespace: "serving"})
		}
		synctest.Wait()
		assert.Equal(t, 1, l.lists)
		clock.RealClock{}.Sleep(listingAge)
		c.look(context.Background(), &clientsOf{namespace: "serving"})
		assert.Equal(t, 1, l.lists)
		clock.RealClock{}.Sleep(time.Millisecond)
		c.look(context.Background(), &clientsOf{namespace: "serving"})
		assert.Equal(t, 2, l.lists)
		clock.RealClock{}.Sleep(2 * listingAge)
		c.look(context.Background(), &clientsOf{namespace: "other"})
		assert.Len(t, c.listings, 1, "no listing outlives its time")
	})
}

func TestConnectionsAreCountedAsClients(t *testing.T) {
	const node = "192.0.2.1:4000"
	for what, tc := range map[string]struct {
		pod    func(*corev1.Pod)
		before []string
		ends   []string
		want   []string
	}{
		"none":                               {want: nil},
		"a client, at two ports":             {ends: []string{"10.2.0.1:1", "10.2.0.1:2"}, want: []string{"10.2.0.1", "10.2.0.1"}},
		"loopback, of both kinds":            {ends: []string{"127.0.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"}},
		"what a mesh's sidecar hands on":     {ends: []string{"127.0.0.6:1"}, want: []string{"127.0.0.6"}},
		"its own addresses":                  {ends: []string{"10.0.0.7:1", "[fd00::7]:1"}},
		"a peer":                             {ends: []string{"10.9.1.1:1"}},
		"a peer as IPv6 has it":              {ends: []string{"[::ffff:10.9.1.1]:1"}},
		"a client as IPv6 has it":            {ends: []string{"[::ffff:10.2.0.1]:1"}, want: []string{"10.2.0.1"}},
		"the node, for a moment":             {ends: []string{node}},
		"the node, from one look to another": {before: []string{node}, ends: []string{node}, want: []string{"192.0.2.1"}},
		"the node, from another port":        {before: []string{node}, ends: []string{"192.0.2.1:4001"}},
		"the gateway, for a moment":          {ends: []string{"10.0.0.1:1"}},
		"the gateway, to the next look":      {before: []string{"10.0.0.1:1"}, ends: []string{"10.0.0.1:1"}, want: []string{"10.0.0.1"}},
		"the node's own network: whoever lasts is a client": {
			pod:    func(p *corev1.Pod) { p.Spec.HostNetwork, p.Status.PodIPs = true, []corev1.PodIP{{IP: "192.0.2.1"}} },
			before: []string{node}, ends: []string{node, "192.0.2.1:4001"}, want: []string{"192.0.2.1"},
		},
	} {
		t.Run(what, func(t *testing.T) {
			if tc.pod == nil {
				tc.pod = func(*corev1.Pod) {}
			}
			of := clientsOfMember(tc.pod)
			peers := []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}
			look := func(ends []string, before connections) (int, []string, connections) {
				result := probe.Result{ConnectionsKnown: true, Gateway: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}
				for _, end := range ends {
					result.Connections = append(result.Connections, netip.MustParseAddrPort(end))
				}
				s, brief := of.sample(retire.Read{ContainerID: "c"}, result, peers, before)
				require.True(t, s.Known)
				require.Equal(t, "c", s.ContainerID)
				return s.Established, s.From, brief
			}
			established, _, brief := look(tc.before, nil)
			assert.Zero(t, established)
			established, from, _ := look(tc.ends, brief)
			assert.Equal(t, len(tc.want), established)
			if len(tc.want) == 0 {
				assert.Empty(t, from)
			} else {
				assert.Equal(t, tc.want[:1], from, "each address once")
			}
		})
	}
	s, _ := clientsOfMember().sample(retire.Read{}, probe.Result{}, nil, nil)
	assert.False(t, s.Known, "a read that failed says nothing")
}
