package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	// fenced is code, in which nothing is a link or a heading.
	fenced = regexp.MustCompile("(?ms)^```.*?^```$")
	// notInAnchors is what GitHub leaves out when it makes an anchor of a heading.
	notInAnchors = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// TestLinksLeadSomewhere follows the links of every page to files and headings of
// this repository. The web is not asked.
func TestLinksLeadSomewhere(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	require.NoError(t, err)
	followed := 0
	for _, page := range append(pages, "../README.md", "../bench/README.md") {
		for _, found := range link.FindAllStringSubmatch(prose(t, page), -1) {
			if strings.Contains(found[1], "://") {
				continue
			}
			followed++
			file, anchor, _ := strings.Cut(found[1], "#")
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), file)
			}
			if _, err := os.Stat(target); !assert.NoError(t, err, "%s: %s", page, found[1]) || anchor == "" {
				continue
			}
			assert.Contains(t, anchors(prose(t, target)), anchor, "%s: %s", page, found[1])
		}
	}
	require.Greater(t, followed, 10)
}

func prose(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	return fenced.ReplaceAllString(string(text), "")
}

func anchors(text string) (all []string) {
	for _, found := range heading.FindAllStringSubmatch(text, -1) {
		anchor := notInAnchors.ReplaceAllString(strings.ToLower(found[1]), "")
		all = append(all, strings.ReplaceAll(anchor, " ", "-"))
	}
	return all
}
