package engine_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastcall-dev/lastcall/internal/engine"
)

func TestHasFlag(t *testing.T) {
	tests := map[string]struct {
		args []string
		env  map[string]string
		want bool
	}{
		"with a value after it":            {args: []string{"--node-rank", "1"}, want: true},
		"with its value in one word":       {args: []string{"--node-rank=1"}, want: true},
		"with an underscore":               {args: []string{"--node_rank=1"}, want: true},
		"a part of it in the dotted form":  {args: []string{"--node-rank.part=1"}, want: true},
		"from a variable":                  {args: []string{"$(RANK)"}, env: map[string]string{"RANK": "--node-rank=1"}, want: true},
		"from a variable nobody knows":     {args: []string{"$(RANK)"}},
		"a longer flag":                    {args: []string{"--node-ranks=1"}},
		"a shorter flag":                   {args: []string{"--node=1"}},
		"a word that is no flag":           {args: []string{"node-rank"}},
		"a value that only talks about it": {args: []string{"--comment=--node-rank"}},
		"no arguments":                     {},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.want, engine.HasFlag(test.args, test.env, "node-rank"))
		})
	}
}
