package router

import (
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/lastcall-dev/lastcall/internal/engine"
)

// args are what a process was told by its command line.
type args struct {
	words []string
	// known is whether words are all it was told. A shell may add flags of its own, and
	// a reference to a variable may stand for any.
	known bool
}

func newArgs(argv []string) args {
	known := len(argv) > 0 && !slices.ContainsFunc(argv, func(word string) bool {
		return strings.Contains(word, "$(") || strings.HasPrefix(word, "${")
	})
	if known {
		switch path.Base(argv[0]) {
		case "sh", "bash", "ash", "dash", "zsh", "busybox":
			known = false
		}
	}
	return args{words: argv, known: known}
}

// has reports whether a flag is there, with or without a value.
func (a args) has(names ...string) bool {
	return slices.ContainsFunc(a.words, func(word string) bool {
		name, _, _ := engine.CutFlag(word)
		return name != "" && slices.Contains(names, name)
	})
}

// value is the last value of a flag; empty where there is none.
func (a args) value(name string) string {
	all := a.lists(name)
	if len(all) == 0 || len(all[len(all)-1]) == 0 {
		return ""
	}
	return all[len(all)-1][0]
}

// lists are the values of a flag, one list for each time it is there. A flag without a
// value has an empty one.
func (a args) lists(name string) [][]string {
	var all [][]string
	for i, word := range a.words {
		found, value, inline := engine.CutFlag(word)
		if found != name {
			continue
		}
		var list []string
		if inline {
			list = append(list, value)
		}
		for _, next := range a.words[i+1:] {
			if strings.HasPrefix(next, "-") {
				break
			}
			list = append(list, next)
		}
		all = append(all, list)
	}
	return all
}

// selector is what a label selector asks for: every label with that value.
type selector map[string]string

// selectors are those a flag gives, one for each time it is there: some parsers take
// the last and some put them together, so whoever asks takes the worst. Pairs are words
// of their own, or one word with commas. ok is false where one cannot be read.
func (a args) selectors(flags ...string) (all []selector, ok bool) {
	for _, name := range flags {
		for _, list := range a.lists(name) {
			s := make(selector)
			for _, word := range list {
				for pair := range strings.SplitSeq(word, ",") {
					key, value, is := strings.Cut(strings.TrimSpace(pair), "=")
					if !is || key == "" || strings.ContainsAny(key, "! ") || strings.ContainsAny(value, "= ") {
						return nil, false
					}
					s[key] = value
				}
			}
			if len(s) == 0 {
				return nil, false
			}
			all = append(all, s)
		}
	}
	return all, true
}

func (s selector) matches(labels map[string]string) bool {
	for key, value := range s {
		if have, is := labels[key]; !is || have != value {
			return false
		}
	}
	return true
}

// named are the places of the workers that the command line lists under any of some
// flags. ok is false where one has a host name, which may be any Pod's.
func (a args) named(flags ...string) (places []netip.AddrPort, ok bool) {
	for _, name := range flags {
		for _, list := range a.lists(name) {
			for _, word := range list {
				for one := range strings.SplitSeq(word, ",") {
					if _, err := strconv.ParseUint(one, 10, 16); err == nil || strings.EqualFold(one, "none") {
						continue // a prefill worker's bootstrap port
					}
					at := locate(one)
					if len(at) == 0 {
						return nil, false
					}
					places = append(places, at...)
				}
			}
		}
	}
	return places, true
}
