package tooluse

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/doc"
	"github.com/penstock-dev/penstock/sdk/judger"
)

const calls = `[
	{"id":"1","name":"Read","arguments":{"path":"a.go","lines":[1,2],"opts":{"x":1,"y":2}},"result":"package a"},
	{"id":"2","name":"Bash","arguments":{"command":"go test ./..."},"result":"exit status 1","is_error":true},
	{"id":"3","name":"Edit","arguments":{"path":"a.go","count":2.0},"result":"done"},
	{"id":"4","name":"Bash","arguments":{"command":"go test ./..."},"result":"ok"}]`

func judge(t *testing.T, config Config, input string) (judger.Verdict, error) {
	t.Helper()
	j, err := New(config)
	require.NoError(t, err)
	v, err := j.Judge(t.Context(), judger.NewRequest(doc.Bytes(`{"input":`+input+`,"rollout":{"tool_calls":`+calls+`}}`)))
	if err == nil {
		require.NoError(t, v.Check())
	}
	return v, err
}

func TestJudge(t *testing.T) {
	for name, c := range map[string]struct{ input, why string }{
		"called":                 {`{"calls":[{"tool":"Read"}]}`, ""},
		"not called":             {`{"calls":[{"tool":"Write"}]}`, "calls/0: Write was not called"},
		"by pattern":             {`{"calls":[{"tool":"R*"}]}`, ""},
		"case counts":            {`{"calls":[{"tool":"read"}]}`, "calls/0: read was not called"},
		"arguments":              {`{"calls":[{"tool":"Read","arguments":{"path":"a.go"}}]}`, ""},
		"other arguments":        {`{"calls":[{"tool":"Read","arguments":{"path":"b.go"}}]}`, "calls/0: Read was called 1 times, 0 of them as wanted, want at least 1"},
		"numbers by value":       {`{"calls":[{"tool":"Edit","arguments":{"count":2}}]}`, ""},
		"a string is no number":  {`{"calls":[{"tool":"Edit","arguments":{"path":2}}]}`, "calls/0: Edit was called 1 times, 0 of them as wanted, want at least 1"},
		"nested, in any order":   {`{"calls":[{"tool":"Read","arguments":{"opts":{"y":2,"x":1},"/lines/1":2}}]}`, ""},
		"nested, one more":       {`{"calls":[{"tool":"Read","arguments":{"opts":{"y":2}}}]}`, "calls/0: Read was called 1 times, 0 of them as wanted, want at least 1"},
		"null is absent":         {`{"calls":[{"tool":"Read","arguments":{"nothing":null}}]}`, ""},
		"matches":                {`{"calls":[{"tool":"Bash","matches":{"command":"^go test"}}]}`, ""},
		"matches not":            {`{"calls":[{"tool":"Bash","matches":{"command":"^make"}}]}`, "calls/0: Bash was called 2 times, 0 of them as wanted, want at least 1"},
		"matches, absent":        {`{"calls":[{"tool":"Bash","matches":{"path":""}}]}`, "calls/0: Bash was called 2 times, 0 of them as wanted, want at least 1"},
		"result":                 {`{"calls":[{"tool":"Bash","result":"^ok$"}]}`, ""},
		"without an error":       {`{"calls":[{"tool":"Bash","ok":true,"min":2}]}`, "calls/0: Bash was called 2 times, 1 of them as wanted, want at least 2"},
		"often enough":           {`{"calls":[{"tool":"Bash","min":2,"max":2}]}`, ""},
		"not often enough":       {`{"calls":[{"tool":"Bash","min":3}]}`, "calls/0: Bash was called 2 times, want at least 3"},
		"too often":              {`{"calls":[{"tool":"Bash","max":1}]}`, "calls/0: Bash was called 2 times as described, want at most 1"},
		"none wanted":            {`{"calls":[{"tool":"Write","max":0}]}`, ""},
		"never":                  {`{"never":["Write","mcp__*"]}`, ""},
		"never, but":             {`{"never":["Write","E*"]}`, "never/1: Edit was called"},
		"order":                  {`{"order":["Read","Edit","Bash"]}`, ""},
		"order, twice":           {`{"order":["Bash","Bash"]}`, ""},
		"order, wrong":           {`{"order":["Edit","Read"]}`, "order: Read was not called after Edit"},
		"order, not there":       {`{"order":["Write","Read"]}`, "order: Write was not called"},
		"no error after":         {`{"no_error_after":"Edit"}`, ""},
		"error after":            {`{"no_error_after":"Read"}`, "no_error_after: a call of Bash failed: exit status 1"},
		"no error, never called": {`{"no_error_after":"Write"}`, "no_error_after: Write was not called"},
		"no errors":              {`{"no_errors":true}`, "no_errors: a call of Bash failed: exit status 1"},
		"several fail":           {`{"never":["Read"],"calls":[{"tool":"Write"}]}`, "calls/0: Write was not called; never/0: Read was called"},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := judge(t, Config{}, c.input)
			require.NoError(t, err)
			assert.Equal(t, c.why, v.Explanation)
			assert.Equal(t, c.why == "", *v.Reward == 1)
		})
	}
}

func TestPartial(t *testing.T) {
	v, err := judge(t, Config{Partial: true}, `{"calls":[{"tool":"Read"},{"tool":"Write"}],"never":["Write"],"order":["Read","Bash"]}`)
	require.NoError(t, err)
	assert.Equal(t, 0.75, *v.Reward)
	assert.Equal(t, map[string]float64{"calls/0": 1, "calls/1": 0, "never/0": 1, "order": 1}, v.Components)
}

func TestErrors(t *testing.T) {
	for input, want := range map[string]string{
		`{}`:              "nothing to check",
		`{"call":[]}`:     "/call: unknown field",
		`{"never":["["]}`: `"[" is no name of a tool`,
		`{"never":[""]}`:  `"" is no name of a tool`,
		`{"calls":[{"tool":"Read","result":"("}]}`:           "calls/0: result: error parsing",
		`{"calls":[{"tool":"Read","matches":{"path":"("}}]}`: "calls/0: matches: path: error parsing",
		`{"calls":[{"tool":"Read","min":2,"max":1}]}`:        "min is larger than max",
		`{"calls":[{"tool":"Read","min":-1}]}`:               "not negative",
	} {
		_, err := judge(t, Config{}, input)
		assert.ErrorContains(t, err, want, input)
	}
}
