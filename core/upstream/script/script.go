package script

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/penstock-dev/penstock/core/token"
	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// Kind is the upstream's kind in a pipeline file.
const Kind = "script"

// Options are what a scripted model needs besides its script.
type Options struct {
	// LogPath is where the engine log goes; it wins over the script's own.
	LogPath string
	// Log is told of each generation at debug level. Nil is silent.
	Log *slog.Logger
}

type model struct {
	script *Script
	tok    token.Tokenizer
	log    *slog.Logger
	engine *engineLog

	mu       sync.Mutex
	failures map[string]int // of rules with times, by session and rule
}

// New makes an upstream of a script. Without a tokenizer (nil) it gives text
// alone, and a byte counts as a token.
func New(s *Script, t token.Tokenizer, o Options) upstream.Upstream {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.LogPath == "" {
		o.LogPath = s.Log
	}
	return &model{script: s, tok: t, log: o.Log, engine: &engineLog{path: o.LogPath}, failures: map[string]int{}}
}

func (m *model) Kind() string { return Kind }

func (m *model) Close() error { return m.engine.close() }

// Generate picks the rule and starts its reply. A prompt that no rule matches
// is a StatusError 400 that shows the newest message.
func (m *model) Generate(ctx context.Context, r *upstream.Request) (upstream.Stream, error) {
	if err := m.engine.open(); err != nil {
		return nil, err
	}
	told := m.tok != nil && r.WantIDs && r.PromptIDs == nil
	if told { // a prompt that came as text: its ids are reported, as engines do
		tokenized := *r
		tokenized.PromptIDs = m.tok.Encode([]int32{}, r.Prompt, true)
		r = &tokenized
	}
	match := m.script.match(r)
	if match == nil {
		return nil, &upstream.StatusError{Status: 400, Message: "no rule of the script matches; the newest message is " + quote(r.LastMessage)}
	}
	rule := match.rule
	m.log.DebugContext(ctx, "script generates", "rule", rule.name, "session", r.AffinityKey)
	fails := m.fails(rule, r)
	if fails && rule.fail.after == 0 {
		if err := wait(ctx, rule.think); err != nil {
			return nil, err
		}
		return nil, rule.fail.err()
	}
	s := newStream(ctx, m, match, r, fails)
	s.told = told
	return s, nil
}

// fails counts the tries of rules that fail a number of times, for each
// session apart, so that rollouts side by side don't meet each other's.
func (m *model) fails(rule *rule, r *upstream.Request) bool {
	if rule.fail == nil || rule.fail.times == 0 {
		return rule.fail != nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	key := r.AffinityKey + "\x00" + rule.name
	m.failures[key]++
	return m.failures[key] <= rule.fail.times
}

func (f *fail) err() error {
	if f.status == 0 {
		return fmt.Errorf("script: the generation is cut: %w", errCut)
	}
	message := f.message
	if message == "" {
		message = fmt.Sprintf("script: fails with status %d", f.status)
	}
	return &upstream.StatusError{Status: f.status, RetryAfter: f.retryAfter, Message: message}
}

type match struct {
	rule  *rule
	reply string
}

func (s *Script) match(r *upstream.Request) *match {
	for _, rule := range s.rules {
		if m := rule.match(r); m != nil {
			return m
		}
	}
	if s.otherwise != nil {
		return s.otherwise.match(r)
	}
	return nil
}

func (u *rule) match(r *upstream.Request) *match {
	if u.turn != 0 && u.turn != turn(r.Chat) {
		return nil
	}
	var last, prompt []int
	if u.last != nil {
		if last = u.last.FindStringSubmatchIndex(r.LastMessage); last == nil {
			return nil
		}
	}
	if u.notLast != nil && u.notLast.MatchString(r.LastMessage) {
		return nil
	}
	if u.prompt != nil {
		if prompt = u.prompt.FindStringSubmatchIndex(r.Prompt); prompt == nil {
			return nil
		}
	}
	if u.notPrompt != nil && u.notPrompt.MatchString(r.Prompt) {
		return nil
	}
	return &match{u, u.reply.expand(r.LastMessage, last, r.Prompt, prompt)}
}

// turn is 1 for a conversation in which the model has not spoken.
func turn(c *chat.Conversation) int {
	n := 1
	if c != nil {
		for _, m := range c.Messages {
			if m.Role == chat.Assistant {
				n++
			}
		}
	}
	return n
}

// quote shows the end of a text, on one line.
func quote(text string) string {
	const most = 300
	cut := ""
	if len(text) > most {
		from := len(text) - most
		for from < len(text) && !utf8.RuneStart(text[from]) {
			from++
		}
		cut, text = "…", text[from:]
	}
	return cut + fmt.Sprintf("%q", strings.TrimSpace(text))
}

// Logprob is the logprob that a script with this seed gives to the token id
// at a place in the whole sequence, prompt included: the same at each run,
// different for neighbours, so that rows can be checked token by token.
func Logprob(seed uint64, place int, id int32) float64 {
	x := seed ^ uint64(place)*0x9e3779b97f4a7c15 ^ uint64(uint32(id))*0xbf58476d1ce4e5b9
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	return -float64(x%5000+1) / 1000
}

func (m *model) logprob(u *rule, place int, id int32) float64 {
	switch {
	case u.noLogprobs:
		return math.NaN()
	case u.logprob != nil:
		return *u.logprob
	}
	return Logprob(m.script.Seed, place, id)
}
