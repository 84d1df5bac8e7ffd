package router

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

func addrs(all ...string) (list []netip.Addr) {
	for _, one := range all {
		list = append(list, netip.MustParseAddr(one))
	}
	return list
}

func TestOf(t *testing.T) {
	for _, name := range []v1alpha1.RouterName{v1alpha1.LLMDRouter, v1alpha1.VLLMRouter, v1alpha1.SGLangGateway} {
		family, ok := Of(name)
		assert.True(t, ok)
		assert.NotNil(t, family)
	}
	_, ok := Of("nginx")
	assert.False(t, ok)
}

func TestLocate(t *testing.T) {
	for text, want := range map[string][]string{
		"http://10.0.0.1:8000":            {"10.0.0.1:8000"},
		"10.0.0.1:8000":                   {"10.0.0.1:8000"},
		"grpc://10.0.0.1:8000":            {"10.0.0.1:8000"},
		"http://10.0.0.1:8000/v1?a#b":     {"10.0.0.1:8000"},
		"http://10.0.0.1:8000@12":         {"10.0.0.1:8000"},
		"http://10.0.0.1":                 {"10.0.0.1:80"},
		"https://10.0.0.1":                {"10.0.0.1:443"},
		"grpc://10.0.0.1":                 {"10.0.0.1:0"},
		"http://[fd00::1]:8000":           {"[fd00::1]:8000"},
		"http://[fd00::1]:8000@1":         {"[fd00::1]:8000"},
		"http://[fd00::1]":                {"[fd00::1]:80"},
		"http://fd00::1:8000":             {"[fd00::1]:8000", "[fd00::1:8000]:80"},
		"http://[::ffff:10.0.0.1]:8000":   {"10.0.0.1:8000"},
		"http://[10.0.0.1]:8000":          nil,
		"http://[fe80::1%eth0]:8000":      nil,
		"http://qwen-server-1.qwen:8000":  nil,
		"http://user:word@10.0.0.1:8000":  nil,
		"http://10.0.0.1:8000@10.0.0.2:1": nil,
		"http://10.0.0.1:99999":           nil,
		"http://10.0.0.1:":                nil,
		"http://[fd00::1":                 nil,
		"http://":                         nil,
		"":                                nil,
	} {
		var got []string
		for _, at := range locate(text) {
			got = append(got, at.String())
		}
		assert.Equal(t, want, got, text)
	}
}

func TestImageVersion(t *testing.T) {
	for image, want := range map[string]version{
		"smg:1.9.0":                           {1, 9, 0},
		"registry.example:5000/a/smg:v1.11.0": {1, 11, 0},
		"smg":                                 {}, "smg:latest": {}, "smg:main": {}, "smg:v1.9": {}, "smg:v1.9.0-rc1": {}, "smg:1.9.0.post1": {}, "smg:1.-9.0": {}, "smg:v": {},
		"smg:v1.9.0@sha256:0123": {}, "smg@sha256:0123": {}, "registry.example:5000/smg": {}, "": {},
	} {
		got, ok := imageVersion(image)
		assert.Equal(t, want, got, image)
		assert.Equal(t, want != version{}, ok, image)
	}
	for image, want := range map[string]string{
		"registry.example:5000/a/SMG:v1": "smg", "smg@sha256:0123": "smg", "smg": "smg", "": "",
	} {
		assert.Equal(t, want, imageName(image))
	}
	assert.Negative(t, version{1, 9, 0}.compare(version{1, 10, 0}))
	assert.Positive(t, version{2, 0, 0}.compare(version{1, 10, 9}))
	assert.Zero(t, version{1, 9, 1}.compare(version{1, 9, 1}))
}

func TestArgs(t *testing.T) {
	a := newArgs([]string{"/bin/router", "--selector", "a=b", "c=d", "--policy=random", "--dp_aware", "--policy", "manual", "-v", "word", "--selector=e=f,g="})
	assert.True(t, a.known)
	assert.Equal(t, "manual", a.value("policy"), "the last one counts")
	assert.Equal(t, "", a.value("dp-aware"))
	assert.Equal(t, "", a.value("port"))
	assert.True(t, a.has("dp-aware"))
	assert.False(t, a.has("v", "word", ""))
	selectors, ok := a.selectors("selector", "prefill-selector")
	assert.True(t, ok)
	assert.Equal(t, []selector{{"a": "b", "c": "d"}, {"e": "f", "g": ""}}, selectors)
	assert.True(t, selectors[0].matches(map[string]string{"a": "b", "c": "d", "x": "y"}))
	assert.False(t, selectors[0].matches(map[string]string{"a": "b"}))
	assert.False(t, selectors[1].matches(map[string]string{"e": "f"}), "a label that is not there is not an empty one")

	for _, bad := range [][]string{{"--selector"}, {"--selector="}, {"--selector", "a"}, {"--selector", "a!=b"}, {"--selector", "a==b"}, {"--selector", "=b"}, {"--selector", "a in (b)"}} {
		_, ok := newArgs(bad).selectors("selector")
		assert.False(t, ok, bad)
	}
	for sentence, argv := range map[string][]string{
		"none": nil, "a shell": {"/bin/bash", "-c", "exec router"}, "a reference to a variable": {"router", "$(FLAGS)"}, "an environment's": {"router", "${FLAGS}"},
	} {
		assert.False(t, newArgs(argv).known, sentence)
	}
	places, ok := newArgs([]string{"r", "--prefill", "http://10.0.0.1:8000", "9000", "--decode", "http://10.0.0.2:8000", "none"}).named("prefill", "decode")
	assert.True(t, ok)
	assert.Equal(t, []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:8000"), netip.MustParseAddrPort("10.0.0.2:8000")}, places)
}

func TestRunIsNamedOnce(t *testing.T) {
	p := page{processStart: {{value: 1796020000.25}}}
	once := p.run("containerd://1")
	assert.Equal(t, "containerd://1@1796020000.25", once)
	assert.Equal(t, once, p.run(once), "what was answered may be asked with")
	assert.Equal(t, once, page{}.run(once), "a page without it keeps what is known")
	assert.Empty(t, p.run(""), "a container that is not known has no run")
}
