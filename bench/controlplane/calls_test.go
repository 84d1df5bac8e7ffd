package controlplane

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Lines of an audit log at level Metadata, without what is not read.
const (
	podCreated = `{"kind":"Event","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/a/pods","verb":"create","user":{"username":"one"},"objectRef":{"resource":"pods","namespace":"a","name":"p","apiVersion":"v1"},"responseStatus":{"code":201},"requestReceivedTimestamp":"2026-11-30T02:44:59.100000Z","stageTimestamp":"2026-11-30T02:44:59.250000Z"}` + "\n"
	statusSet  = `{"verb":"patch","user":{"username":"one"},"objectRef":{"resource":"pods","namespace":"a","subresource":"status"},"responseStatus":{"code":409},"stageTimestamp":"2026-11-30T02:45:00.000000Z"}` + "\n"
	discovery  = `{"verb":"get","requestURI":"/api","user":{"username":"two"},"stageTimestamp":"2026-11-30T02:45:01.000000Z"}` + "\n"
)

func TestALogIsReadAsItGrows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	log, err := os.Create(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, log.Close()) })
	calls, err := openCalls(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, calls.file.Close()) })
	for _, part := range []string{podCreated + statusSet[:30], statusSet[30:] + discovery} {
		_, err := log.WriteString(part)
		require.NoError(t, err)
		require.NoError(t, calls.Read())
	}

	at := func(second, micros int) time.Time {
		return time.Date(2026, 11, 30, 2, 44, second, micros*1000, time.UTC)
	}
	created := Call{User: "one", Verb: "create", Resource: "pods", Namespace: "a", Name: "p", Code: 201, Answered: at(59, 250_000)}
	set := Call{User: "one", Verb: "patch", Resource: "pods/status", Namespace: "a", Code: 409, Answered: at(60, 0)}
	asked := Call{User: "two", Verb: "get", Resource: "/api", Answered: at(61, 0)}
	assert.Equal(t, []Call{created, set}, calls.Between("one", at(0, 0), at(120, 0)))
	assert.Equal(t, []Call{asked}, calls.Between("two", at(0, 0), at(120, 0)))
	assert.Equal(t, []Call{created}, calls.Between("one", at(59, 250_000), at(60, 0)), "from the begin on, and before the end")
}

func TestALineThatIsNoEventIsAnError(t *testing.T) {
	_, _, err := parseCalls([]byte(podCreated + "what?\n"))
	require.ErrorContains(t, err, "reading the audit log")
}

func TestStandingCalls(t *testing.T) {
	for _, c := range []struct {
		call Call
		want bool
	}{
		{Call{Verb: "watch", Resource: "pods"}, true},
		{Call{Verb: "update", Resource: "leases"}, true},
		{Call{Verb: "list", Resource: "pods"}, false},
		{Call{Verb: "update", Resource: "pods/status"}, false},
	} {
		assert.Equal(t, c.want, c.call.Standing(), c.call)
	}
}
