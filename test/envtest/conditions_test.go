package envtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/lastcall-dev/lastcall/test/envtest/chart"
)

// conditionReasons are the constants of api/names that are reasons of a condition.
var conditionReasons = sync.OnceValue(func() map[string]bool {
	path := filepath.Join(chart.Root(), "api", "names", "conditions.go")
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		panic(err)
	}
	reasons := map[string]bool{}
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Reason") {
			return true
		}
		value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			panic(err)
		}
		reasons[value] = true
		return true
	})
	return reasons
})
