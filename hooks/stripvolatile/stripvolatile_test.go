package stripvolatile

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/doc"
	"github.com/penstock-dev/penstock/sdk/hook"
)

func open(t *testing.T, c Config) *strip {
	t.Helper()
	h, err := New(c)
	require.NoError(t, err)
	return h.(*strip)
}

func TestWhatChangesIsTakenOutOfSystemTexts(t *testing.T) {
	s := open(t, Config{})
	for text, want := range map[string]string{
		"x-anthropic-billing-header: cc_version=2.1.332.abc; cc_entrypoint=sdk-cli; cch=00000;": "",
		"x-anthropic-billing-header: cc_version=2.1.332.abc;\nYou are an agent.":                "You are an agent.",
		"Today's date: 2026-11-30":                           "Today's date: (a day)",
		"Today's date is 2026/11/30. Be brief.":              "Today's date is (a day). Be brief.",
		"Today is Monday, November 30, 2026.":                "Today is (a day).",
		"  Today's date: Mon Nov 30 2026\n  Platform: linux": "  Today's date: (a day)\n  Platform: linux",
		"Current date: 30 Nov 2026":                          "Current date: (a day)",
		"Today Date: 26 Jul 2024":                            "Today Date: (a day)",
		"The current date and time: 2026-11-30 13:05":        "The current date and time: (a day)",
		"now 2026-11-30T13:08:40.123Z and":                   "now (a time) and",
		"Current time: 2026-11-30 13:08:40":                  "Current time: (a time)",
		"Current time: 1:08 PM":                              "Current time: (a time)",
		"Token usage: 1234/200000; 198766 remaining":         "Token usage: (some)",
		"You have 12,345 tokens left.":                       "You have some tokens left.",
		"Released on 2024-05-01, version 2.1.332.":           "Released on 2024-05-01, version 2.1.332.",
		"It is 5 of 10; the date field is a string":          "It is 5 of 10; the date field is a string",
	} {
		assert.Equal(t, want, s.edit(chat.System, text))
		assert.Equal(t, want, s.edit(chat.System, want), "twice is once")
	}
}

func TestAUsersOwnWordsStay(t *testing.T) {
	s := open(t, Config{})
	const note = "When was Today's date: 2026-11-30 written?"
	assert.Equal(t, note, s.edit(chat.User, note))
	assert.Equal(t, note, s.edit(chat.Assistant, note))
	assert.Equal(t, note, s.edit(chat.Role("tool"), note))
	assert.Equal(t, note+"<env>\nToday's date: (a day)\n</env>", s.edit(chat.User, note+"<env>\nToday's date: 2026-11-30\n</env>"))
	assert.Equal(t, "<env>Today's date: 2026-11-30", s.edit(chat.User, "<env>Today's date: 2026-11-30"), "a block that isn't closed is no block")
}

func TestTurnsOfARequestComeOutAlike(t *testing.T) {
	s := open(t, Config{Patterns: []Rule{{Match: `run-\d+`, With: "run-N"}}})
	apply := func(cch, date, run string) hook.Result {
		text, err := json.Marshal("x-anthropic-billing-header: cch=" + cch + ";\nToday's date: " + date + " in " + run)
		require.NoError(t, err)
		r, err := s.Apply(t.Context(), hook.NewEvent(doc.Bytes(`{"point":"request","request":{"messages":[{"role":"system","parts":[{"type":"text","text":`+string(text)+`}]}]}}`)))
		require.NoError(t, err)
		require.NoError(t, r.Check())
		return r
	}
	first, second := apply("a1b2", "2026-11-30", "run-1"), apply("ffff", "2026-12-01", "run-22")
	assert.Equal(t, hook.Replace, first.Action)
	assert.Equal(t, string(first.Value), string(second.Value))
	assert.JSONEq(t, `{"texts":1}`, string(first.Report))
}

func TestKindsAreChosen(t *testing.T) {
	s := open(t, Config{Kinds: []string{"billing"}})
	assert.Equal(t, "Today's date: 2026-11-30", s.edit(chat.System, "Today's date: 2026-11-30"))
	for want, c := range map[string]Config{
		`there is no "dates", want some of billing, date, time, tokens`: {Kinds: []string{"dates"}},
		"nothing to take out":    {Kinds: []string{}},
		"matches the empty text": {Patterns: []Rule{{Match: "x*"}}},
		"missing closing":        {Patterns: []Rule{{Match: "("}}},
	} {
		_, err := New(c)
		require.ErrorContains(t, err, want)
	}
}
