package router

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/withdraw"
)

const (
	imageOld     = "lightseekorg/smg:1.9.0"
	imageNew     = "registry.example:5000/mirror/smg:v1.11.0"
	imageMain    = "smg-project/smg:main"
	imageGateway = "lmsysorg/sgl-model-gateway:v0.3.2"
)

func smgStage(t *testing.T, image string, more ...string) *stage {
	s := newStage(t, v1alpha1.SGLangGateway, read(t, "smg-workers.json"), read(t, "smg-metrics.txt"))
	s.process.Image = image
	s.process.Args = append([]string{"smg", "launch", "--service-discovery", "--selector", "app=qwen", "lastcall.dev/serving=true"}, more...)
	return s
}

func gatewayStage(t *testing.T, argv ...string) *stage {
	s := newStage(t, v1alpha1.SGLangGateway, read(t, "sgl-model-gateway-workers.json"), "")
	s.process.Image = imageGateway
	s.process.Args = append([]string{"sgl-model-gateway", "--service-discovery", "--selector", "app=qwen", "lastcall.dev/serving=true"}, argv...)
	return s
}

// drains lets the replica drain with some open requests.
func drains(t *testing.T, load any) func(*stage) {
	return func(s *stage) { s.workers = set(t, s.workers, map[string]any{"status": draining, "load": load}) }
}

func fields(t *testing.T, fields map[string]any) func(*stage) {
	return func(s *stage) { s.workers = set(t, s.workers, fields) }
}

func both(changes ...func(*stage)) func(*stage) {
	return func(s *stage) {
		for _, change := range changes {
			change(s)
		}
	}
}

// paired makes every worker one of a pair.
func paired(s *stage) { s.workers = strings.ReplaceAll(s.workers, `"regular"`, `"decode"`) }

func TestSMGSays(t *testing.T) {
	listed := want{membership: withdraw.Selectable, returns: withdraw.No, holds: withdraw.No, window: httpWindow, dispatches: ptr(7.0), inFlight: ptr(int64(0)), sound: true}
	with := func(changes ...func(*want)) want {
		w := listed
		for _, change := range changes {
			change(&w)
		}
		return w
	}
	is := func(m withdraw.Membership) func(*want) { return func(w *want) { w.membership = m } }
	count := func(n int64) func(*want) { return func(w *want) { w.inFlight, w.sound = &n, true } }
	uncounted := func(why string) func(*want) {
		return func(w *want) { w.inFlight, w.sound, w.why = nil, false, why }
	}
	aside := func(w *want) { w.why = "as that of another Pod" }
	unlisted := func(w *want) { w.inFlight, w.sound = nil, false }
	overGRPC := func(w *want) { uncounted("over gRPC it begins late")(w); w.window = grpcWindow }
	held := func(w *want) { w.holds, w.why = withdraw.Yes, "while another prefills" }
	grpc := fields(t, map[string]any{"url": "grpc://10.0.0.1:8000", "connection_mode": "grpc"})

	for sentence, c := range map[string]struct {
		image   string
		argv    []string
		change  func(s *stage)
		backend func(b *Backend)
		want    want
	}{
		"new: it lists the replica":                    {imageNew, nil, nil, nil, listed},
		"new: the replica drains with two requests":    {imageNew, nil, drains(t, 2), nil, with(is(withdraw.Unselectable), count(2))},
		"new: the replica drains with none":            {imageNew, nil, drains(t, 0), nil, with(is(withdraw.Unselectable), count(0))},
		"new: the replica is pending":                  {imageNew, nil, fields(t, map[string]any{"status": "pending"}), nil, listed},
		"new: the replica is not ready, which may end": {imageNew, nil, fields(t, map[string]any{"status": "not_ready"}), nil, listed},
		"new: the replica has failed, which may end":   {imageNew, nil, fields(t, map[string]any{"status": "failed"}), nil, listed},
		"new: its gauge says 0 after the removal":      {imageNew, nil, gone(t), nil, with(is(withdraw.Absent), unlisted)},
		"new: a prefill worker drains":                 {imageNew, nil, both(drains(t, 1), paired), nil, with(is(withdraw.Unselectable), count(1), held)},
		"new: the load is below zero":                  {imageNew, nil, drains(t, -1), nil, with(is(withdraw.Unselectable), uncounted("no number of requests"))},
		"new: the load is text":                        {imageNew, nil, drains(t, "0"), nil, with(is(withdraw.Unselectable), uncounted("no number of requests"))},
		"new: there is no load":                        {imageNew, nil, drains(t, nil), nil, with(is(withdraw.Unselectable), uncounted("no number of requests"))},
		"new: gRPC":                                    {imageNew, nil, both(drains(t, 0), grpc), nil, with(is(withdraw.Unselectable), overGRPC)},
		"new: another worker has gRPC, which says nothing of this one": {imageNew, nil, func(s *stage) {
			drains(t, 0)(s)
			s.workers = strings.ReplaceAll(s.workers, "http://10.0.0.2", "grpc://10.0.0.2")
		}, nil, with(is(withdraw.Unselectable), count(0))},
		"new: an encode worker":                       {imageNew, nil, both(drains(t, 0), fields(t, map[string]any{"worker_type": "encode"})), nil, with(is(withdraw.Unselectable), uncounted("not for workers of this type"), func(w *want) { w.holds = withdraw.Yes })},
		"1.9: round_robin counts nothing":             {imageOld, []string{"--policy", "round_robin"}, drains(t, 0), nil, with(is(withdraw.Unselectable), uncounted("only under the policies"))},
		"1.9: no policy is named":                     {imageOld, nil, drains(t, 0), nil, with(is(withdraw.Unselectable), uncounted("only under the policies"))},
		"1.9: cache_aware counts":                     {imageOld, []string{"--policy", "cache_aware"}, drains(t, 2), nil, with(is(withdraw.Unselectable), count(2))},
		"1.9: manual counts":                          {imageOld, []string{"--policy=manual"}, drains(t, 0), nil, with(is(withdraw.Unselectable), count(0))},
		"1.9: the model has a policy of its own":      {imageOld, []string{"--policy", "cache_aware"}, both(drains(t, 0), fields(t, map[string]any{"labels": map[string]string{"policy": "random"}})), nil, with(is(withdraw.Unselectable), uncounted("only under the policies"))},
		"1.9: every model may have a policy":          {imageOld, []string{"--policy", "cache_aware", "--enable-igw"}, drains(t, 0), nil, with(is(withdraw.Unselectable), uncounted("only under the policies"))},
		"1.9: pairs count under every policy":         {imageOld, []string{"--policy", "round_robin"}, both(drains(t, 2), paired), nil, with(is(withdraw.Unselectable), count(2))},
		"1.9: pairs over gRPC wait for their prefill": {imageOld, nil, both(drains(t, 0), paired, grpc), nil, with(is(withdraw.Unselectable), overGRPC, func(w *want) { w.holds = withdraw.Yes })},
		"1.9.1 may be either, so it is the worse":     {"smg:1.9.1", nil, both(drains(t, 0), paired), nil, with(is(withdraw.Unselectable), count(0), held)},
		"1.5: pairs count, but not streams":           {"smg:1.5.0", []string{"--policy", "manual"}, both(drains(t, 0), paired), nil, with(is(withdraw.Unselectable), uncounted("not for streams"))},
		"1.4 was never read":                          {"smg:1.4.9", []string{"--policy", "manual"}, drains(t, 0), nil, with(is(withdraw.Unselectable), uncounted("release is not known"))},
		"main: what it counts is not known":           {imageMain, nil, drains(t, 0), nil, with(is(withdraw.Unselectable), uncounted("release is not known"))},
		"a digest says no release":                    {imageNew + "@sha256:0123", nil, drains(t, 0), nil, with(is(withdraw.Unselectable), uncounted("release is not known"))},
		"an image of another name says no release":    {"example/router:1.11.0", nil, drains(t, 0), nil, with(is(withdraw.Unselectable), uncounted("release is not known"))},
		"it is SMG only by its answer":                {"example/router:1.11.0", []string{}, func(s *stage) { drains(t, 0)(s); s.process.Args = append([]string{"start"}, s.process.Args[2:]...) }, nil, with(is(withdraw.Unselectable), uncounted("release is not known"))},
		"its image is the other gateway's, so it is either": {
			imageGateway, nil, both(drains(t, 0), func(s *stage) { s.process.Args[0] = "/start" }), nil, with(uncounted("only SMG's does")),
		},
		"another Pod has the replica's address": {
			imageNew, nil, fields(t, map[string]any{"labels": map[string]string{labelPodUID: "uid-9"}}), nil, with(is(withdraw.MembershipUnknown), unlisted, aside),
		},
		"another Pod has the replica's address, and drains": {
			imageNew, nil, both(drains(t, 0), fields(t, map[string]any{"labels": map[string]string{labelPodUID: "uid-9"}})), nil, with(is(withdraw.MembershipUnknown), unlisted, aside),
		},
		"another Pod has the replica's address, and nobody else is there": {
			imageNew, nil, both(only(t, 0), fields(t, map[string]any{"labels": map[string]string{labelPodUID: "uid-9"}})), nil, with(is(withdraw.MembershipUnknown), unlisted, aside),
		},
		"the Pod has another address by now": {
			imageNew, nil, fields(t, map[string]any{"url": "http://10.0.0.77:8000"}), nil, listed,
		},
		"the Pod has two ports, and one drains": {
			imageNew, nil, func(s *stage) {
				s.workers = edited(t, s.workers, func(all []map[string]any) []map[string]any {
					all[1]["labels"], all[1]["url"] = all[0]["labels"], "http://10.0.0.1:8001"
					all[0]["status"] = draining
					return all
				})
			}, nil, with(count(3), func(w *want) { w.dispatches = ptr(7.0) }),
		},
		"a worker that was added by hand has no UID":   {imageNew, nil, fields(t, map[string]any{"labels": nil}), nil, listed},
		"it drains, in a list that is not whole":       {imageNew, nil, func(s *stage) { drains(t, 0)(s); s.workers = strings.Replace(s.workers, `"total":3`, `"total":4`, 1) }, nil, with(is(withdraw.MembershipUnknown), func(w *want) { w.listed, w.why = true, "not whole" })},
		"its list is not whole":                        {imageNew, nil, truncated(t), nil, with(is(withdraw.MembershipUnknown), unlisted, func(w *want) { w.why = "not whole" })},
		"it lists nobody":                              {imageNew, nil, func(s *stage) { s.workers = `{"workers":[],"total":0}` }, nil, with(is(withdraw.Emptied), unlisted, func(w *want) { w.why = "no worker at all" })},
		"its selector still matches, so it comes back": {imageNew, nil, gone(t), labelled(names.LabelServing, names.Serving), with(is(withdraw.Absent), unlisted, func(w *want) { w.returns = withdraw.Yes })},
		"its encode selector still matches":            {imageNew, []string{"--encode-selector", "app=qwen"}, gone(t), nil, with(is(withdraw.Absent), unlisted, held, func(w *want) { w.returns, w.why = withdraw.Yes, "still matches" })},
		"it drains and its selector still matches":     {imageNew, nil, drains(t, 0), labelled(names.LabelServing, names.Serving), with(is(withdraw.Unselectable), func(w *want) { w.returns = withdraw.Yes })},
		"its command line is not known": {imageNew, nil, func(s *stage) { gone(t)(s); s.process.Args = nil }, nil, with(is(withdraw.Absent), unlisted, func(w *want) {
			w.returns, w.holds, w.why = withdraw.Unknown, withdraw.Unknown, "command line is not known"
		})},
		"its flags are in a file":                 {imageNew, []string{"--config-file", "/etc/smg.yaml"}, gone(t), nil, with(is(withdraw.Absent), unlisted, func(w *want) { w.returns, w.holds = withdraw.Unknown, withdraw.Unknown })},
		"its metrics are somewhere else":          {imageNew, nil, func(s *stage) { s.metrics = "" }, nil, with(func(w *want) { w.dispatches, w.why = nil, "GET /metrics: it answers 404" })},
		"it is from before it counted dispatches": {imageNew, nil, func(s *stage) { s.metrics = without(s.metrics, "requests_total") }, nil, with(func(w *want) { w.dispatches, w.why = nil, "no smg_worker_requests_total" })},
		"only keys of tenants are configured":     {imageNew, nil, func(s *stage) { s.status = http.StatusForbidden }, nil, want{why: "it answers 403 and wants credentials"}},
		"sgl-router has no list of workers":       {"lmsysorg/sgl-router:v0.1.0", nil, func(s *stage) { s.workers = "" }, nil, want{why: "GET /workers: it answers 404"}},
		"1.9: the counter of its ancestor is read, too": {imageOld, []string{"--policy", "manual"}, func(s *stage) {
			s.metrics = strings.ReplaceAll(s.metrics, "smg_worker_requests_total", "sgl_router_processed_requests_total")
		}, nil, listed},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := smgStage(t, c.image, c.argv...)
			if c.change != nil {
				c.change(s)
			}
			b := replica()
			if c.backend != nil {
				c.backend(&b)
			}
			c.want.check(t, s.look(t, b))
		})
	}
}

func TestSGLModelGatewaySays(t *testing.T) {
	uncounted := "its load does not count what is in flight: only SMG's does"
	listed := want{membership: withdraw.Selectable, returns: withdraw.No, holds: withdraw.No, window: httpWindow, why: uncounted}
	absent := listed
	absent.membership, absent.why = withdraw.Absent, ""
	for sentence, c := range map[string]struct {
		argv   []string
		change func(s *stage)
		labels string
		want   want
	}{
		"it lists the replica, whatever its labels are": {nil, nil, names.Withdrawn, listed},
		"its load is reset now and then":                {[]string{"--policy", "cache_aware"}, nil, names.Withdrawn, listed},
		"it was told, and lists only others":            {nil, gone(t), names.Withdrawn, absent},
		"its selector still matches": {nil, gone(t), names.Serving, want{
			membership: withdraw.Absent, returns: withdraw.Yes, holds: withdraw.No, window: httpWindow, why: "still matches",
		}},
		"it may hold a request of a pair": {[]string{"--pd-disaggregation"}, gone(t), names.Withdrawn, want{
			membership: withdraw.Absent, returns: withdraw.No, holds: withdraw.Yes, window: httpWindow, why: "while another prefills",
		}},
		"it lists the ranks of the replica":                    {nil, at(t, "http://10.0.0.1:8000@2"), names.Withdrawn, listed},
		"it says that the replica drains, which it never does": {nil, drains(t, 0), names.Withdrawn, listed},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := gatewayStage(t, c.argv...)
			if c.change != nil {
				c.change(s)
			}
			c.want.check(t, s.look(t, replica(labelled(names.LabelServing, c.labels))))
		})
	}
}

// Where nobody says where the metrics are, each has a default of its own.
func TestWhereAGatewayHasItsMetrics(t *testing.T) {
	open, closed := smgStage(t, imageNew), gatewayStage(t)
	for _, s := range []*stage{open, closed} {
		s.process.Metrics, s.process.URL = "", strings.Replace(s.process.URL, "127.0.0.1", "localhost", 1)
	}
	assert.Contains(t, open.look(t, replica()).Why, "GET /metrics: ", "it is asked on port 29000")
	assert.Contains(t, closed.look(t, replica()).Why, "where its metrics are is not known")
}

func TestWhichGatewayIsTold(t *testing.T) {
	for sentence, c := range map[string]struct {
		image string
		argv  []string
		told  bool
	}{
		"SMG 1.9.0":               {imageOld, []string{"smg"}, true},
		"SMG 1.5.2":               {"smg:v1.5.2", nil, true},
		"SMG 1.9.1":               {"smg:v1.9.1", nil, false},
		"SMG 1.11.0":              {imageNew, nil, false},
		"SMG of a branch":         {imageMain, nil, false},
		"SMG latest":              {"smg:latest", nil, false},
		"SMG without a tag":       {"smg", nil, false},
		"SMG of a digest":         {"smg@sha256:0123", nil, false},
		"SMG rebuilt":             {"smg:v1.4.1.post1-sglang-v0.5.10", nil, false},
		"SMG by its program":      {"example/router:1.9.0", []string{"/usr/bin/smg"}, false},
		"SMG in the other image":  {imageGateway, []string{"smg"}, false},
		"sgl-model-gateway":       {imageGateway, nil, true},
		"sglang-router":           {"lmsysorg/sglang-router:latest", nil, true},
		"the module of Python":    {"lmsysorg/sglang:v0.5.10", []string{"python3", "-m", "sglang_router.launch_router"}, true},
		"a program in some image": {"example/router:1.9.0", []string{"sgl-model-gateway"}, true},
		"nothing known of it":     {"example/router:1.9.0", nil, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			family, ok := Of(v1alpha1.SGLangGateway)
			assert.True(t, ok)
			told, drains := family.Told(Process{Image: c.image, Args: c.argv})
			assert.Equal(t, c.told, told)
			assert.Equal(t, told && strings.Contains(c.image, "smg"), told && drains)
		})
	}
}

func TestSGLangGatewayIsTold(t *testing.T) {
	removal := func(id string) []string { return []string{"DELETE /workers/" + id} }
	first := removal("6f1c2f0e-6f0b-4a39-9d3a-0f3d7b6b0001")
	for sentence, c := range map[string]struct {
		stage  func(t *testing.T) *stage
		change func(s *stage)
		told   []string
		err    string
	}{
		"a worker, by its id":                     {smgOld, nil, first, ""},
		"a worker of the other gateway":           {otherGateway, nil, removal("0aa0a9f0-3c39-4c2e-8f3e-0f3d7b6b0001"), ""},
		"a worker without an id, by its URL":      {otherGateway, fields(t, map[string]any{"id": nil}), removal("http:%2F%2F10.0.0.1:8000"), ""},
		"accepted, and not done yet":              {smgOld, func(s *stage) { s.commanded = http.StatusAccepted }, first, ""},
		"gone in the meantime":                    {smgOld, func(s *stage) { s.commanded = http.StatusNotFound }, first, ""},
		"twice, which would cut the draining":     {smgOld, drains(t, 2), nil, ""},
		"not listed":                              {smgOld, gone(t), nil, ""},
		"in a list that is not whole":             {smgOld, truncated(t), nil, "not whole"},
		"in a list of nobody":                     {smgOld, func(s *stage) { s.workers = `{"workers":[],"total":0}` }, nil, "no worker at all"},
		"but wants a token":                       {smgOld, func(s *stage) { s.commanded = http.StatusUnauthorized }, first, "it answers 401 and wants credentials"},
		"a worker of a Pod with the same address": {smgOld, fields(t, map[string]any{"labels": map[string]string{labelPodUID: "uid-9"}}), nil, "as that of another Pod"},
		"where it pairs workers":                  {smgOld, paired, nil, "would list one again as neither"},
		"a release that follows labels":           {func(t *testing.T) *stage { return smgStage(t, imageNew) }, nil, nil, "follows the labels"},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := c.stage(t)
			if c.change != nil {
				c.change(s)
			}
			err := s.family.Withdraw(t.Context(), http.DefaultClient, s.process, replica())
			assert.Equal(t, c.told, s.told)
			if c.err == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, c.err)
			}
		})
	}
}

func smgOld(t *testing.T) *stage { return smgStage(t, imageOld, "--policy", "manual") }

func otherGateway(t *testing.T) *stage { return gatewayStage(t) }

func TestSGLangGatewayIsToldThatAReplicaIsBack(t *testing.T) {
	added := []string{`POST /workers {"url":"http://10.0.0.1:8000"}`}
	stamped := []string{`POST /workers {"url":"http://10.0.0.1:8000","labels":{"smg.ai/pod-name":"qwen-server-1","smg.ai/pod-uid":"uid-1"}}`}
	for sentence, c := range map[string]struct {
		stage  func(t *testing.T) *stage
		change func(s *stage)
		told   []string
		err    string
	}{
		"it was removed":                    {smgOld, gone(t), stamped, ""},
		"it is listed":                      {smgOld, nil, nil, ""},
		"it still drains":                   {smgOld, drains(t, 0), nil, "still taking the replica out"},
		"the other gateway":                 {otherGateway, gone(t), added, ""},
		"a release that discovers it again": {func(t *testing.T) *stage { return smgStage(t, imageMain) }, gone(t), nil, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := c.stage(t)
			if c.change != nil {
				c.change(s)
			}
			err := s.family.Restore(t.Context(), http.DefaultClient, s.process, replica())
			assert.Equal(t, c.told, s.told)
			if c.err == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, c.err)
			}
		})
	}
}

// What a process of an SGLang gateway comes to over time.
func TestSGLangGatewayProof(t *testing.T) {
	serving := replica(labelled(names.LabelServing, names.Serving))
	old := func(policy string) func(t *testing.T) *stage {
		return func(t *testing.T) *stage { return smgStage(t, imageOld, "--policy", policy) }
	}
	newest := func(t *testing.T) *stage { return smgStage(t, imageNew) }
	for sentence, c := range map[string]struct {
		stage   func(t *testing.T) *stage
		story   func(t *testing.T, f *fleet)
		missing string
	}{
		"a new one drains it for long, and the last request ends": {newest, func(t *testing.T, f *fleet) {
			paired(f.stage)
			f.sees(t, 0, replica())
			drains(t, 2)(f.stage)
			f.sees(t, 1, replica()).sees(t, 14, replica())
			drains(t, 0)(f.stage)
			f.sees(t, 20, replica())
		}, ""},
		"a new one drains it for long, and a request is open": {newest, func(t *testing.T, f *fleet) {
			paired(f.stage)
			drains(t, 2)(f.stage)
			f.sees(t, 1, replica()).sees(t, 14, replica()).sees(t, 20, replica())
		}, names.HeldRouterHolds},
		"2: it drains for 5 s, and its gauge is 0 with a stream open": {newest, func(t *testing.T, f *fleet) {
			paired(f.stage)
			drains(t, 1)(f.stage)
			f.sees(t, 1, replica()).sees(t, 5, replica())
			gone(t)(f.stage)
			f.sees(t, 7, replica()).sees(t, 60, replica())
		}, names.HeldRouterHolds},
		"a server alone, quiet for 12 s": {newest, func(t *testing.T, f *fleet) {
			drains(t, 0)(f.stage)
			f.sees(t, 1, replica())
			gone(t)(f.stage)
			f.sees(t, 7, replica()).sees(t, 13.5, replica())
		}, ""},
		"1.9 under round_robin: load 0 says nothing yet": {old("round_robin"), func(t *testing.T, f *fleet) {
			drains(t, 0)(f.stage)
			f.sees(t, 1, replica()).sees(t, 10, replica())
		}, names.HeldRouterHolds},
		"1.9 under round_robin: quiet for 12 s": {old("round_robin"), func(t *testing.T, f *fleet) {
			f.sees(t, -3, replica())
			gone(t)(f.stage)
			f.sees(t, 1, replica()).sees(t, 13.5, replica())
		}, ""},
		"6: it was removed by the API only, and comes back": {newest, func(t *testing.T, f *fleet) {
			gone(t)(f.stage)
			f.sees(t, 1, serving).sees(t, 30, serving)
		}, names.HeldRouterReturns},
		"9: another Pod has its address, and others are listed": {newest, func(t *testing.T, f *fleet) {
			f.workers = set(t, f.workers, map[string]any{"labels": map[string]string{labelPodUID: "uid-9"}})
			f.sees(t, 1, replica()).sees(t, 13.5, replica())
		}, names.HeldRouterUnread},
		"9: another Pod may have its address, without a UID": {newest, func(t *testing.T, f *fleet) {
			f.workers = set(t, f.workers, map[string]any{"labels": nil})
			f.sees(t, 1, replica()).sees(t, 30, replica())
		}, names.HeldRouterSelects},
		"gRPC takes 30 s": {newest, func(t *testing.T, f *fleet) {
			f.workers = strings.ReplaceAll(removed(t, f.workers), "http", "grpc")
			f.sees(t, 1, replica()).sees(t, 29, replica())
		}, names.HeldRouterHolds},
		"gRPC, after 30 s": {newest, func(t *testing.T, f *fleet) {
			f.workers = strings.ReplaceAll(removed(t, f.workers), "http", "grpc")
			f.sees(t, 1, replica()).sees(t, 31.5, replica())
		}, ""},
		"the other gateway, told and unlabelled": {otherGateway, func(t *testing.T, f *fleet) {
			f.sees(t, -3, replica())
			gone(t)(f.stage)
			f.sees(t, 1, replica()).sees(t, 13.5, replica())
		}, ""},
		"one that has never listed it may have had it over gRPC": {otherGateway, func(t *testing.T, f *fleet) {
			gone(t)(f.stage)
			f.sees(t, 1, replica()).sees(t, 13.5, replica())
		}, names.HeldRouterHolds},
		"the last worker had gRPC, and an empty list has no protocol": {newest, func(t *testing.T, f *fleet) {
			only(t, 0)(f.stage)
			f.workers = strings.ReplaceAll(strings.ReplaceAll(f.workers, "http://", "grpc://"), `"http"`, `"grpc"`)
			f.sees(t, -3, replica())
			f.workers = `{"workers":[],"total":0}`
			f.sees(t, 1, replica()).sees(t, 13.5, replica())
		}, names.HeldRouterHolds},
		"it had gRPC, and all that are left have HTTP": {newest, func(t *testing.T, f *fleet) {
			f.workers = set(t, f.workers, map[string]any{"url": "grpc://10.0.0.1:8000", "connection_mode": "grpc"})
			f.sees(t, -3, replica())
			gone(t)(f.stage)
			f.sees(t, 1, replica()).sees(t, 13.5, replica())
		}, names.HeldRouterHolds},
		"it may hold requests of pairs, and began after the mark": {newest, func(t *testing.T, f *fleet) {
			paired(f.stage)
			f.metrics = "" // which would tell the answer of one run from the silence before
			f.routed.Fleet.Processes[0].StartedAt = began.Add(20 * time.Second)
			list, url := removed(t, f.workers), f.process.URL
			f.process.URL = "http://127.0.0.1:1" // it does not listen yet
			f.sees(t, 20, replica())
			f.process.URL, f.workers = url, `{"workers":[],"total":0}` // it has not looked yet
			f.sees(t, 21, replica())
			f.workers = list
			f.sees(t, 24, replica())
		}, ""},
		"the other gateway, with pairs and load 0": {func(t *testing.T) *stage { return gatewayStage(t, "--pd-disaggregation") }, func(t *testing.T, f *fleet) {
			f.sees(t, 1, replica())
			gone(t)(f.stage)
			f.sees(t, 2, replica()).sees(t, 60, replica())
		}, names.HeldRouterHolds},
	} {
		t.Run(sentence, func(t *testing.T) {
			f := newFleet(c.stage(t))
			c.story(t, f)
			f.proves(t, c.missing)
		})
	}
}
