package withdraw

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

// What is remembered proves what all that was said would prove, at any time, whenever
// the replica was marked, for as long as not too much that is new was said.
func TestWhatIsRememberedProvesTheSame(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	proven, shorter := 0, 0
	for range 500 {
		all, few := router("r"), router("r")
		membership, open, chosen, marked := Selectable, int64(random.IntN(3)), float64(random.IntN(3)), 0.0
		holding := random.IntN(2) == 0
		for n := range 60 {
			when := float64(3 * n)
			switch random.IntN(25) {
			case 0:
				membership = []Membership{Selectable, Unselectable, Absent}[random.IntN(3)]
			case 1:
				if open--; membership == Selectable || open < 0 { // nothing new is bound to what cannot be chosen
					open = int64(random.IntN(3) * map[bool]int{true: 1}[membership == Selectable])
				}
			case 2:
				if membership == Selectable {
					chosen++
				}
			case 3:
				if random.IntN(4) == 0 {
					marked = when + 1
				}
			}
			s := seen(when, membership, picks(chosen), count(open))
			if random.IntN(30) == 0 {
				s = Sighting{SentAt: at(when), ReceivedAt: at(when), Run: "1"}
			}
			if holding {
				holds(&s)
				survives(&s.InFlight)
			}
			all.says("r", s)
			few.Sightings[types.UID("r")] = Remember(few.Sightings[types.UID("r")], s)
			all.Fleet.ListedAt, few.Fleet.ListedAt = at(when), at(when)
			a, _ := all.Prove(at(marked), at(when))
			b, _ := few.Prove(at(marked), at(when))
			require.Equal(t, a.Proven, b.Proven, "marked at %v, now %v", marked, when)
			if a.Proven {
				proven++
			}
		}
		if len(few.Sightings["r"]) < len(all.Sightings["r"]) {
			shorter++
		}
	}
	require.Greater(t, proven, 300)
	require.Greater(t, shorter, 50)
}

func TestMemoryOfAProcessIsBounded(t *testing.T) {
	var same, new []Sighting
	for n := range 1000 {
		s := seen(0, Absent, picks(1))
		s.SentAt = s.SentAt.Add(time.Duration(n) * 3 * time.Second)
		same = Remember(same, s)
		s.Dispatches.Value = float64(n)
		new = Remember(new, s)
	}
	require.Len(t, same, entire+1, "the first, and what was said of late")
	require.Equal(t, at(0), same[0].SentAt)
	require.Len(t, new, kept)
}
