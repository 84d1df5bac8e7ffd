package probe

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/internal/engine"
)

func reasonOf(t *testing.T, err error) string {
	t.Helper()
	var f *failure
	require.ErrorAs(t, err, &f)
	return f.reason
}

// whole is an answer with an idle body.
var whole = fmt.Sprintf(`{"started": "123", "length": %d}`, len(idleBody)) + "\n" + idleBody + endMark

func TestAnAnswerCutAnywhereIsNoAnswer(t *testing.T) {
	a, err := parse([]byte(whole))
	require.NoError(t, err)
	require.Equal(t, idleBody, string(a.body))
	for n := range len(whole) {
		_, err := parse([]byte(whole[:n]))
		require.Error(t, err, "%d bytes", n)
		require.Equal(t, names.HeldReadIncomplete, reasonOf(t, err))
	}
}

func TestWhatIsNoAnswer(t *testing.T) {
	for name, c := range map[string]struct{ output, reason string }{
		"nothing":                              {"", names.HeldReadIncomplete},
		"an end alone":                         {endMark, names.HeldReadFailed},
		"words before the answer":              {"welcome\n" + whole, names.HeldReadFailed},
		"words behind the answer":              {whole + "bye\n", names.HeldReadIncomplete},
		"less of the body than it says":        {`{"started": "1", "length": 9}` + "\n12345678" + endMark, names.HeldReadIncomplete},
		"more of the body than it says":        {`{"started": "1", "length": 9}` + "\n1234567890" + endMark, names.HeldReadIncomplete},
		"cut in a body that has an end itself": {`{"started": "1", "length": 99}` + "\n" + idleBody + endMark, names.HeldReadIncomplete},
		"a connection that is none":            {`{"started": "1", "length": 0, "connections": [["x", 1]]}` + "\n" + endMark, names.HeldReadFailed},
		"a connection without a port":          {`{"started": "1", "length": 0, "connections": [["10.0.0.1"]]}` + "\n" + endMark, names.HeldReadFailed},
	} {
		_, err := parse([]byte(c.output))
		require.Error(t, err, name)
		assert.Equal(t, c.reason, reasonOf(t, err), name)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte(`{"started": "1", "length": 0, "failed": "Cut", "connections": [["::1", 1]], "gateways": ["10.0.0.1"]}` + "\n" + endMark))
	e, _ := engine.Lookup(engine.VLLM)
	f.Fuzz(func(t *testing.T, output []byte) {
		a, err := parse(output)
		if err != nil {
			return
		}
		if result, err := a.result(e); err == nil {
			require.NotEmpty(t, result.Started)
			require.Equal(t, e.Read(a.body).Verdict, result.Verdict)
		}
	})
}

func TestRequestsAreNeverLessThanTheGaugesSay(t *testing.T) {
	for sum, want := range map[float64]int64{0.1: 1, 1: 1, 1.2: 2, 41: 41, 1e300: math.MaxInt64, math.MaxFloat64: math.MaxInt64} {
		assert.Equal(t, want, requests(sum), "%g", sum)
	}
}
