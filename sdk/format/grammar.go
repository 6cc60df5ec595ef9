package format

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-dev/penstock/sdk/chat"
)

// declared is a format made from a Spec.
type declared struct {
	spec    *Spec
	grammar *grammar
	demand  *grammar // for requests that demand a call
	render  *renderer
	newID   func() string
	markers []string
}

// New makes a format from its declaration.
func New(s *Spec) (Format, error) {
	d := &declared{spec: s, grammar: newGrammar(s), newID: randomID}
	if s.Calls != nil {
		d.demand = d.grammar.forced()
	}
	if s.IDs == "alnum9" {
		d.newID = alnumID
	}
	var err error
	if d.render, err = newRenderer(s); err != nil {
		return nil, fmt.Errorf("format %s: %w", s.Name, err)
	}
	d.markers = markersOf(s)
	return d, nil
}

// Markers implements Format.
func (d *declared) Markers() []string { return d.markers }

// Native is what declared formats know beyond Format: what a model's own chat
// template needs that renders in the place of one.
type Native interface {
	// Reasoning is the markers of reasoning, empty where there are none.
	Reasoning() (open, close string)
	// NativeIDs maps the ids of the calls in messages to those that the model
	// is shown; an id that isn't there is shown as it is.
	NativeIDs(messages []chat.Message) map[string]string
}

// Reasoning implements Native.
func (d *declared) Reasoning() (open, close string) {
	if r := d.spec.Reasoning; r != nil {
		return r.Open, r.Close
	}
	return "", ""
}

// NativeIDs implements Native.
func (d *declared) NativeIDs(messages []chat.Message) map[string]string {
	return nativeIDs(d.spec.IDs, messages)
}

func markersOf(s *Spec) []string {
	all := slices.Concat(s.Stops, s.Tokens)
	if r := s.Reasoning; r != nil {
		for _, m := range []string{r.Open, r.Close} {
			within := func(token string) bool { return strings.Contains(m, token) }
			if !slices.ContainsFunc(s.Tokens, within) {
				all = append(all, m)
			}
		}
	}
	var out []string
	for _, m := range all {
		if m != "" && !slices.Contains(out, m) {
			out = append(out, m)
		}
	}
	return out
}

func randomID() string {
	var b [12]byte
	rand.Read(b[:])
	return "call_" + hex.EncodeToString(b[:])
}

const alnum = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

// alnumID is nine letters and digits.
func alnumID() string {
	var b [9]byte
	rand.Read(b[:])
	return alnumOf(b)
}

func alnumOf(b [9]byte) string {
	for i, c := range b {
		b[i] = alnum[int(c)%len(alnum)]
	}
	return string(b[:])
}

// grammar is what the parser reads of a Spec, ready to match.
type grammar struct {
	calls         *CallsSpec
	opens, closes [][]byte
	noise         [][]byte
	edges         [][]byte // opens, closes and the item's own
	edge          [256]bool
	stops         *stopSet
	tagged        *taggedGrammar
	bareTagged    bool
	json          *JSONSpec
	literal       bool
	nested        *nestedGrammar
	strings       []byte // around strings in JSON
	header        *headerGrammar
	messages      *messageGrammar
	hasReasoning  bool
	endedByCall   bool
	bareClose     bool // a reply may begin with the marker that closes reasoning
	anywhere      bool
	nativeID      bool
	jsonFirst     bool // bare JSON is a call with its name, if it can be

	inContent, inContentOnly     *finder // with and without the markup of calls
	inReasoning, inReasoningOnly *finder
}

func newGrammar(s *Spec) *grammar {
	g := &grammar{calls: s.Calls, stops: newStopSet(s.Stops), nativeID: s.IDs == "header" || s.IDs == "sequence"}
	var content, reasoning, calls []marker
	if r := s.Reasoning; r != nil {
		g.hasReasoning, g.endedByCall, g.anywhere = true, r.EndedByCall, r.Anywhere
		g.bareClose = r.BareClose
		content = []marker{{[]byte(r.Open), markReasonOpen}, {[]byte(r.Close), markReasonClose}}
		reasoning = slices.Clone(content)
	}
	for _, f := range s.Frames {
		open, shut := markFrameOpen, markFrameClose
		if f.Anywhere {
			open, shut = markFrameFree, markFrameFree
		}
		if f.Open != "" {
			content = append(content, marker{[]byte(f.Open), open})
		}
		if f.Close != "" {
			content = append(content, marker{[]byte(f.Close), shut})
		}
	}
	if c := s.Calls; c != nil {
		g.opens, g.closes, g.noise = texts(c.Open), texts(c.Close), texts(c.Noise)
		g.json = c.JSON
		g.literal = c.Literal
		if c.Nested != nil {
			g.nested = newNestedGrammar(c.Nested)
		}
		if c.Strings != "" {
			g.strings = []byte(c.Strings)
		}
		if c.Tagged != nil {
			for _, v := range c.Tagged.Variants {
				vary := func(list []string) (out [][]byte) {
					for _, m := range list {
						if strings.Contains(m, c.Tagged.Mark) {
							out = append(out, []byte(strings.ReplaceAll(m, c.Tagged.Mark, v)))
						}
					}
					return out
				}
				g.opens, g.closes = append(g.opens, vary(c.Open)...), append(g.closes, vary(c.Close)...)
			}
			g.tagged = newTaggedGrammar(c.Tagged, g)
			for _, v := range c.Tagged.Variants {
				r := strings.NewReplacer(c.Tagged.Mark, v)
				g.tagged.vary(&TaggedSpec{
					Open: r.Replace(c.Tagged.Open), Close: r.Replace(c.Tagged.Close),
					Param: r.Replace(c.Tagged.Param), ParamClose: r.Replace(c.Tagged.ParamClose),
				})
			}
			g.bareTagged = c.Bare != "" && !g.tagged.open.inline
		}
		if c.Header != nil {
			g.header = newHeaderGrammar(c.Header)
		}
		g.edges = slices.Concat(g.opens, g.closes)
		if g.tagged != nil && len(g.tagged.close) > 0 {
			g.edges = append(g.edges, g.tagged.close)
		}
		if g.header != nil && len(g.header.close) > 0 {
			g.edges = append(g.edges, g.header.close)
		}
		for _, e := range g.edges {
			g.edge[e[0]] = true
		}
		calls = g.callMarkers()
	}
	if c := s.Calls; c != nil && c.Messages != nil {
		g.useMessages(c.Messages, calls)
		return g
	}
	g.inContentOnly, g.inReasoningOnly = newFinder(content), newFinder(reasoning)
	leftover := slices.Clone(content)
	for _, t := range g.closes {
		leftover = append(leftover, marker{t, markLeftover})
	}
	if g.tagged != nil && len(g.tagged.close) > 0 {
		leftover = append(leftover, marker{g.tagged.close, markLeftover})
	}
	g.inContent = newFinder(append(leftover, calls...))
	g.inReasoning = newFinder(slices.Concat(reasoning, calls))
	return g
}

// callMarkers are the markers that may open calls in running text.
func (g *grammar) callMarkers() []marker {
	var out []marker
	for _, t := range g.opens {
		out = append(out, marker{t, markWrapper})
	}
	if g.calls.Bare == "" {
		return out
	}
	if g.bareTagged {
		out = append(out, marker{g.tagged.open.before, markBare})
		for _, v := range g.tagged.variants {
			out = append(out, marker{v.open.before, markBare})
		}
	}
	if g.nested != nil {
		out = append(out, marker{g.nested.open.before, markBare})
	}
	if g.header != nil && len(g.header.open) > 0 {
		out = append(out, marker{g.header.open, markBare})
	}
	if g.json != nil && g.tagged == nil && g.header == nil {
		out = append(out, marker{[]byte("{"), markBare})
	}
	if (g.json != nil || g.literal) && g.tagged == nil && g.header == nil {
		out = append(out, marker{[]byte("["), markBare})
	}
	return out
}

func newTaggedGrammar(s *TaggedSpec, g *grammar) *taggedGrammar {
	t := &taggedGrammar{
		open: newTag(s.Open), param: newTag(s.Param),
		close: []byte(s.Close), paramClose: []byte(s.ParamClose),
		trim: s.Trim == "newline" || s.Trim == "pair", pair: s.Trim == "pair", first: s.End == "first", attr: s.StringAttr,
		typeAttr: s.TypeAttr, textTypes: s.TextTypes, idAttr: s.IDAttr, entities: s.Entities,
	}
	t.lead = t.paramClose[0]
	if !t.first && t.paramClose[len(t.paramClose)-1] == '>' {
		t.closeStem = t.paramClose[:len(t.paramClose)-1]
	}
	all := slices.Concat([][]byte{t.close, t.paramClose, t.open.before, t.param.before}, g.opens, g.closes)
	for _, lit := range all {
		if len(lit) > 1 {
			t.second[lit[1]] = true
		}
	}
	return t
}

// vary adds another way to write the tags.
func (t *taggedGrammar) vary(s *TaggedSpec) {
	v := &taggedGrammar{open: newTag(s.Open), param: newTag(s.Param), close: []byte(s.Close), paramClose: []byte(s.ParamClose)}
	for _, lit := range [][]byte{v.close, v.paramClose, v.open.before, v.param.before} {
		if len(lit) > 1 {
			t.second[lit[1]] = true
		}
	}
	t.variants = append(t.variants, v)
}

func texts(list []string) [][]byte {
	var out [][]byte
	for _, s := range list {
		out = append(out, []byte(s))
	}
	return out
}
