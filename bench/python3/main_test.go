package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheAnswerEndsAsTheProgramSays(t *testing.T) {
	var said strings.Builder
	require.NoError(t, answer(&said, "LIMIT = 2\nMARK = \"\\nthe end\\n\"\nimport json\n", []byte("up 1\n")))
	assert.Equal(t, "{\"connections\": [], \"gateways\": [], \"started\": \"1\", \"length\": 5}\nup 1\n\nthe end\n", said.String())
}

func TestAnotherProgramIsNotAnswered(t *testing.T) {
	var said strings.Builder
	require.Error(t, answer(&said, "print(1)\n", nil))
	require.ErrorContains(t, answer(&said, "MARK = 1\n", nil), "reading the end of an answer")
	assert.Empty(t, said.String())
}
