package manifest

import "strings"

// nearest returns the name among these that was probably meant by one that is not
// among them: the one of the fewest typing errors, at most one for three letters,
// else one that begins as it does. It is empty where none is near.
func nearest(name string, names []string) string {
	best, fewest := "", max(1, len(name)/3)+1
	for _, candidate := range names {
		if errors := distance(strings.ToLower(name), strings.ToLower(candidate)); errors < fewest {
			best, fewest = candidate, errors
		}
	}
	if best != "" {
		return best
	}
	const stem = 5 // letters; shorter beginnings say too little
	for _, candidate := range names {
		if len(name) >= stem && strings.HasPrefix(candidate, name) || len(candidate) >= stem && strings.HasPrefix(name, candidate) {
			return candidate
		}
	}
	return ""
}

// distance counts the typing errors between two words: a letter too many, missing
// or wrong, or two that changed places.
func distance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			wrong := 1
			if a[i] == b[j] {
				wrong = 0
			}
			row[j+1] = min(row[j]+1, last[j+1]+1, last[j]+wrong)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
