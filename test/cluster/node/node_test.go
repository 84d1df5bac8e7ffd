package node

import (
	"io"
	"net/netip"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNetworksOfTwoClustersDoNotMeet(t *testing.T) {
	test := netip.MustParsePrefix("198.18.0.0/15")
	for slot := 1; slot <= slots; slot++ {
		n := network{slot}
		assert.True(t, test.Contains(n.node()) && test.Contains(n.services().Addr()), "slot %d leaves the test range", slot)
		assert.Equal(t, n.all(), n.all().Masked(), "slot %d", slot)
		assert.True(t, n.services().Contains(n.kubernetes()), "slot %d", slot)
		parts := []netip.Prefix{netip.PrefixFrom(n.node(), 24).Masked(), n.pods(), n.services()}
		for i, part := range parts {
			assert.True(t, part == part.Masked() && n.all().Overlaps(part) && part.Bits() > n.all().Bits(), "%s in slot %d", part, slot)
			assert.False(t, part.Overlaps(parts[(i+1)%len(parts)]), "%s in slot %d", part, slot)
		}
		assert.False(t, slot > 1 && n.all().Overlaps(network{slot - 1}.all()), "slots %d and %d", slot, slot-1)
		assert.LessOrEqual(t, len(n.link()), 15, "the kernel's limit for an interface name")
	}
}

func TestAProcessIsKnownByItsStartTimeToo(t *testing.T) {
	started, err := startTime(os.Getpid())
	require.NoError(t, err)
	assert.True(t, process{PID: os.Getpid(), StartTime: started}.alive())
	assert.False(t, process{PID: os.Getpid(), StartTime: started + "0"}.alive(), "a process id that is used again")
	assert.False(t, process{PID: 1 << 30, StartTime: started}.alive())
}

func TestAKubeconfigTellsItsCluster(t *testing.T) {
	name, ok := NameOf(KubeconfigPath("mine"))
	assert.True(t, ok)
	assert.Equal(t, "mine", name)
	for _, path := range []string{"", "/home/me/.kube/config", "kubeconfig", KubeconfigPath("mine") + ":/home/me/.kube/config"} {
		_, ok := NameOf(path)
		assert.False(t, ok, path)
	}
}

func TestNamesThatAreNoFolderAreRefused(t *testing.T) {
	for _, name := range []string{"", "..", "a/b", "A", "-a", "a-", "a_b", "1234567890123456789012345678901"} {
		_, err := open(name)
		assert.ErrorContains(t, err, "want 1 to 30 lower case letters, digits and dashes", name)
	}
}

func TestUnavailableErrorTellsTheWayOut(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Cleanup(func(old string) func() { return func() { sbin = old } }(sbin))
	sbin = ""
	err := Requirements()
	var unavailable *UnavailableError
	require.ErrorAs(t, err, &unavailable)
	assert.ErrorContains(t, err, "no cluster can run here: ")
	assert.ErrorContains(t, err, "apt-get install -y ")
	_, err = Up(t.Context(), "never", io.Discard)
	require.ErrorAs(t, err, &unavailable)
}
