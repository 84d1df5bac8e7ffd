package engine

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPortFlag(t *testing.T) {
	tests := map[string]struct {
		args []string
		env  map[string]string
		want int32
	}{
		"none":                       {args: []string{"--host", "0.0.0.0"}},
		"a word of its own":          {args: []string{"--port", "8001"}, want: 8001},
		"the last one":               {args: []string{"--port", "8001", "--port=8002"}, want: 8002},
		"a variable that is known":   {args: []string{"--port=$(PORT)"}, env: map[string]string{"PORT": "9000"}, want: 9000},
		"a variable that is not":     {args: []string{"--port=$(PORT)"}},
		"no number":                  {args: []string{"--port", "http"}},
		"a flag that starts like it": {args: []string{"--port-range=1"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			port, known := PortFlag(test.args, test.env)
			require.Equal(t, test.want, port)
			require.Equal(t, test.want != 0, known)
		})
	}
}
