package trace

import (
	"slices"
	"strconv"
	"sync"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/format"
)

// The classes of requests that can't be linked in full, beside those that a
// format finds.
const (
	EditedHistory = "edited_history" // a reply is known, but it or what precedes it was changed
	SystemChanged = "system_changed"
	ToolsChanged  = "tools_changed"
	UnknownTurn   = "unknown_turn" // an assistant message that was never a reply here, or only one that reads the same
)

// Graph links the calls of one session and names their lineages. Its methods
// may be called from several goroutines.
//
// A lineage is named when its first call arrives, by what can be told then:
//
//   - main: the first conversation that offers tools, or, while there is
//     none, the first that is continued
//   - probe: a conversation that asks for one token only
//   - side: one that offers no tools, such as a request for a title
//   - continuation: one that starts with the main one's system prompt and
//     tools, as after a compaction, or a branch of the main one
//   - sub_agent: any other one
//
// Store.Calls adds what can be told only later.
type Graph struct {
	session string

	canonical sync.Mutex // guards canon
	canon     canon

	mu       sync.Mutex // guards the rest
	replies  map[key][]*node
	bodies   map[key]*node
	said     map[key]*node // by the reply alone
	told     map[key]bool  // what was said to the assistant
	requests map[key]*node // by the messages before the reply
	main     *lineage
	counts   map[Kind]int
	forks    map[string]int
}

// NewGraph returns the empty graph of a session.
func NewGraph(session string) *Graph {
	return &Graph{
		session: session,
		replies: map[key][]*node{}, bodies: map[key]*node{}, said: map[key]*node{}, told: map[key]bool{}, requests: map[key]*node{},
		counts: map[Kind]int{}, forks: map[string]int{},
	}
}

// Node is a call in the graph, with the ids that a later call extends.
type Node struct {
	Call       string
	Lineage    string
	Kind       Kind
	PromptIDs  []int32
	SampledIDs []int32
	Ended      format.Ended
}

// Link is where a request stands in its session.
type Link struct {
	// Parent is the call whose ids the prompt may extend, nil when there is
	// none. Message is the index of its reply among the request's messages.
	Parent  *Node
	Message int
	// Base is the id of the call that this one follows, also where its ids
	// can't be extended: it is Call.Parent in the record. It is "" for the
	// first call of a conversation.
	Base string
	// Class says why the newest assistant message is not the reply that the
	// prompt extends, "" when it is or when there is none. With a Parent the
	// prompt still extends an earlier reply.
	Class   string
	Lineage string
	Kind    Kind
	// Earlier counts the calls of a side conversation that this link has shown
	// to be the main one; 0 for any other link.
	Earlier int

	walk   *walk
	line   *lineage
	parent *node // of Parent
	after  *node // whose child this is
	done   bool
}

// lineage is a conversation that goes on. Its name may change once, when a
// side conversation turns out to be the main one.
type lineage struct {
	kind   Kind
	name   string
	system key
	tools  map[key]bool // toolsets seen
	names  []string     // of the tools at the start
	calls  int          // linked and not dropped
}

// node is a call with its reply. Its prompt's ids are those of the node that
// it extends and a suffix, so that a session holds each id once.
type node struct {
	call      string
	line      *lineage
	reasoning key
	request   key
	tools     key
	extends   *node
	suffix    []int32
	sampled   []int32
	ended     format.Ended
	length    int // of prompt and sampled ids
	after     *node
	children  int // linked and not dropped
}

// Link finds the call that c, a request as received and before hooks,
// continues, and reserves its lineage. Each link must end in Add or Drop.
func (g *Graph) Link(c *chat.Conversation) *Link {
	g.canonical.Lock()
	w := g.canon.walk(c)
	g.canonical.Unlock()

	g.mu.Lock()
	defer g.mu.Unlock()
	l := &Link{walk: w}
	parent, at := g.longest(w)
	newest := g.classify(l, w, parent, at)
	if parent != nil && parent.tools == w.tools {
		l.parent, l.Message, l.Base = parent, at.message, parent.call
	} else if newest != nil {
		l.Base = newest.call
	}
	g.place(l, newest)
	if l.parent != nil {
		l.Parent = l.parent.export()
	}
	return l
}

// longest finds the latest assistant message of w that, with all before it,
// is a reply of this session.
func (g *Graph) longest(w *walk) (*node, turn) {
	for _, t := range slices.Backward(w.turns) {
		if nodes := g.replies[t.full]; len(nodes) > 0 {
			return pick(nodes, t.reasoning), t
		}
	}
	return nil, turn{}
}

// pick chooses among calls that were answered alike: the one with the same
// reasoning, else one that nothing continues yet, else the latest.
func pick(nodes []*node, reasoning key) *node {
	best, score := nodes[len(nodes)-1], -1
	for _, n := range slices.Backward(nodes) {
		s := 0
		if reasoning != (key{}) && n.reasoning == reasoning {
			s += 2
		}
		if n.children == 0 {
			s++
		}
		if s > score {
			best, score = n, s
		}
	}
	return best
}

// classify sets the class of l and returns the call that the newest assistant
// message comes from, as far as can be told, else the parent.
func (g *Graph) classify(l *Link, w *walk, parent *node, at turn) *node {
	if len(w.turns) == 0 {
		return nil
	}
	t := w.turns[len(w.turns)-1]
	if parent != nil && at.message == t.message {
		if parent.tools != w.tools {
			l.Class = ToolsChanged
		}
		return parent
	}
	if n := g.bodies[t.body]; n != nil {
		l.Class = SystemChanged
		return n
	}
	if n := g.said[t.reply]; n != nil && (t.calls || g.heard(w)) {
		l.Class = EditedHistory
		return n
	}
	if n := g.requests[t.before]; n != nil {
		l.Class = EditedHistory
		return n
	}
	l.Class = UnknownTurn
	return parent
}

// heard reports whether anything that a request says to the assistant was said
// to it before. Where nothing was, a reply in few words, such as "Done.", is the
// same by chance.
func (g *Graph) heard(w *walk) bool {
	return slices.ContainsFunc(w.told, func(k key) bool { return g.told[k] })
}

// place gives l its lineage: that of the call that it follows, unless another
// call follows that one already, else one of its own.
func (g *Graph) place(l *Link, after *node) {
	if after != nil && after.children == 0 {
		l.line = after.line
	} else if r := g.repeated(l.walk, after); r != nil {
		l.line = r.line
	} else {
		l.line = g.open(l.walk, after)
	}
	l.after = after
	if after != nil {
		after.children++
		if l.line == after.line && l.line.kind == Side && g.main == nil {
			l.Earlier = l.line.calls
			g.promote(l.line)
		}
	}
	l.line.calls++
	l.line.tools[l.walk.tools] = true
	l.Lineage, l.Kind = l.line.name, l.line.kind
}

// repeated returns the earlier call that made this very request, if its reply
// came and nothing continued it: clients throw a reply away that they find
// cut or too short, and ask again.
func (g *Graph) repeated(w *walk, after *node) *node {
	n := g.requests[w.full]
	if n == nil || n.children > 0 || n.after != after || n.tools != w.tools {
		return nil
	}
	return n
}

// open starts a lineage.
func (g *Graph) open(w *walk, after *node) *lineage {
	kind := Main
	switch {
	case after != nil:
		if kind = after.line.kind; kind == Main {
			kind = Continuation
		}
	case w.probe:
		kind = Probe
	case w.tools == (key{}):
		kind = Side
	case g.main == nil:
	case g.main.system == w.system && (g.main.tools[w.tools] || contains(w.names, g.main.names)):
		kind = Continuation
	default:
		kind = SubAgent
	}
	line := &lineage{kind: kind, name: g.name(kind), system: w.system, names: w.names, tools: map[key]bool{}}
	if kind == Main {
		g.main = line
	}
	return line
}

// name is the next name of a kind. There is one main lineage; a failed first
// call leaves its name to the next one.
func (g *Graph) name(kind Kind) string {
	k := 0
	if kind != Main {
		k = g.counts[kind]
		g.counts[kind]++
	}
	return g.path(kind, k)
}

func (g *Graph) path(kind Kind, k int) string {
	return g.session + "/" + string(kind) + strconv.Itoa(k)
}

func (g *Graph) promote(line *lineage) {
	line.kind, line.name = Main, g.name(Main)
	g.main = line
}

// contains reports whether all of b, sorted, is in a, sorted.
func contains(a, b []string) bool {
	for _, s := range b {
		if _, ok := slices.BinarySearch(a, s); !ok {
			return false
		}
	}
	return true
}

// Add enters a call after its commit: c as received, the reply as served and
// the ids of n. The link's own lineage holds unless n names another.
func (g *Graph) Add(l *Link, c *chat.Conversation, served *chat.Reply, n Node) {
	if served == nil {
		g.Drop(l)
		return
	}
	g.canonical.Lock()
	s := g.canon.newSaid()
	s.add(served.Parts)
	reply, reasoning := s.key(), s.reasoningKey()
	g.canonical.Unlock()

	g.mu.Lock()
	defer g.mu.Unlock()
	if l.done {
		return
	}
	l.done = true
	if l.Class != "" {
		g.forks[l.Class]++
	}
	v := &node{
		call: n.Call, line: l.line, reasoning: reasoning, request: l.walk.full, tools: l.walk.tools,
		suffix: n.PromptIDs, sampled: n.SampledIDs, ended: n.Ended,
		length: len(n.PromptIDs) + len(n.SampledIDs), after: l.after,
	}
	if p := l.parent; p != nil && p.length > 0 && p.begins(n.PromptIDs) {
		v.extends, v.suffix = p, slices.Clone(n.PromptIDs[p.length:])
	}
	full, body := follow(l.walk.full, reply), follow(l.walk.body, reply)
	g.replies[full] = append(g.replies[full], v)
	g.bodies[body] = v
	g.requests[v.request] = v
	if reply != (key{}) {
		g.said[reply] = v
	}
	for _, k := range l.walk.told {
		g.told[k] = true
	}
}

// Drop gives back what Link reserved for a call that got no reply, so that
// the client's next try takes its place, or for a request that generates
// nothing.
func (g *Graph) Drop(l *Link) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if l.done {
		return
	}
	l.done = true
	if l.after != nil {
		l.after.children--
	}
	if l.line.calls--; l.line.calls > 0 {
		return
	}
	if g.main == l.line {
		g.main = nil
	} else if l.line.name == g.path(l.line.kind, g.counts[l.line.kind]-1) {
		g.counts[l.line.kind]--
	}
}

// Main says whether the session has a main lineage so far.
func (g *Graph) Main() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.main != nil
}

// Forks counts the calls that could not be linked in full, by class.
func (g *Graph) Forks() map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make(map[string]int, len(g.forks))
	for class, n := range g.forks {
		out[class] = n
	}
	return out
}

// path returns n and the nodes that it extends, the oldest first.
func (n *node) path() []*node {
	var out []*node
	for v := n; v != nil; v = v.extends {
		out = append(out, v)
	}
	slices.Reverse(out)
	return out
}

func (n *node) export() *Node {
	prompt := make([]int32, 0, n.length-len(n.sampled))
	for _, v := range n.path() {
		prompt = append(prompt, v.suffix...)
		if v != n {
			prompt = append(prompt, v.sampled...)
		}
	}
	return &Node{Call: n.call, Lineage: n.line.name, Kind: n.line.kind,
		PromptIDs: prompt, SampledIDs: n.sampled, Ended: n.ended}
}

// begins reports whether ids begin with the ids of n, prompt and sampled.
func (n *node) begins(ids []int32) bool {
	if len(ids) < n.length {
		return false
	}
	for _, v := range n.path() {
		for _, part := range [][]int32{v.suffix, v.sampled} {
			if !slices.Equal(part, ids[:len(part)]) {
				return false
			}
			ids = ids[len(part):]
		}
	}
	return true
}
