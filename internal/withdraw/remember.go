package withdraw

import (
	"slices"
	"time"
)

const (
	// kept is how many sightings of a process are remembered of a replica at most.
	kept = 64
	// entire is how many of the last ones are all remembered: longer than any Window,
	// where a process is asked every 3 s.
	entire = 16
)

// Remember adds a sighting to those of a process, in memory of its own. Of some in a row
// that say the same, all that a proof needs are the first, the last and what was said
// of late: so what was said is remembered for as long as nothing new is said, however
// long a replica drains.
func Remember(said []Sighting, s Sighting) []Sighting {
	all := append(slices.Clone(said), s)
	if i := len(all) - entire - 1; i > 0 && alike(&all[i-1], &all[i]) && alike(&all[i], &all[i+1]) {
		all = slices.Delete(all, i, i+1)
	}
	return all[max(0, len(all)-kept):]
}

// alike reports whether two sightings say the same, at whatever time.
func alike(a, b *Sighting) bool {
	x, y := *a, *b
	x.SentAt, x.ReceivedAt = time.Time{}, time.Time{}
	y.SentAt, y.ReceivedAt = time.Time{}, time.Time{}
	return x == y
}
