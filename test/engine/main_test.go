package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lastcall-dev/lastcall/test/engine/standin"
)

// TestMain lets the test binary play the engine, under the name it is called by.
func TestMain(m *testing.M) {
	if os.Getenv("BE_THE_ENGINE") != "" {
		main()
	}
	os.Exit(m.Run())
}

func TestTheProcessServesAndEndsAsItsEngineDoes(t *testing.T) {
	for line, c := range map[string]struct {
		whole bool // a stream in flight at SIGTERM completes
	}{
		"vllm serve Qwen/Q --port 0":                                         {whole: false},
		"vllm serve Qwen/Q --port 0 --shutdown-timeout 30":                   {whole: true},
		"vllm.entrypoints.openai.api_server --port 0 --shutdown-timeout=30":  {whole: true},
		"sglang.launch_server --model-path Qwen/Q --port 0 --enable-metrics": {whole: true},
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			args := append(strings.Fields(line), "--control-port", "-1")
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Args = args
			cmd.Env = append(os.Environ(), "BE_THE_ENGINE=1")
			cmd.Stderr = os.Stderr
			stdout, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			journal := bufio.NewScanner(stdout)
			listening := next(t, journal)
			require.Equal(t, standin.Listening, listening.Event)

			stream := strings.NewReader(`{"prompt": "x", "stream": true, "max_tokens": 30, "tokens_per_second": 20}`)
			answer, err := http.Post(listening.Address+"/v1/completions", "application/json", stream)
			require.NoError(t, err)
			defer answer.Body.Close() //nolint:errcheck // read to its end
			body := bufio.NewReader(answer.Body)
			_, err = body.ReadString('\n')
			require.NoError(t, err)
			require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
			rest, err := io.ReadAll(body)
			assert.Equal(t, c.whole, bytes.HasSuffix(rest, []byte("data: [DONE]\n\n")))
			assert.Equal(t, c.whole, err == nil, "%v", err)

			require.Equal(t, standin.RequestStarted, next(t, journal).Event)
			require.Equal(t, standin.Terminated, next(t, journal).Event)
			ended := next(t, journal)
			require.Equal(t, standin.RequestEnded, ended.Event)
			assert.Equal(t, !c.whole, ended.Aborted)
			require.Equal(t, standin.Exiting, next(t, journal).Event)
			require.NoError(t, cmd.Wait(), "exit code 0")
		})
	}
}

func next(t *testing.T, journal *bufio.Scanner) standin.Event {
	t.Helper()
	require.True(t, journal.Scan(), "another line: %v", journal.Err())
	var e standin.Event
	require.NoError(t, json.Unmarshal(journal.Bytes(), &e), journal.Text())
	return e
}

func TestBadFlagsEndWithTwo(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Args = []string{"vllm", "serve", "m", "--port", "x"}
	cmd.Env = append(os.Environ(), "BE_THE_ENGINE=1")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	assert.Equal(t, 2, cmd.ProcessState.ExitCode())
	assert.Equal(t, "engine: --port: \"x\" is not a number from 0 to 65535\n", string(out))
}

func TestAPortInUseIsSaidSo(t *testing.T) {
	busy := standin.Start(t, standin.Options{Kind: standin.VLLM})
	port := busy.URL()[strings.LastIndex(busy.URL(), ":")+1:]
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Args = []string{"vllm", "serve", "m", "--host", "127.0.0.1", "--control-port", "-1", "--port", port}
	cmd.Env = append(os.Environ(), "BE_THE_ENGINE=1")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	assert.Equal(t, 1, cmd.ProcessState.ExitCode())
	assert.Contains(t, string(out), fmt.Sprintf("opening the engine's port: listen tcp 127.0.0.1:%s: bind: address already in use", port))
}

func TestTheExampleNamesInTheImage(t *testing.T) {
	// The links of the image: whatever folder it is in, the name decides.
	dir := t.TempDir()
	for _, name := range []string{"vllm", "sglang"} {
		require.NoError(t, os.Symlink(os.Args[0], filepath.Join(dir, name)))
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, name))
		cmd.Env = append(os.Environ(), "BE_THE_ENGINE=1")
		out, err := cmd.CombinedOutput()
		require.Error(t, err)
		assert.Contains(t, string(out), name+" : only \""+name+" serve")
	}
}
