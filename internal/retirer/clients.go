package retirer

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/probe"
	"github.com/lastcall-dev/lastcall/internal/retire"
	"github.com/lastcall-dev/lastcall/internal/withdraw"
)

// clientsOf is whom to look for in front of one member.
type clientsOf struct {
	namespace string
	uid       types.UID
	own       []netip.Addr // of the member
	node      []netip.Addr // of its node, as far as the API server knows
	members   []netip.Addr // of the other members of its replica
	// onHost is a member whose own addresses are its node's, and so those of clients.
	onHost bool
	// group is the Service by which members find each other; it is no way for clients.
	group string
	peers []v1alpha1.WithdrawalPeer
}

// clients finds on the API server who can reach a member.
type clients struct {
	live  client.Reader
	clock clock.PassiveClock

	mu       sync.Mutex
	listings map[string]*listing
}

// listing is which Services have which endpoints in one namespace at a moment.
// Members of a namespace share it, so that many that leave at a time ask once a
// second.
type listing struct {
	once   sync.Once
	sentAt time.Time
	// byUID are those whose endpoints name their Pod; some are written by hand, with
	// nothing but an address.
	byUID  map[types.UID][]string
	byAddr map[netip.Addr][]string
	err    error
}

const (
	listingAge  = time.Second
	listTimeout = 5 * time.Second
	// pageSize is how many objects are read at a time: there are namespaces with
	// thousands.
	pageSize = 500
)

// sightings are what the API server says of a member's clients.
type sightings struct {
	known    bool
	sentAt   time.Time
	services []string
	peers    []netip.Prefix
}

// look reads which Services have the member, and the addresses of its declared
// peers.
func (c *clients) look(ctx context.Context, of *clientsOf) (s sightings) {
	ctx, cancel := context.WithTimeout(ctx, 2*listTimeout)
	defer cancel()
	l := c.list(ctx, of.namespace)
	if l.err != nil {
		return s
	}
	peers, err := c.peers(ctx, of)
	if err != nil {
		return s
	}
	s.known, s.sentAt, s.peers = true, l.sentAt, peers
	s.services = slices.Clone(l.byUID[of.uid])
	for _, addr := range of.own {
		s.services = append(s.services, l.byAddr[addr]...)
	}
	slices.Sort(s.services)
	s.services = slices.DeleteFunc(slices.Compact(s.services), func(service string) bool { return service == of.group })
	return s
}

func (c *clients) list(ctx context.Context, namespace string) *listing {
	c.mu.Lock()
	maps.DeleteFunc(c.listings, func(_ string, l *listing) bool { return c.clock.Since(l.sentAt) > listingAge })
	l := c.listings[namespace]
	if l == nil {
		l = &listing{sentAt: c.clock.Now(), byUID: map[types.UID][]string{}, byAddr: map[netip.Addr][]string{}}
		c.listings[namespace] = l
	}
	c.mu.Unlock()
	l.once.Do(func() {
		// Its own bound: whoever asks first may be cancelled, and others wait for it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), listTimeout)
		defer cancel()
		l.err = pages(ctx, c.live, func(page *discoveryv1.EndpointSliceList) {
			for i := range page.Items {
				l.add(&page.Items[i])
			}
		}, client.InNamespace(namespace))
	})
	return l
}

func (l *listing) add(slice *discoveryv1.EndpointSlice) {
	service := cmp.Or(slice.Labels[discoveryv1.LabelServiceName], slice.Name)
	for _, endpoint := range slice.Endpoints {
		if endpoint.TargetRef != nil && endpoint.TargetRef.UID != "" {
			l.byUID[endpoint.TargetRef.UID] = append(l.byUID[endpoint.TargetRef.UID], service)
			continue
		}
		for _, addr := range addresses(endpoint.Addresses, func(text string) string { return text }) {
			l.byAddr[addr] = append(l.byAddr[addr], service)
		}
	}
}

// pages lists objects a page at a time.
func pages[L any, P interface {
	*L
	client.ObjectList
}](ctx context.Context, live client.Reader, each func(*L), options ...client.ListOption) error {
	for next := ""; ; {
		page := P(new(L))
		if err := live.List(ctx, page, append(slices.Clone(options), client.Limit(pageSize), client.Continue(next))...); err != nil {
			return err
		}
		each(page)
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}

// peers are the addresses from which connections carry no requests: the other
// members, and what the ModelDeployment declares.
func (c *clients) peers(ctx context.Context, of *clientsOf) (all []netip.Prefix, err error) {
	single := func(addr netip.Addr) { all = append(all, netip.PrefixFrom(addr, addr.BitLen())) }
	for _, addr := range of.members {
		single(addr)
	}
	for _, peer := range of.peers {
		if prefix, err := netip.ParsePrefix(peer.CIDR); err == nil {
			all = append(all, prefix)
		}
		if peer.PodSelector == nil {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(peer.PodSelector)
		if err != nil {
			continue // it selects nothing
		}
		err = pages(ctx, c.live, func(page *corev1.PodList) {
			for i := range page.Items {
				for _, addr := range addressesOf(&page.Items[i]) {
					single(addr)
				}
			}
		}, client.InNamespace(cmp.Or(peer.Namespace, of.namespace)), client.MatchingLabelsSelector{Selector: selector})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// addressesOf are those that are the Pod's alone: none where they are its node's, or
// may be somebody else's.
func addressesOf(pod *corev1.Pod) []netip.Addr {
	if pod.Spec.HostNetwork || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return nil // the addresses of one that has ended may be another Pod's by now
	}
	return addresses(pod.Status.PodIPs, func(ip corev1.PodIP) string { return ip.IP })
}

// Other addresses of 127.0.0.0/8 are sidecars' that hand on what clients send.
var (
	loopback4 = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	loopback6 = netip.IPv6Loopback()
)

// connections are the far ends of some.
type connections map[netip.AddrPort]bool

// sample counts a member's clients among its connections. Those of its node are
// clients only where they last from one look to the next: the kubelet's probes do
// not, a client that reaches the member through its node does.
func (of *clientsOf) sample(read retire.Read, result probe.Result, peers []netip.Prefix, before connections) (withdraw.Sample, connections) {
	s := withdraw.Sample{SentAt: result.SentAt, ReceivedAt: result.ReceivedAt, ContainerID: read.ContainerID, Known: result.ConnectionsKnown}
	brief := connections{}
	for _, end := range result.Connections {
		addr := end.Addr().Unmap()
		end = netip.AddrPortFrom(addr, end.Port())
		switch {
		case addr == loopback4 || addr == loopback6 || !of.onHost && slices.Contains(of.own, addr):
			continue
		case slices.ContainsFunc(peers, func(p netip.Prefix) bool { return p.Contains(addr) }):
			continue
		case slices.Contains(of.node, addr) || of.onHost && slices.Contains(of.own, addr) || slices.Contains(result.Gateway, addr):
			brief[end] = true
			if !before[end] {
				continue
			}
		}
		s.Established++
		if text := addr.String(); !slices.Contains(s.From, text) {
			s.From = append(s.From, text)
		}
	}
	slices.Sort(s.From)
	return s, brief
}
