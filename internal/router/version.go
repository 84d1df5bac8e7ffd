package router

import (
	"cmp"
	"strconv"
	"strings"
)

// version is a release.
type version struct{ major, minor, patch int }

func (v version) compare(o version) int {
	return cmp.Or(cmp.Compare(v.major, o.major), cmp.Compare(v.minor, o.minor), cmp.Compare(v.patch, o.patch))
}

// imageVersion is the release that an image is tagged as, v1.2.3 or 1.2.3. A digest
// decides what runs whatever tag is written beside it, and latest, a branch, a release
// candidate or a rebuild may be anything: of all these it is not known.
func imageVersion(image string) (version, bool) {
	_, tag, tagged := strings.Cut(image[strings.LastIndexByte(image, '/')+1:], ":")
	if !tagged || strings.Contains(tag, "@") {
		return version{}, false
	}
	parts := strings.Split(strings.TrimPrefix(tag, "v"), ".")
	if len(parts) != 3 {
		return version{}, false
	}
	var numbers [3]int
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, 16)
		if err != nil {
			return version{}, false
		}
		numbers[i] = int(n)
	}
	return version{numbers[0], numbers[1], numbers[2]}, true
}

// imageName is the last word of an image's repository, such as smg in
// registry.example:5000/mirror/smg:1.9.0.
func imageName(image string) string {
	name := image[strings.LastIndexByte(image, '/')+1:]
	if end := strings.IndexAny(name, ":@"); end >= 0 {
		name = name[:end]
	}
	return strings.ToLower(name)
}
