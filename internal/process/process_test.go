package process

import (
	"context"
	"flag"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestFlagsDecideWhereAManagerServes(t *testing.T) {
	var f Flags
	set := flag.NewFlagSet("", flag.ContinueOnError)
	f.Add(set)
	require.NoError(t, set.Parse([]string{"--health-address=:1", "--log-level=debug"}))
	scheme := runtime.NewScheme()
	options := f.Manager(scheme)
	assert.Equal(t, ":8080", options.Metrics.BindAddress, "the default")
	assert.Equal(t, ":1", options.HealthProbeBindAddress)
	assert.Equal(t, slog.LevelDebug, f.LogLevel)
	assert.Same(t, scheme, options.Scheme)
	require.Error(t, set.Parse([]string{"--log-level=loud"}))
}

// filling is a cache that is filled or will never be.
type filling bool

func (f filling) WaitForCacheSync(ctx context.Context) bool {
	if !f {
		<-ctx.Done()
	}
	return bool(f)
}

func TestAProcessIsReadyOnceItsCacheIsFilled(t *testing.T) {
	assert.Less(t, syncedWithin, time.Second, "a kubelet does not wait longer")
	request := httptest.NewRequest(http.MethodGet, "/readyz", nil)
	assert.NoError(t, Synced(filling(true))(request))
	assert.ErrorIs(t, Synced(filling(false))(request), errNotSynced)
}
