package format

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-dev/penstock/sdk/chat"
)

// view is a conversation as all templates see it.
type view struct {
	// System is the text of the leading system messages, HasSystem whether
	// there are any.
	System    sourced
	HasSystem bool
	// Think and NoThink say whether reasoning is wanted; neither is set where
	// the model decides.
	Think, NoThink bool
	// AfterUser and AfterTool say what the message before is, or for the turn
	// to write, the last one.
	AfterUser, AfterTool bool

	r       *renderer
	c       *chat.Conversation
	calls   int               // before the message that is written
	leading int               // leading system messages
	first   int               // index of the first message of a user
	query   int               // index of the last real message of a user, -1: none
	ids     map[string]string // native ids by the client's, of formats that have them
	tools   []toolView
	read    bool              // tools are there
	tooled  bool              // there are tools or results of some
	run     int               // messages of results in a row before the one that is written
	names   map[string]string // of called tools by the calls' ids,
	named   int               // in so many messages
}

// toolView is a tool as templates see it.
type toolView struct {
	Name, Description string
	Parameters        Value
	// Function is {name, description, parameters}; Definition is
	// {type: "function", function}.
	Function, Definition Value
}

// messageView is a message, or one result of a tool, as templates see it,
// besides the view of the conversation.
type messageView struct {
	*view
	Text      string
	Reasoning string
	// Keep says that reasoning of this message is rendered; Reasoned that it has
	// some, whether rendered or not.
	Keep, Reasoned bool
	Calls          []callView
	// First and Last say that the neighbours are no tool results.
	First, Last bool
	// FirstTurn says that it is the first message of a user; LastTurn that it
	// is the last one, or comes after it.
	FirstTurn, LastTurn bool
	// Name, ID and Index are those of a result: of its tool, of its call, and
	// its place among the results of its run.
	Name, ID string
	Index    int
}

// callView is a call as templates see it.
type callView struct {
	ID, Name string
	// Params are the members of the arguments. Arguments that are no object
	// are in Raw, as text.
	Params []Member
	Args   Value
	Raw    string
	// First and Last are its place in its turn.
	First, Last bool
	Index       int // among all calls of the conversation
}

// JSON is the arguments as Python spells them.
func (c callView) JSON() string {
	if c.Raw != "" {
		return c.Raw
	}
	return c.Args.JSON()
}

func newView(r *renderer, c *chat.Conversation) *view {
	v := &view{r: r, c: c, query: -1}
	var system []string
	for v.leading < len(c.Messages) && c.Messages[v.leading].Role == chat.System {
		system = append(system, joinText(c.Messages[v.leading].Parts, "\n\n"))
		v.leading++
	}
	v.HasSystem = v.leading > 0
	v.System = sourced(strings.Join(system, "\n\n"))
	thinks := r.spec.Thinking
	if c.Thinking != nil {
		thinks = "off"
		if *c.Thinking {
			thinks = "on"
		}
	}
	v.Think, v.NoThink = thinks == "on", thinks == "off"
	v.query = lastQuery(c.Messages)
	v.tooled = len(c.Tools) > 0 || slices.ContainsFunc(c.Messages, func(m chat.Message) bool { return m.Role == chat.ToolRole })
	v.first = slices.IndexFunc(c.Messages, func(m chat.Message) bool { return m.Role == chat.User })
	v.ids = nativeIDs(r.ids, c.Messages)
	return v
}

// nativeIDs maps the ids of calls by a scheme.
func nativeIDs(scheme string, messages []chat.Message) map[string]string {
	switch scheme {
	case "header":
		return headerIDs(messages)
	case "sequence":
		return sequenceIDs(messages)
	case "alnum9":
		return alnumIDs(messages)
	}
	return nil
}

// headerIDs maps the ids of calls to what the model expects. An id that the
// model wrote stays; one from elsewhere becomes functions.NAME:INDEX, the index
// counting the calls of the conversation.
func headerIDs(messages []chat.Message) map[string]string {
	ids := map[string]string{}
	n := 0
	for _, m := range messages {
		for _, p := range chat.Calls(m.Parts) {
			ids[p.ID] = p.ID
			if i := strings.LastIndexByte(p.ID, ':'); i < 1 || i+1 == len(p.ID) || strings.Trim(p.ID[i+1:], "0123456789") != "" {
				ids[p.ID] = fmt.Sprintf("functions.%s:%d", p.Name, n)
			}
			n++
		}
	}
	return ids
}

// sequenceIDs maps the ids of calls to numbers that count them.
func sequenceIDs(messages []chat.Message) map[string]string {
	ids := map[string]string{}
	for _, m := range messages {
		for _, p := range chat.Calls(m.Parts) {
			ids[p.ID] = strconv.Itoa(len(ids))
		}
	}
	return ids
}

// alnumIDs maps the ids of calls to nine letters and digits, by a hash where
// they are something else.
func alnumIDs(messages []chat.Message) map[string]string {
	ids := map[string]string{}
	for _, m := range messages {
		for _, p := range chat.Calls(m.Parts) {
			ids[p.ID] = p.ID
			if len(p.ID) != 9 || strings.Trim(p.ID, alnum) != "" {
				sum := sha256.Sum256([]byte(p.ID))
				ids[p.ID] = alnumOf([9]byte(sum[:9]))
			}
		}
	}
	return ids
}

// id is the id that is written for the client's.
func (v *view) id(client string) string {
	if id, ok := v.ids[client]; ok {
		return id
	}
	return client
}
