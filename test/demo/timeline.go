package main

import (
	"fmt"
	"html"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/test/load"
)

// Sizes of the picture, in pixels. Three panels side by side fit a laptop.
const (
	panelWidth  = 440
	panelGap    = 18
	marginLeft  = 14
	labelHeight = 15
	laneHeight  = 5
	stateHeight = 6
	bandGap     = 8
	headHeight  = 116
)

var colours = map[load.Outcome]string{load.Completed: "#2da44e", load.Cut: "#cf222e", load.Refused: "#bf8700"}

const askedStroke = `stroke="#57606a" stroke-dasharray="2 2"`

// state is how a state of the retirement protocol is drawn.
type state struct {
	state  v1alpha1.RetirementState
	colour string
}

// states are in their order.
var states = []state{
	{v1alpha1.StateAdmitted, "#afb8c1"},
	{v1alpha1.StateDisqualified, "#6e7781"},
	{v1alpha1.StateWithdrawing, "#d4a72c"},
	{v1alpha1.StateDraining, "#54aeff"},
	{v1alpha1.StateDeleting, "#ff8182"},
	{v1alpha1.StateSettling, "#c297ff"},
	{v1alpha1.StateCompleted, "#4ac26b"},
	{v1alpha1.StateAborted, "#a40e26"},
}

// band is one replica's share of a panel: the requests it served, packed into
// lanes so that none overlap.
type band struct {
	pod      string
	replica  *Replica
	requests []load.Request
	lanes    []int
	height   int
}

// writeTimeline draws a row of panels for each scenario, a panel for each mode, in
// the column that has it: time runs to the right, every replica is a band, every
// request a bar.
func writeTimeline(w io.Writer, scenarios []string, columns [][]string, runs []Run) error {
	var body strings.Builder
	y := headHeight
	for _, scenario := range scenarios {
		height := 0
		for column, modes := range columns {
			i := slices.IndexFunc(runs, func(r Run) bool { return r.Scenario == scenario && slices.Contains(modes, r.Mode) })
			if i < 0 {
				continue
			}
			x := marginLeft + column*(panelWidth+panelGap)
			height = max(height, drawPanel(&body, runs[i], x, y))
		}
		y += height + 26
	}
	width := 2*marginLeft + len(columns)*(panelWidth+panelGap) - panelGap
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="ui-sans-serif, system-ui, sans-serif" font-size="11">
<rect width="%d" height="%d" fill="#ffffff"/>
%s%s</svg>
`, width, y, width, y, width, y, legend(runs), body.String())
	return err
}

// legend explains the marks, and of the states of the retirement protocol those
// that a replica was in.
func legend(runs []Run) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<text x="%d" y="26" font-size="16" font-weight="600">Requests while engines are taken away</text>`, marginLeft)
	x := marginLeft
	for _, e := range []struct{ colour, text string }{
		{colours[load.Completed], "completed"}, {colours[load.Cut], "cut"}, {colours[load.Refused], "refused before an answer began"},
	} {
		fmt.Fprintf(&b, `<rect x="%d" y="42" width="18" height="7" rx="2" fill="%s"/><text x="%d" y="50">%s</text>`, x, e.colour, x+24, e.text)
		x += 40 + 7*len(e.text)
	}
	for _, e := range []struct{ colour, text string }{{"#0969da", "deleted"}, {"#8250df", "SIGTERM"}, {"#24292f", "engine gone"}} {
		fmt.Fprintf(&b, `<line x1="%d" y1="40" x2="%d" y2="52" stroke="%s" stroke-width="2"/><text x="%d" y="50">%s</text>`, x, x, e.colour, x+8, e.text)
		x += 30 + 7*len(e.text)
	}
	fmt.Fprintf(&b, `<line x1="%d" y1="40" x2="%d" y2="52" %s/><text x="%d" y="50">removal asked for</text>`, x, x, askedStroke, x+8)
	x = marginLeft
	fmt.Fprintf(&b, `<text x="%d" y="70">retirement protocol:</text>`, x)
	x += 124
	for _, s := range states {
		if !seen(runs, s.state) {
			continue
		}
		fmt.Fprintf(&b, `<rect x="%d" y="63" width="18" height="%d" fill="%s"/><text x="%d" y="70">%s</text>`, x, stateHeight, s.colour, x+24, s.state)
		x += 40 + 7*len(s.state)
	}
	fmt.Fprintf(&b, `<text x="%d" y="90" fill="#57606a">One band for each replica, one bar for each request. The same load in every panel of a row.</text>`+"\n", marginLeft)
	return b.String()
}

// seen tells whether any replica was in the state.
func seen(runs []Run, state v1alpha1.RetirementState) bool {
	return slices.ContainsFunc(runs, func(r Run) bool {
		return slices.ContainsFunc(r.Replicas, func(replica Replica) bool {
			return slices.ContainsFunc(replica.States, func(s Span) bool { return s.State == state })
		})
	})
}

// drawPanel draws one run and returns its height.
func drawPanel(b *strings.Builder, r Run, x, top int) int {
	s := summarize(r)
	verdict := fmt.Sprintf("%d of %d requests cut", s.Cut, s.Requests)
	fmt.Fprintf(b, `<text x="%d" y="%d" font-size="13" font-weight="600">%s, %s</text>`, x, top, html.EscapeString(r.Scenario), html.EscapeString(r.Mode))
	fmt.Fprintf(b, `<text x="%d" y="%d" font-size="13" font-weight="600" text-anchor="end" fill="%s">%s</text>`+"\n",
		x+panelWidth, top, cutColour(s.Cut), verdict)
	end := r.Started.Add(time.Second)
	for _, q := range r.Requests {
		end = later(end, q.End)
	}
	for _, replica := range r.Replicas {
		end = later(end, replica.Exited)
		for _, span := range replica.States {
			end = later(end, span.To)
		}
	}
	at := func(t time.Time) float64 {
		return float64(x) + float64(panelWidth)*t.Sub(r.Started).Seconds()/end.Sub(r.Started).Seconds()
	}
	y := top + 10
	for _, band := range bands(r) {
		drawBand(b, band, x, y, at)
		drawStates(b, band, y, end, at)
		y += band.height + bandGap
	}
	if !r.Asked.IsZero() {
		fmt.Fprintf(b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" %s/>`, at(r.Asked), top+10, at(r.Asked), y-bandGap, askedStroke)
	}
	for s := 0; s <= int(end.Sub(r.Started).Seconds()); s += 10 {
		fmt.Fprintf(b, `<text x="%.1f" y="%d" font-size="9" fill="#57606a">%d s</text>`, at(r.Started.Add(time.Duration(s)*time.Second)), y+4, s)
	}
	b.WriteString("\n")
	return y + 10 - top
}

func drawBand(b *strings.Builder, d band, x, y int, at func(time.Time) float64) {
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d" fill="#f6f8fa"/><text x="%d" y="%d" font-size="10" fill="#57606a">%s</text>`,
		x, y, panelWidth, d.height, x+3, y+11, html.EscapeString(d.pod))
	for i, q := range d.requests {
		from := max(at(q.Start), float64(x)) // it may have begun before the panel
		fmt.Fprintf(b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" rx="1" fill="%s"/>`,
			from, y+d.top()+d.lanes[i]*laneHeight, max(1.5, at(q.End)-from-0.5), laneHeight-1, colours[q.Outcome])
	}
	if d.replica != nil {
		for _, mark := range []struct {
			at     time.Time
			colour string
		}{{d.replica.Deleted, "#0969da"}, {d.replica.SIGTERM, "#8250df"}, {d.replica.Exited, "#24292f"}} {
			if !mark.at.IsZero() {
				fmt.Fprintf(b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="%s" stroke-width="2"/>`, at(mark.at), y, at(mark.at), y+d.height, mark.colour)
			}
		}
	}
	b.WriteString("\n")
}

// drawStates draws the states that the band's replica went through as one strip
// between its name and its requests.
func drawStates(b *strings.Builder, d band, y int, end time.Time, at func(time.Time) float64) {
	if d.replica == nil {
		return
	}
	for _, span := range d.replica.States {
		to := span.To
		if to.IsZero() {
			to = end
		}
		i := slices.IndexFunc(states, func(s state) bool { return s.state == span.State })
		if i < 0 {
			continue
		}
		fmt.Fprintf(b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"><title>%s, %.1f s</title></rect>`,
			at(span.From), y+labelHeight, max(1, at(to)-at(span.From)), stateHeight, states[i].colour, span.State, to.Sub(span.From).Seconds())
	}
	b.WriteString("\n")
}

// bands groups a run's requests by the replica that served them, in the order
// in which the replicas first did.
func bands(r Run) []band {
	requests := slices.Clone(r.Requests)
	slices.SortStableFunc(requests, func(a, b load.Request) int { return a.Start.Compare(b.Start) })
	var all []band
	find := func(pod string) *band {
		i := slices.IndexFunc(all, func(d band) bool { return d.pod == pod })
		if i < 0 {
			all = append(all, band{pod: pod})
			i = len(all) - 1
		}
		return &all[i]
	}
	for _, q := range requests {
		pod := q.ServedBy
		if pod == "" {
			pod = "no replica answered"
		}
		d := find(pod)
		d.requests = append(d.requests, q)
	}
	for i := range r.Replicas {
		find(r.Replicas[i].Pod).replica = &r.Replicas[i]
	}
	for i := range all {
		all[i].pack()
	}
	return all
}

// pack puts each request into the first lane that is free when it starts.
func (d *band) pack() {
	var freeAt []time.Time
	for _, q := range d.requests {
		lane := slices.IndexFunc(freeAt, func(t time.Time) bool { return !t.After(q.Start) })
		if lane < 0 {
			lane = len(freeAt)
			freeAt = append(freeAt, time.Time{})
		}
		freeAt[lane] = q.End
		d.lanes = append(d.lanes, lane)
	}
	d.height = d.top() + len(freeAt)*laneHeight + 3
}

// top is where the band's requests begin, below its replica's name and states.
func (d *band) top() int {
	if d.replica != nil && len(d.replica.States) > 0 {
		return labelHeight + stateHeight + 2
	}
	return labelHeight
}

func cutColour(cut int) string {
	if cut > 0 {
		return colours[load.Cut]
	}
	return colours[load.Completed]
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
