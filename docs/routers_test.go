package docs_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/validate"
)

var (
	yamlBlock = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")
	flagBlock = regexp.MustCompile("(?ms)^```text\n(.*?)^```$")
)

// TestTheRoutersOfThePageAreAccepted takes what a reader would copy into the spec.
func TestTheRoutersOfThePageAreAccepted(t *testing.T) {
	text, err := os.ReadFile("routers.md")
	require.NoError(t, err)
	seen := map[v1alpha1.RouterName]int{}
	for _, block := range yamlBlock.FindAllStringSubmatch(string(text), -1) {
		if !strings.HasPrefix(block[1], "spec:") {
			continue
		}
		md := example(t)
		md.Spec.Withdrawal = v1alpha1.Withdrawal{}
		require.NoError(t, yaml.UnmarshalStrict([]byte(block[1]), md))
		errs, warnings := validate.ModelDeployment(md)
		require.Empty(t, errs, block[1])
		require.Empty(t, warnings, block[1])
		seen[md.Spec.Router.Name]++
	}
	require.Equal(t, map[v1alpha1.RouterName]int{v1alpha1.LLMDRouter: 1, v1alpha1.VLLMRouter: 2, v1alpha1.SGLangGateway: 1}, seen)
}

// Without the label a router goes on choosing what is withdrawn.
func TestEverySelectorOfThePageAsksForTheLabel(t *testing.T) {
	text, err := os.ReadFile("routers.md")
	require.NoError(t, err)
	blocks := flagBlock.FindAllStringSubmatch(string(text), -1)
	require.Len(t, blocks, 3)
	for _, block := range blocks {
		require.Contains(t, block[1], names.LabelServing+"="+names.Serving)
	}
	require.Contains(t, string(text), names.LabelServing+`: "`+names.Serving+`"}`)
}
