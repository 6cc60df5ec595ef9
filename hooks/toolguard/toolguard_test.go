package toolguard

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/doc"
	"github.com/penstock-dev/penstock/sdk/hook"
	"github.com/penstock-dev/penstock/sdk/schema"
)

func TestApply(t *testing.T) {
	for name, c := range map[string]struct {
		config, call string
		denied       string // the reason; empty: passes
	}{
		"no rule, allowed":       {`{"rules":[]}`, `{"name":"Bash","arguments":{}}`, ""},
		"no rule, denied":        {`{"rules":[],"default":"deny"}`, `{"name":"Bash","arguments":{}}`, "the call of Bash was not let through: no rule allows it"},
		"by name":                {`{"rules":[{"action":"deny","tool":"Bash","reason":"no shell here"}]}`, `{"name":"Bash","arguments":{}}`, "the call of Bash was not let through: no shell here"},
		"by name, case":          {`{"rules":[{"action":"deny","tool":"Bash"}]}`, `{"name":"bash","arguments":{}}`, "the call of bash was not let through"},
		"by name, another":       {`{"rules":[{"action":"deny","tool":"Bash"}]}`, `{"name":"BashOutput","arguments":{}}`, ""},
		"by pattern":             {`{"rules":[{"action":"deny","tool":"mcp__mail__*"}]}`, `{"name":"mcp__mail__send","arguments":{}}`, "the call of mcp__mail__send was not let through"},
		"a slash is a character": {`{"rules":[{"action":"deny","tool":"mail*"}]}`, `{"name":"mail/send","arguments":{}}`, "the call of mail/send was not let through"},
		"the first rule decides": {`{"rules":[{"action":"allow","tool":"Bash","arguments":{"command":"^ls( |$)"}},{"action":"deny","tool":"Bash"}]}`, `{"name":"Bash","arguments":{"command":"ls -l"}}`, ""},
		"and the second":         {`{"rules":[{"action":"allow","tool":"Bash","arguments":{"command":"^ls( |$)"}},{"action":"deny","tool":"Bash"}]}`, `{"name":"Bash","arguments":{"command":"rm -r ."}}`, "the call of Bash was not let through"},
		"escapes hide nothing":   {`{"rules":[{"action":"deny","arguments":{"command":"rm -r"}}]}`, `{"name":"Bash","arguments":{"command":"\u0072m -r ."}}`, "the call of Bash was not let through"},
		"a key twice":            {`{"rules":[{"action":"deny","arguments":{"command":"rm -r"}}]}`, `{"name":"Bash","arguments":{"command":"ls","command":"rm -r ."}}`, `the call of Bash was not let through: its arguments name "command" more than once`},
		"a key twice, within":    {`{"rules":[{"action":"deny","tool":"x"}]}`, `{"name":"T","arguments":{"a":[1,{"b":"x","\u0062":{}}]}}`, `the call of T was not let through: its arguments name "b" more than once`},
		"a key in two objects":   {`{"rules":[{"action":"deny","tool":"x"}]}`, `{"name":"T","arguments":{"a":{"b":"a"},"b":["b",{"a":1}],"c":{},"d":[]}}`, ""},
		"a key twice, no rules":  {`{"rules":[]}`, `{"name":"T","arguments":{"a":1,"a":2}}`, ""},
		"absent argument":        {`{"rules":[{"action":"deny","arguments":{"path":""}}]}`, `{"name":"Read","arguments":{}}`, ""},
		"pointer":                {`{"rules":[{"action":"deny","arguments":{"/edits/0/path":"^/etc/"}}]}`, `{"name":"Edit","arguments":{"edits":[{"path":"/etc/passwd"}]}}`, "the call of Edit was not let through"},
		"a name in other case":   {`{"rules":[{"action":"deny","arguments":{"command":"rm -r"}}]}`, `{"name":"Bash","arguments":{"Command":"rm -r ."}}`, "the call of Bash was not let through"},
		"both cases":             {`{"rules":[{"action":"deny","arguments":{"command":"rm -r"}}]}`, `{"name":"Bash","arguments":{"command":"ls","COMMAND":"rm -r ."}}`, "the call of Bash was not let through"},
		"other case, pointer":    {`{"rules":[{"action":"deny","arguments":{"/edits/0/path":"^/etc/"}}]}`, `{"name":"Edit","arguments":{"Edits":[{"PATH":"/etc/passwd"}]}}`, "the call of Edit was not let through"},
		"other case, allowed":    {`{"rules":[{"action":"allow","arguments":{"command":"^ls$"}}],"default":"deny"}`, `{"name":"Bash","arguments":{"Command":"ls"}}`, "the call of Bash was not let through: no rule allows it"},
		"unterminated":           {`{"rules":[{"action":"deny","tool":"bash","arguments":{"command":"rm -r"}}]}`, `{"name":"Bash","arguments":"{\"command\": \"rm -r .","arguments_raw":true}`, "the call of Bash was not let through"},
		"unterminated, another":  {`{"rules":[{"action":"deny","tool":"bash","arguments":{"command":"rm -r"}}]}`, `{"name":"Read","arguments":"{\"path\": \"x","arguments_raw":true}`, ""},
		"an object as text":      {`{"rules":[{"action":"deny","arguments":{"command":"rm -r"}}]}`, `{"name":"Bash","arguments":"{\"command\": \"ls\"}","arguments_raw":true}`, ""},
		"a list":                 {`{"rules":[{"action":"deny","arguments":{"command":"rm -r"}}]}`, `{"name":"Bash","arguments":["rm -r ."]}`, "the call of Bash was not let through"},
		"no arguments":           {`{"rules":[{"action":"deny","arguments":{"command":"rm -r"}}]}`, `{"name":"Bash"}`, ""},
		"all patterns must":      {`{"rules":[{"action":"deny","arguments":{"a":"x","b":"y"}}]}`, `{"name":"T","arguments":{"a":"x","b":"z"}}`, ""},
		"any value":              {`{"rules":[{"action":"deny","any":"secret"}]}`, `{"name":"T","arguments":{"a":[{"b":"a se\u0063ret"}]}}`, "the call of T was not let through"},
		"any key":                {`{"rules":[{"action":"deny","any":"^secret$"}]}`, `{"name":"T","arguments":{"secret":1}}`, "the call of T was not let through"},
		"any number":             {`{"rules":[{"action":"deny","any":"^22$"}]}`, `{"name":"T","arguments":{"port":22}}`, "the call of T was not let through"},
		"any in raw text":        {`{"rules":[{"action":"deny","any":"rm -r"}]}`, `{"name":"T","arguments":"rm -r .","arguments_raw":true}`, "the call of T was not let through"},
		"nothing of any":         {`{"rules":[{"action":"deny","any":"secret"}]}`, `{"name":"T","arguments":{"a":null,"b":[true]}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var cfg Config
			require.NoError(t, schema.Decode([]byte(c.config), &cfg))
			g, err := New(cfg)
			require.NoError(t, err)
			r, err := g.Apply(t.Context(), hook.NewEvent(doc.Bytes(`{"point":"tool_call","tools":[],"tool_call":`+c.call+`}`)))
			require.NoError(t, err)
			require.NoError(t, r.Check())
			assert.Equal(t, c.denied, r.Reason)
			assert.Equal(t, c.denied != "", r.Action == hook.Deny)
		})
	}
}

func TestConfig(t *testing.T) {
	for want, c := range map[string]Config{
		`default: action is "ask"`:     {Default: "ask"},
		`rules/0: action is ""`:        {Rules: []Rule{{Tool: "x"}}},
		`tool "[" is no pattern`:       {Rules: []Rule{{Action: "deny", Tool: "["}}},
		"rules/0: arguments: a: error": {Rules: []Rule{{Action: "deny", Arguments: map[string]string{"a": "("}}}},
		"rules/0: any: error":          {Rules: []Rule{{Action: "deny", Any: "("}}},
	} {
		_, err := New(c)
		assert.ErrorContains(t, err, want)
	}
}
