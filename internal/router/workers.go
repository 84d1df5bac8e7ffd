package router

import (
	"encoding/json"
	"errors"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Labels of a worker for its Pod, which SMG gives to those it has discovered. Those with
// a UID it takes out when their Pod is gone.
const (
	labelPodUID  = "smg.ai/pod-uid"
	labelPodName = "smg.ai/pod-name"
)

// worker is an entry of GET /workers. What is not there is zero.
type worker struct {
	id, url string
	// kind is regular, prefill, decode or encode, and mode http or grpc.
	kind, mode string
	status     string
	labels     map[string]string
	// load is nil where it is no whole number.
	load *int64
	at   []netip.AddrPort
}

// UnmarshalJSON takes what it knows from an entry. Only the url has to be readable:
// routers disagree on the types of some of the rest.
func (w *worker) UnmarshalJSON(entry []byte) error {
	var raw struct {
		URL    string          `json:"url"`
		ID     json.RawMessage `json:"id"`
		Kind   json.RawMessage `json:"worker_type"`
		Mode   json.RawMessage `json:"connection_mode"`
		Status json.RawMessage `json:"status"`
		Labels json.RawMessage `json:"labels"`
		Load   json.RawMessage `json:"load"`
	}
	if err := json.Unmarshal(entry, &raw); err != nil {
		return err
	}
	if raw.URL == "" {
		return errors.New("a worker has no url")
	}
	*w = worker{
		url: raw.URL, at: locate(raw.URL), id: text(raw.ID),
		kind: strings.ToLower(text(raw.Kind)), mode: strings.ToLower(text(raw.Mode)), status: strings.ToLower(text(raw.Status)),
	}
	if len(raw.Labels) > 0 && json.Unmarshal(raw.Labels, &w.labels) != nil {
		w.labels = nil
	}
	if n, err := strconv.ParseInt(string(raw.Load), 10, 64); err == nil {
		w.load = &n
	}
	return nil
}

// text is a JSON string; empty where it is none.
func text(raw json.RawMessage) string {
	var s string
	if len(raw) == 0 || json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// http reports whether the router is known to speak HTTP to it, and not gRPC.
func (w *worker) http() bool {
	return w.mode == "http" && (strings.HasPrefix(w.url, "http://") || strings.HasPrefix(w.url, "https://"))
}

// roster is what GET /workers lists.
type roster struct {
	workers []worker
	// whole is whether it has as many entries as it says there are.
	whole  bool
	byAddr map[netip.Addr][]int
	byUID  map[types.UID][]int
	// nameless is whether an entry has a host name or the like, so that it may be
	// anybody.
	nameless bool
	// paired is whether any of them prefills or decodes for others, and http whether the
	// router is known to speak HTTP to all of them.
	paired, http bool
}

// readRoster reads what GET /workers answers.
func readRoster(body []byte) (*roster, error) {
	var answer struct {
		Workers []worker `json:"workers"`
		Total   *int     `json:"total"`
	}
	if json.Unmarshal(body, &answer) != nil || answer.Workers == nil {
		return nil, errors.New("GET /workers: its answer is no list of workers") // the error quotes it
	}
	r := &roster{
		workers: answer.Workers,
		whole:   answer.Total != nil && *answer.Total == len(answer.Workers),
		byAddr:  make(map[netip.Addr][]int, len(answer.Workers)),
		byUID:   make(map[types.UID][]int),
		http:    true,
	}
	for i := range r.workers {
		w := &r.workers[i]
		uid := types.UID(w.labels[labelPodUID])
		if uid != "" {
			r.byUID[uid] = append(r.byUID[uid], i)
		}
		r.paired = r.paired || slices.Contains([]string{"prefill", "decode", "encode"}, w.kind)
		r.http = r.http && w.http()
		r.nameless = r.nameless || len(w.at) == 0 && uid == ""
		for _, at := range w.at {
			r.byAddr[at.Addr()] = append(r.byAddr[at.Addr()], i)
		}
	}
	return r, nil
}

// nobody is why an empty list says little.
const nobody = "it lists no worker at all, so it may not have looked yet"

// find returns the entries that are a replica, by its Pod's UID where an entry has one
// and by address and port where it has none. Where there are none, unsure is why that
// does not say that the replica is absent; empty where it does.
func (r *roster) find(b *Backend) (own []*worker, unsure string) {
	var found []int
	near, other := false, false
	if b.UID != "" {
		found = append(found, r.byUID[b.UID]...)
	}
	for _, addr := range b.Addrs {
		for _, i := range r.byAddr[addr.Unmap()] {
			w := &r.workers[i]
			uid, here := types.UID(w.labels[labelPodUID]), slices.Contains(w.at, netip.AddrPortFrom(addr.Unmap(), b.Port))
			switch {
			case b.UID != "" && uid != "": // its UID has been looked at
				other = other || here && uid != b.UID
			case here:
				found = append(found, i)
			default:
				near = true
			}
		}
	}
	slices.Sort(found)
	for _, i := range slices.Compact(found) {
		own = append(own, &r.workers[i])
	}
	switch {
	case len(own) > 0:
	case !r.whole:
		unsure = "its list of workers is not whole"
	case r.nameless:
		unsure = "it lists workers by host name, and which Pods those are cannot be told"
	case other: // what is sent there comes to the replica, while that lives
		unsure = "it lists the replica's address as that of another Pod"
	case near: // maybe another way into the same Pod
		unsure = "it lists the replica's address with another port"
	case len(r.workers) == 0:
		unsure = nobody
	case len(b.Addrs) == 0 || b.Port == 0:
		unsure = "the replica's address is not known"
	}
	return own, unsure
}

// has reports whether any entry is so.
func (r *roster) has(so func(*worker) bool) bool {
	for i := range r.workers {
		if so(&r.workers[i]) {
			return true
		}
	}
	return false
}

// urls are those of entries, as the control API takes them: where an engine has
// several ranks the URL without the rank removes them all.
func urls(own []*worker) []string {
	var all []string
	for _, w := range own {
		base := w.url
		if at := strings.LastIndexByte(base, '@'); at >= 0 {
			base = base[:at]
		}
		all = append(all, base, w.url)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// newURL is the URL under which a router lists a replica that it discovers.
func newURL(b *Backend) (string, error) {
	if len(b.Addrs) == 0 || b.Port == 0 {
		return "", errors.New("the replica has no address")
	}
	return (&url.URL{Scheme: "http", Host: netip.AddrPortFrom(b.Addrs[0].Unmap(), b.Port).String()}).String(), nil
}
