package engine

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// flags are the words after the engine's start form. Both engines take --name
// value, --name=value and _ for - in names; the last one wins.
type flags struct {
	words []string
	// partial: flags may be missing, because a script, a configuration file or an
	// unknown variable holds some.
	partial bool
}

func newFlags(words []string) flags {
	f := flags{words: words}
	f.partial = f.has("config")
	// A variable that stands alone may hold any flag, one after a flag only its value.
	for i, word := range words {
		alone := i == 0 || !strings.HasPrefix(words[i-1], "-") || strings.Contains(words[i-1], "=")
		if strings.HasPrefix(word, "$") && alone && i > 0 {
			f.partial = true
		}
	}
	return f
}

// value is the last value of --name; false where the flag is not there.
func (f flags) value(name string) (string, bool) {
	for i := len(f.words) - 1; i >= 0; i-- {
		flag, value, inline := CutFlag(f.words[i])
		switch {
		case flag != name:
		case inline:
			return value, true
		case i+1 < len(f.words):
			return f.words[i+1], true
		default:
			return "", true
		}
	}
	return "", false
}

func (f flags) has(name string) bool {
	_, found := f.value(name)
	return found
}

// on reports whether the switch --name is set and no later --no-name unsets it.
func (f flags) on(name string) bool {
	for _, word := range slices.Backward(f.words) {
		switch flag, _, _ := CutFlag(word); flag {
		case name:
			return true
		case "no-" + name:
			return false
		}
	}
	return false
}

// CutFlag takes a word of a command line apart: the flag's name without dashes before
// it and with dashes in it, empty where word is no flag, and the value where it is in the
// same word.
func CutFlag(word string) (name, value string, inline bool) {
	long, isFlag := strings.CutPrefix(word, "--")
	if !isFlag {
		return "", "", false
	}
	name, value, inline = strings.Cut(long, "=")
	return strings.ReplaceAll(name, "_", "-"), value, inline
}

// parsePort is a port number, 1 to 65535; 0 where text is none.
func parsePort(text string) int32 {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0
	}
	return int32(n)
}

// kvTransfer is the part of vLLM's --kv-transfer-config that says which side of
// a transfer the engine is on.
type kvTransfer struct {
	Connector string `json:"kv_connector"`
	Role      string `json:"kv_role"`
	Extra     struct {
		// Connectors are those of a MultiConnector.
		Connectors []kvTransfer `json:"connectors"`
	} `json:"kv_connector_extra_config"`
}

// peerConnectors carry what was prefilled straight from one engine to another. The
// others put it into a store, or into slower memory of the same engine. Source:
// vllm/distributed/kv_transfer/kv_connector/factory.py.
var peerConnectors = []string{"NixlConnector", "NixlPullConnector", "NixlPushConnector", "P2pNcclConnector", "MooncakeConnector", "MoRIIOConnector"}

// splits reports whether the engine may prefill or decode for another one.
func (k kvTransfer) splits() bool {
	switch k.Role {
	case "kv_producer", "kv_consumer":
		return true
	case "kv_both":
		return slices.Contains(peerConnectors, k.Connector) || slices.ContainsFunc(k.Extra.Connectors, func(nested kvTransfer) bool {
			return nested.splits() || slices.Contains(peerConnectors, nested.Connector)
		})
	}
	return false
}

// kvTransfer reads --kv-transfer-config, as JSON or in the dotted form
// --kv-transfer-config.kv_role; zero where there is none.
func (f flags) kvTransfer() kvTransfer {
	var config kvTransfer
	if text, ok := f.value("kv-transfer-config"); ok && json.Unmarshal([]byte(text), &config) != nil {
		return kvTransfer{}
	}
	if connector, ok := f.value("kv-transfer-config.kv-connector"); ok {
		config.Connector = connector
	}
	if role, ok := f.value("kv-transfer-config.kv-role"); ok {
		config.Role = role
	}
	return config
}

// splitsWork reports whether requests may be at another engine while this one's
// gauges say idle.
func (f flags) splitsWork(engine Name) bool {
	switch engine {
	case SGLang:
		return f.role(engine) != RoleServer
	case VLLM:
		return f.kvTransfer().splits() || f.on("data-parallel-hybrid-lb") || f.on("data-parallel-external-lb") || f.has("data-parallel-rank") ||
			slices.Contains(f.words, "-dph") || slices.Contains(f.words, "-dpe")
	}
	return false
}

// role is what the flags say about disaggregation.
func (f flags) role(engine Name) Role {
	switch engine {
	case SGLang:
		switch mode, _ := f.value("disaggregation-mode"); mode {
		case "prefill":
			return RolePrefill
		case "decode":
			return RoleDecode
		}
	case VLLM:
		switch f.kvTransfer().Role {
		case "kv_producer":
			return RolePrefill
		case "kv_consumer":
			return RoleDecode
		}
	}
	return RoleServer
}
