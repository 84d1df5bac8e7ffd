// Package internal_test keeps the direction of imports: cmd -> host -> pure ->
// api. The linter sees direct imports; this test sees what they pull in.
package internal_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/lastcall-dev/lastcall/"

// allowed lists, for each package below the hosts, the modules it may reach.
// The standard library is always allowed, with the exceptions of forbidden.
var allowed = map[string][]string{
	"api/names":         {},
	"api/v1alpha1":      {"api/names", "k8s.io/api", "k8s.io/apimachinery"},
	"internal/engine":   {"api/names", "github.com/prometheus"},
	"internal/drain":    {"api/names", "internal/engine"},
	"internal/render":   {"api", "internal/engine", "internal/drain", "k8s.io/api", "k8s.io/apimachinery"},
	"internal/validate": {"api", "internal/engine", "internal/drain", "internal/render", "k8s.io/api", "k8s.io/apimachinery"},
	"internal/mutate":   {"api", "internal/engine", "internal/drain", "internal/validate", "k8s.io/api", "k8s.io/apimachinery"},
	"internal/startup":  {"k8s.io/api"},
	"internal/withdraw": {"api/names", "k8s.io/apimachinery/pkg/types"},
	"internal/retire":   {"api", "internal/withdraw", "k8s.io/api", "k8s.io/apimachinery"},
	"internal/manifest": {"api", "internal/engine", "internal/drain", "internal/validate", "internal/mutate", "k8s.io/api", "k8s.io/apimachinery", "go.yaml.in/yaml"},
}

// forbidden are packages of the standard library that a pure package has no use
// for: a clock is a parameter, and there is nothing to wait for, call or log.
var forbidden = []string{"context", "log", "log/slog", "net/http", "os", "os/exec", "sync"}

func TestPurePackagesReachOnlyWhatTheyMay(t *testing.T) {
	for pkg, may := range allowed {
		t.Run(pkg, func(t *testing.T) {
			for imported := range strings.FieldsSeq(list(t, `{{join .Imports " "}}`, pkg)) {
				require.NotContains(t, forbidden, imported, "%s imports %s", pkg, imported)
				own, isOwn := strings.CutPrefix(imported, module)
				if !isOwn && standard(imported) {
					continue
				}
				name := imported
				if isOwn {
					name = own
				}
				require.True(t, slices.ContainsFunc(may, func(m string) bool {
					return name == m || strings.HasPrefix(name, m+"/")
				}), "%s imports %s; it may import %v", pkg, imported, may)
			}
		})
	}
}

func TestArrowsPointDown(t *testing.T) {
	rank := func(pkg string) int {
		switch top, rest, _ := strings.Cut(pkg, "/"); {
		case top == "api":
			return 0
		case top == "internal" && allowed[pkg] != nil:
			return 1
		case top == "internal" && !strings.Contains(rest, "/"):
			return 2
		case top == "cmd":
			return 3
		default: // test, bench, hack: they may reach everything, nothing reaches them
			return 4
		}
	}
	lines := strings.Split(list(t, `{{.ImportPath}} {{join .Deps " "}}`, "..."), "\n")
	require.Greater(t, len(lines), 8, "go list found too little")
	for _, line := range lines {
		path, deps, _ := strings.Cut(line, " ")
		pkg := strings.TrimPrefix(path, module)
		for dep := range strings.FieldsSeq(deps) {
			if own, ok := strings.CutPrefix(dep, module); ok {
				require.LessOrEqual(t, rank(own), rank(pkg), "%s reaches up to %s", pkg, own)
			}
		}
	}
}

func list(t *testing.T, format, pkg string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-f", format, "./"+pkg)
	cmd.Dir = ".."
	out, err := cmd.Output()
	require.NoError(t, err, "go list %s: %s", pkg, out)
	return strings.TrimSpace(string(out))
}

func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}
