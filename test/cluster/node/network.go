package node

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
)

// network is the address plan of the cluster in one slot, 1 to slots. Slot 0 means that none was chosen yet.
type network struct{ slot int }

const slots = 16

// at is an address in the slot's /19, counted from its first.
func (n network) at(third, fourth int) netip.Addr {
	third += (n.slot - 1) * 32
	return netip.AddrFrom4([4]byte{198, byte(18 + third/256), byte(third % 256), byte(fourth)})
}

func (n network) all() netip.Prefix      { return netip.PrefixFrom(n.at(0, 0), 19) }
func (n network) node() netip.Addr       { return n.at(0, 1) }
func (n network) host() netip.Addr       { return n.at(0, 2) }
func (n network) pods() netip.Prefix     { return netip.PrefixFrom(n.at(4, 0), 22) }
func (n network) services() netip.Prefix { return netip.PrefixFrom(n.at(16, 0), 20) }

// kubernetes is the address of the Service of that name: the first of the range, by convention.
func (n network) kubernetes() netip.Addr { return n.at(16, 1) }

// link is the name of the machine's end of the veth pair.
func (n network) link() string { return "lastcall" + strconv.Itoa(n.slot) }

// inUse tells whether the machine already has an address in the slot's range.
func (n network) inUse() (bool, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return false, fmt.Errorf("listing network addresses: %w", err)
	}
	for _, address := range addresses {
		prefix, err := netip.ParsePrefix(address.String())
		if err == nil && n.all().Overlaps(prefix.Masked()) {
			return true, nil
		}
	}
	return false, nil
}

// connect joins the holder's network namespace to the machine.
func (n network) connect(ctx context.Context, holder int) error {
	link, node, pid := n.link(), n.node().String(), strconv.Itoa(holder)
	inside := []string{"nsenter", "--target=" + pid, "--net", "--"}
	for _, command := range [][]string{
		{"ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", pid},
		{"ip", "address", "add", n.host().String() + "/24", "dev", link},
		{"ip", "link", "set", link, "up"},
		append(inside, "ip", "address", "add", node+"/24", "dev", "eth0"),
		append(inside, "ip", "link", "set", "eth0", "up"),
		append(inside, "ip", "route", "add", "default", "via", n.host().String()),
		{"ip", "route", "add", n.pods().String(), "via", node},
		{"ip", "route", "add", n.services().String(), "via", node},
	} {
		if err := run(ctx, command...); err != nil {
			return fmt.Errorf("connecting the cluster's network: %w", err)
		}
	}
	return nil
}

// disconnect removes the veth pair, and with it the machine's routes. One that is not there is no error.
func (n network) disconnect(ctx context.Context) error {
	if n.slot == 0 || !n.connected() {
		return nil
	}
	if err := run(ctx, "ip", "link", "delete", n.link()); err != nil && n.connected() {
		return err // and not because the link has just gone with the namespace
	}
	return nil
}

func (n network) connected() bool {
	_, err := net.InterfaceByName(n.link())
	return err == nil
}
