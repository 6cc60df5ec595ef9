package trace

import (
	"sync"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/format"
)

// Graph links the calls of one session.
type Graph struct {
	session string
	mu      sync.Mutex
	forks   map[string]int
}

// NewGraph returns the empty graph of a session.
func NewGraph(session string) *Graph { return &Graph{session: session, forks: map[string]int{}} }

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
	// can't be extended: it is Call.Parent in the record. "" for the first
	// call of a conversation.
	Base string
	// Class says why the newest assistant message is not the reply that the
	// prompt extends, "" when it is or when there is none.
	Class   string
	Lineage string
	Kind    Kind
}

// Link finds the call that c, a request as received and before hooks,
// continues, and reserves its lineage. Each link must end in Add or Drop.
func (g *Graph) Link(c *chat.Conversation) *Link {
	return &Link{Lineage: g.session + "/main0", Kind: Main}
}

// Add enters a call after its commit, with its reply as served.
func (g *Graph) Add(l *Link, c *chat.Conversation, served *chat.Reply, n Node) {}

// Drop gives back what Link reserved for a call that has no reply.
func (g *Graph) Drop(l *Link) {}

// Forks counts the requests that could not be linked in full, by class.
func (g *Graph) Forks() map[string]int { return nil }
