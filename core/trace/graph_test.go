package trace

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/format"
)

func msg(role chat.Role, parts ...chat.Part) chat.Message {
	return chat.Message{Role: role, Parts: parts}
}

func txt(s string) chat.Part { return chat.Part{Type: chat.Text, Text: s} }

func thought(s string) chat.Part { return chat.Part{Type: chat.Reasoning, Text: s} }

func toolCall(id, name, arguments string) chat.Part {
	return chat.Part{Type: chat.ToolCall, ID: id, Name: name, Arguments: []byte(arguments)}
}

func result(id string, content ...chat.Part) chat.Message {
	return msg(chat.ToolRole, chat.Part{Type: chat.ToolResult, ID: id, Content: content})
}

func talkOf(messages ...chat.Message) *chat.Conversation {
	return &chat.Conversation{Messages: messages, Tools: []chat.Tool{{Name: "calc", Parameters: []byte(`{"type":"object"}`)}}}
}

// answer links c, adds it with a reply, and returns the link.
func answer(g *Graph, call string, c *chat.Conversation, parts ...chat.Part) *Link {
	l := g.Link(c)
	prompt := []int32{100, 101}
	if l.Parent != nil {
		prompt = append(append(append(prompt[:0:0], l.Parent.PromptIDs...), l.Parent.SampledIDs...), 7)
	}
	g.Add(l, c, &chat.Reply{Parts: parts}, Node{Call: call, PromptIDs: prompt,
		SampledIDs: []int32{int32(len(call)), int32(call[len(call)-1])}, Ended: format.EndedStop})
	return l
}

func TestLinkComparesWhatWasSaid(t *testing.T) {
	served := []chat.Part{thought("hm"), txt("Let me see."), toolCall("t1", "calc", `{"a":1,"b":[true,"é",12345678901234567890],"c":{"x":null,"y":0.10}}`)}
	question := []chat.Message{msg(chat.System, txt("Be brief.")), msg(chat.User, txt("one"), txt("two"))}
	asked := func(reply ...chat.Message) *chat.Conversation {
		return talkOf(append(append(append([]chat.Message{}, question...), reply...), result("t1", txt("2")))...)
	}
	same := toolCall("t1", "calc", `{"a":1,"b":[true,"é",12345678901234567890],"c":{"x":null,"y":0.10}}`)
	tests := []struct {
		name string
		ask  *chat.Conversation
		// class of the link; "" is a full one
		class string
	}{
		{"as served", asked(msg(chat.Assistant, served...)), ""},
		{"reasoning left out", asked(msg(chat.Assistant, txt("Let me see."), same)), ""},
		{"key order, spelling of strings and numbers, spaces", asked(msg(chat.Assistant, txt("Let me see."),
			toolCall("t1", "calc", `{ "c": {"y":1e-1,"x":null}, "b":[true,"\u00e9",12345678901234567890.0], "a":1 }`))), ""},
		{"empty text beside the call", asked(msg(chat.Assistant, txt("Let me see."), txt(""), same, txt(""))), ""},
		{"text cut in parts", asked(msg(chat.Assistant, txt("Let me "), txt("see."), same)), ""},
		{"reply in two messages", asked(msg(chat.Assistant, txt("Let me see.")), msg(chat.Assistant, same)), ""},
		{"an empty user message between", asked(msg(chat.Assistant, txt("Let me see."), same), msg(chat.User, txt(""))), ""},
		{"another text", asked(msg(chat.Assistant, txt("Let me see"), same)), EditedHistory},
		{"another id", asked(msg(chat.Assistant, txt("Let me see."), toolCall("t2", "calc", string(same.Arguments)))), EditedHistory},
		{"another name", asked(msg(chat.Assistant, txt("Let me see."), toolCall("t1", "Calc", string(same.Arguments)))), EditedHistory},
		{"a big integer that was rounded", asked(msg(chat.Assistant, txt("Let me see."),
			toolCall("t1", "calc", strings.Replace(string(same.Arguments), "12345678901234567890", "12345678901234567000", 1)))), EditedHistory},
		{"a string for a number", asked(msg(chat.Assistant, txt("Let me see."),
			toolCall("t1", "calc", strings.Replace(string(same.Arguments), `"a":1`, `"a":"1"`, 1)))), EditedHistory},
		{"two calls", asked(msg(chat.Assistant, txt("Let me see."), same, toolCall("t9", "calc", "{}"))), EditedHistory},
		{"the user's parts in two messages", talkOf(question[0], msg(chat.User, txt("one")), msg(chat.User, txt("two")),
			msg(chat.Assistant, served...), result("t1", txt("2"))), ""},
		{"the user's parts joined", talkOf(question[0], msg(chat.User, txt("onetwo")),
			msg(chat.Assistant, served...), result("t1", txt("2"))), EditedHistory},
		{"the user's text changed", talkOf(question[0], msg(chat.User, txt("one"), txt("three")),
			msg(chat.Assistant, served...), result("t1", txt("2"))), EditedHistory},
		{"a message inserted", talkOf(question[0], question[1], msg(chat.System, txt("Note.")),
			msg(chat.Assistant, served...), result("t1", txt("2"))), EditedHistory},
		{"the system prompt changed", talkOf(msg(chat.System, txt("Be brief. It is 12:01.")), question[1],
			msg(chat.Assistant, served...), result("t1", txt("2"))), SystemChanged},
		{"the system prompt gone", talkOf(question[1], msg(chat.Assistant, served...), result("t1", txt("2"))), SystemChanged},
		{"never said", talkOf(question[0], msg(chat.User, txt("else")), msg(chat.Assistant, txt("Written by the client.")),
			msg(chat.User, txt("go on"))), UnknownTurn},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := NewGraph("s")
			answer(g, "s.1", talkOf(question...), served...)
			l := answer(g, "s.2", test.ask, txt("next"))
			assert.Equal(t, test.class, l.Class)
			if test.class != "" {
				assert.Nil(t, l.Parent)
				assert.Equal(t, map[string]int{test.class: 1}, g.Forks())
				return
			}
			require.NotNil(t, l.Parent)
			assert.Equal(t, "s.1", l.Parent.Call)
			assert.Equal(t, "s.1", l.Base)
			assert.Equal(t, chat.Assistant, test.ask.Messages[l.Message].Role)
			assert.NotEqual(t, chat.Assistant, test.ask.Messages[l.Message+1].Role, "the last message of the reply")
			assert.Equal(t, "s/main0", l.Lineage)
			assert.Empty(t, g.Forks())
		})
	}
}

// TestUnrelatedConversationIsNotEdited: what a client holds of a talk that it had
// elsewhere may have a reply that was given here too.
func TestUnrelatedConversationIsNotEdited(t *testing.T) {
	other := func(said chat.Part, more ...chat.Message) *chat.Conversation {
		return talkOf(append([]chat.Message{msg(chat.System, txt("Be brief.")), msg(chat.User, txt("paint the shed")), msg(chat.Assistant, said)}, more...)...)
	}
	for name, c := range map[string]struct {
		ask   *chat.Conversation
		class string
	}{
		"another talk":              {other(txt("Done."), msg(chat.User, txt("and now the fence"))), UnknownTurn},
		"its end is not its own":    {other(txt("Sure."), msg(chat.User, txt("go on")), msg(chat.Assistant, txt("Done."))), UnknownTurn},
		"a later question is known": {other(txt("Sure."), msg(chat.User, txt("count the rows")), msg(chat.Assistant, txt("Done."))), EditedHistory},
		"the call has its own id":   {other(toolCall("t1", "calc", "{}"), result("t1", txt("2"))), EditedHistory},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewGraph("s")
			first := talkOf(msg(chat.System, txt("Be brief.")), msg(chat.User, txt("count the rows")))
			answer(g, "s.1", first, txt("Done."))
			answer(g, "s.2", talkOf(append(first.Messages, msg(chat.Assistant, txt("Done.")), msg(chat.User, txt("again")))...), toolCall("t1", "calc", "{}"))
			l := g.Link(c.ask)
			assert.Equal(t, c.class, l.Class)
			assert.Equal(t, c.class == EditedHistory, l.Base != "", "it follows a call of this session: %s", l.Base)
		})
	}
}

func TestLinkUsesTheReplyAsServed(t *testing.T) {
	g := NewGraph("s")
	first := talkOf(msg(chat.User, txt("hi")))
	answer(g, "s.1", first, txt("[masked]"))
	l := g.Link(talkOf(first.Messages[0], msg(chat.Assistant, txt("secret")), msg(chat.User, txt("go on"))))
	assert.Nil(t, l.Parent, "what a hook replaced is not what the client has")
	g.Drop(l)
	l = g.Link(talkOf(first.Messages[0], msg(chat.Assistant, txt("[masked]")), msg(chat.User, txt("go on"))))
	require.NotNil(t, l.Parent)
	assert.Equal(t, []int32{100, 101}, l.Parent.PromptIDs)
	assert.Equal(t, []int32{3, '1'}, l.Parent.SampledIDs)
	assert.Equal(t, format.EndedStop, l.Parent.Ended)
}

func TestToolsChangedForks(t *testing.T) {
	g := NewGraph("s")
	first := talkOf(msg(chat.User, txt("hi")))
	answer(g, "s.1", first, txt("a"))
	second := talkOf(first.Messages[0], msg(chat.Assistant, txt("a")), msg(chat.User, txt("b")))
	second.Tools[0].Parameters = []byte(`{ "type" : "object" }`)
	assert.NotNil(t, answer(g, "s.2", second, txt("c")).Parent, "the same schema, spaced otherwise")
	third := talkOf(append(second.Messages, msg(chat.Assistant, txt("c")), msg(chat.User, txt("d")))...)
	third.Tools = append(third.Tools, chat.Tool{Name: "loaded"})
	l := answer(g, "s.3", third, txt("e"))
	assert.Nil(t, l.Parent)
	assert.Equal(t, ToolsChanged, l.Class)
	assert.Equal(t, "s.2", l.Base)
	assert.Equal(t, "s/main0", l.Lineage, "the conversation goes on all the same")
}

func TestLongestMatchWins(t *testing.T) {
	g := NewGraph("s")
	c := talkOf(msg(chat.User, txt("0")))
	for i := 1; i <= 5; i++ {
		reply := txt(fmt.Sprint("a", i))
		l := answer(g, fmt.Sprintf("s.%d", i), c, reply)
		if i > 1 {
			assert.Equal(t, fmt.Sprintf("s.%d", i-1), l.Parent.Call)
			assert.Len(t, l.Parent.PromptIDs, 2+3*(i-2), "ids are joined over the chain")
		}
		c = talkOf(append(c.Messages, msg(chat.Assistant, reply), msg(chat.User, txt(fmt.Sprint(i))))...)
	}
	// An edit in the middle: the ids up to it are still good, and the call
	// branches off there although the conversation goes on.
	edited := talkOf(append([]chat.Message{}, c.Messages...)...)
	edited.Messages[6] = msg(chat.User, txt("edited"))
	l := g.Link(edited)
	assert.Equal(t, "s.3", l.Parent.Call)
	assert.Equal(t, 5, l.Message)
	assert.Equal(t, EditedHistory, l.Class)
	assert.Equal(t, "s/main0", l.Lineage)
}

func TestParallelSubAgentsFindTheirOwn(t *testing.T) {
	g := NewGraph("s")
	answer(g, "s.1", talkOf(msg(chat.System, txt("main")), msg(chat.User, txt("task"))), toolCall("t", "calc", "{}"))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			c := talkOf(msg(chat.System, txt("sub")), msg(chat.User, txt(fmt.Sprint("subtask ", i))))
			lineage := ""
			for turn := range 20 {
				call := fmt.Sprintf("s.%d.%d", i, turn)
				reply := txt("the same words")
				l := answer(g, call, c, reply)
				if turn == 0 {
					lineage = l.Lineage
					assert.Equal(t, SubAgent, l.Kind)
				} else if assert.NotNil(t, l.Parent) {
					assert.Equal(t, fmt.Sprintf("s.%d.%d", i, turn-1), l.Parent.Call)
				}
				assert.Equal(t, lineage, l.Lineage)
				c = talkOf(append(c.Messages, msg(chat.Assistant, reply), msg(chat.User, txt("next")))...)
			}
		})
	}
	wg.Wait()
}

func TestLineages(t *testing.T) {
	one := 1
	system, task := msg(chat.System, txt("You are an agent.")), msg(chat.User, txt("task"))
	main := talkOf(system, task)
	title := &chat.Conversation{Messages: []chat.Message{msg(chat.System, txt("Name it.")), task}}
	quota := &chat.Conversation{Messages: []chat.Message{msg(chat.User, txt("quota"))}, Sampling: chat.Sampling{MaxTokens: &one}}
	sub := talkOf(msg(chat.System, txt("You are a sub-agent.")), msg(chat.User, txt("part")))
	compacted := talkOf(system, msg(chat.User, txt("Summary of before: much.")))

	g := NewGraph("s")
	var got []string
	for _, c := range []*chat.Conversation{quota, title, main, title, sub, sub, compacted} {
		got = append(got, g.Link(c).Lineage)
	}
	assert.Equal(t, []string{"s/probe0", "s/side0", "s/main0", "s/side1", "s/sub_agent0", "s/sub_agent1", "s/continuation0"}, got)
}

func TestToolLessConversationIsMainOnceContinued(t *testing.T) {
	g := NewGraph("s")
	c := &chat.Conversation{Messages: []chat.Message{msg(chat.User, txt("hi"))}}
	assert.Equal(t, "s/side0", answer(g, "s.1", c, txt("a")).Lineage)
	c.Messages = append(c.Messages, msg(chat.Assistant, txt("a")), msg(chat.User, txt("b")))
	l := g.Link(c)
	assert.Equal(t, "s/main0", l.Lineage)
	assert.Equal(t, Main, l.Kind)
	assert.Equal(t, "s/main0", l.Parent.Lineage)
}

func TestBranchOpensALineage(t *testing.T) {
	g := NewGraph("s")
	c := talkOf(msg(chat.User, txt("hi")))
	answer(g, "s.1", c, txt("a"))
	go1 := talkOf(c.Messages[0], msg(chat.Assistant, txt("a")), msg(chat.User, txt("left")))
	go2 := talkOf(c.Messages[0], msg(chat.Assistant, txt("a")), msg(chat.User, txt("right")))
	assert.Equal(t, "s/main0", answer(g, "s.2", go1, txt("b")).Lineage)
	l := answer(g, "s.3", go2, txt("c"))
	assert.Equal(t, "s/continuation0", l.Lineage)
	assert.Equal(t, "s.1", l.Parent.Call, "its ids extend those of the first call all the same")
}

func TestFailedCallLeavesItsPlace(t *testing.T) {
	g := NewGraph("s")
	c := talkOf(msg(chat.User, txt("hi")))
	l := g.Link(c)
	g.Drop(l)
	g.Drop(l)
	assert.Equal(t, "s/main0", answer(g, "s.2", c, txt("a")).Lineage)
	next := talkOf(c.Messages[0], msg(chat.Assistant, txt("a")), msg(chat.User, txt("b")))
	g.Add(g.Link(next), next, nil, Node{})
	assert.Equal(t, "s/main0", answer(g, "s.4", next, txt("c")).Lineage)
	sub := talkOf(msg(chat.System, txt("sub")), msg(chat.User, txt("part")))
	for range 2 {
		counted := g.Link(sub)
		assert.Equal(t, "s/sub_agent0", counted.Lineage, "the name is given back too")
		g.Drop(counted)
	}
}

func TestRepeatTakesThePlaceOfAReplyThatWasThrownAway(t *testing.T) {
	g := NewGraph("s")
	c := talkOf(msg(chat.User, txt("hi")))
	answer(g, "s.1", c, txt("cut sh"))
	assert.Equal(t, "s/main0", answer(g, "s.2", c, txt("cut short no more")).Lineage)
	next := talkOf(c.Messages[0], msg(chat.Assistant, txt("cut short no more")), msg(chat.User, txt("b")))
	l := answer(g, "s.3", next, txt("c"))
	assert.Equal(t, "s.2", l.Parent.Call)
	assert.Equal(t, "s/main0", l.Lineage)
	// While one is under way, another is a second opinion, not a repeat.
	later := talkOf(append(next.Messages, msg(chat.Assistant, txt("c")), msg(chat.User, txt("d")))...)
	assert.Equal(t, "s/main0", g.Link(later).Lineage)
	assert.Equal(t, "s/continuation0", g.Link(later).Lineage)
}

func TestSameRepliesGoToTheOneThatIsStillOpen(t *testing.T) {
	g := NewGraph("s")
	c := talkOf(msg(chat.User, txt("vote")))
	a, b := g.Link(c), g.Link(c)
	for call, l := range map[string]*Link{"s.1": a, "s.2": b} {
		g.Add(l, c, &chat.Reply{Parts: []chat.Part{thought(call), txt("yes")}}, Node{Call: call, PromptIDs: []int32{1}, SampledIDs: []int32{2}})
	}
	next := func(parts ...chat.Part) *chat.Conversation {
		return talkOf(c.Messages[0], msg(chat.Assistant, parts...), msg(chat.User, txt("why")))
	}
	assert.Equal(t, "s.1", g.Link(next(thought("s.1"), txt("yes"))).Parent.Call, "the one with the same reasoning")
	assert.Equal(t, "s.2", g.Link(next(txt("yes"))).Parent.Call, "the one that nothing continues")
}

func TestNumbersAreComparedByValue(t *testing.T) {
	for _, same := range [][]string{
		{"1", "1.0", "1e0", "10e-1", "0.1E1", "1.000"},
		{"0", "-0", "0.0", "0e5"},
		{"-120", "-1.2e2", "-12E+1"},
		{"12345678901234567890", "1.2345678901234567890e19"},
	} {
		for _, s := range same {
			assert.Equal(t, number(same[0]), number(s), s)
		}
	}
	assert.NotEqual(t, number("9007199254740993"), number("9007199254740992"))
	assert.NotEqual(t, number("1"), number("-1"))
	assert.Equal(t, "1e99999999999999999999", number("1e99999999999999999999"))
}

func FuzzCanonicalJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.50,{"b":null}],"a":"\ud83d"}`, `"`, `[`, `{}x`, "\xff", `{"a":1e400}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		a, err := new(speller).value(raw)
		b, again := new(speller).value(append([]byte(" "), raw...))
		if string(a) != string(b) || (err == nil) != (again == nil) {
			t.Fatalf("%q depends on the space before it", raw)
		}
	})
}
