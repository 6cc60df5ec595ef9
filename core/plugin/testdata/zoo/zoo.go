// Package zoo holds components of every kind for the tests of the
// transports, tame ones and wild ones.
package zoo

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/converter"
	"github.com/penstock-dev/penstock/sdk/format"
	"github.com/penstock-dev/penstock/sdk/hook"
	"github.com/penstock-dev/penstock/sdk/invoker"
	"github.com/penstock-dev/penstock/sdk/judger"
	"github.com/penstock-dev/penstock/sdk/schema"
)

func init() {
	judger.Register("tame", newTame, judger.Input[tameInput](), judger.Group(), judger.Version("1.2"))
	judger.Register("wild", func(struct{}) (judger.Judger, error) { return wild{}, nil })
	hook.Register("shout", func(struct{}) (hook.Hook, error) { return shout{}, nil }, hook.Changes(hook.Request, hook.ToolCall))
	invoker.Register("echo", func(struct{}) (invoker.Invoker, error) { return echo{}, nil }, invoker.Input[echoInput]())
	format.Register("letters", func(struct{}) (format.Format, error) { return letters{}, nil })
	converter.Register("ids", func(struct{}) (converter.Converter, error) { return ids{}, nil })
}

type tameConfig struct {
	IgnoreCase bool    `json:"ignore_case,omitempty" desc:"compare without case"`
	Weight     float64 `json:"weight,omitempty"`
}

type tameInput struct {
	Expect string `json:"expect,omitempty"`
}

type tame struct{ tameConfig }

func newTame(c tameConfig) (judger.Judger, error) {
	if c.Weight < 0 {
		return nil, &schema.Error{Pointer: "/weight", Message: "is negative"}
	}
	return tame{c}, nil
}

// Judge reads few fields of a rollout and answers with all that a verdict has.
func (j tame) Judge(_ context.Context, r *judger.Request) (judger.Verdict, error) {
	expect := r.Input().String("expect")
	if expect == "" {
		expect = r.Task().String("answer")
	}
	got := r.Rollout().FinalText()
	switch got {
	case "skip":
		return judger.Skip("nothing to see"), nil
	case "error":
		return judger.Verdict{}, errors.New("can't tell")
	case "again":
		return judger.Verdict{}, &component.Error{Code: "busy", Message: "try again", Retryable: true}
	}
	ok := got == expect || j.IgnoreCase && strings.EqualFold(got, expect)
	v := judger.Pass(ok)
	v.Components = map[string]float64{"calls": float64(len(r.Rollout().ToolCalls()))}
	v.Explanation = fmt.Sprintf("got %q, want %q <&>", got, expect)
	return v, nil
}

// JudgeGroup rewards what most samples say.
func (tame) JudgeGroup(_ context.Context, r *judger.GroupRequest) ([]judger.Verdict, error) {
	votes := map[string]int{}
	rollouts := r.Rollouts()
	for _, o := range rollouts {
		votes[o.FinalText()]++
	}
	var out []judger.Verdict
	for _, o := range rollouts {
		out = append(out, judger.Pass(2*votes[o.FinalText()] > len(rollouts)))
	}
	return out, nil
}

type wild struct{}

// Judge does what the input says, none of which a judger should.
func (wild) Judge(_ context.Context, r *judger.Request) (judger.Verdict, error) {
	switch act := r.Input().String("act"); act {
	case "panic":
		panic("the lion is loose")
	case "crash":
		go func() { panic("the lion is loose") }()
		time.Sleep(time.Hour)
	case "exit":
		os.Exit(3)
	case "loop":
		loop()
	case "hog":
		var all [][]byte
		for {
			all = append(all, make([]byte, 1<<20))
			all[len(all)-1][0] = byte(len(all))
		}
	case "flood":
		return judger.Skip(strings.Repeat("x", 6<<20)), nil
	case "chatter":
		for i := range 5000 {
			slog.Info("chatter", "i", i)
		}
	case "log":
		slog.Warn("seen", "rollout", r.Rollout().ID())
		fmt.Fprintln(os.Stderr, "plain line")
		fmt.Println("on stdout")
	case "nan":
		zero := 0.0
		return judger.Reward(zero / zero), nil
	case "clock":
		return judger.Reward(float64(time.Now().Unix())), nil
	case "env":
		return judger.Skip(strings.Join(os.Environ(), "\n")), nil
	case "world":
		return judger.Skip(world()), nil
	case "dice":
		dice := make([]byte, 8)
		_, err := rand.Read(dice)
		return judger.Skip(hex.EncodeToString(dice)), err
	case "spill":
		for range 60 {
			fmt.Println(strings.Repeat("x", 60<<10))
		}
	case "bulk":
		kept = append(kept, make([]byte, 52<<20))
		kept[0][1<<20] = 1
	case "fork":
		text, err := fork()
		return judger.Skip(text), err
	}
	return judger.Reward(1), nil
}

var kept [][]byte

// world tells what of a system is there: arguments, environment, input, files.
func world() string {
	in, inErr := io.ReadAll(os.Stdin)
	_, rootErr := os.ReadDir("/")
	_, fileErr := os.ReadFile("/etc/hostname")
	writeErr := os.WriteFile("/tmp/zoo", nil, 0o600)
	return fmt.Sprintf("%d args, %d variables, %d bytes of input %v, root %t, file %t, write %t",
		len(os.Args), len(os.Environ()), len(in), inErr, rootErr == nil, fileErr == nil, writeErr == nil)
}

type shout struct{}

// Apply writes user texts in capitals and refuses the tool named danger.
func (shout) Apply(_ context.Context, e *hook.Event) (hook.Result, error) {
	if e.Point() == hook.ToolCall {
		if e.Subject().String("name") == "danger" {
			return hook.Result{Action: hook.Deny, Reason: "danger is not a toy"}, nil
		}
		return hook.Pass(), nil
	}
	raw, _ := e.Subject().Get("")
	loud, err := hook.EditText(raw, func(role chat.Role, text string) string {
		if role == chat.User {
			return strings.ToUpper(text)
		}
		return text
	})
	if err != nil || loud == nil {
		return hook.Pass(), err
	}
	return hook.Result{Action: hook.Replace, Value: loud, Report: json.RawMessage(`{"loud":true}`)}, nil
}

type echoInput struct {
	Prompt string `json:"prompt"`
}

type echo struct{}

func (echo) Plan(_ context.Context, r *invoker.PlanRequest) (*invoker.Plan, error) {
	var in echoInput
	if err := r.DecodeInput(&in); err != nil {
		return nil, err
	}
	return &invoker.Plan{Argv: []string{"echo", in.Prompt}, Env: map[string]string{"TOKEN": r.Session.Token}, Output: invoker.JSONL}, nil
}

func (echo) Line(_ context.Context, r *invoker.LineRequest) (invoker.LineResult, error) {
	var n int
	if len(r.State) > 0 {
		if err := json.Unmarshal(r.State, &n); err != nil {
			return invoker.LineResult{}, err
		}
	}
	state, err := json.Marshal(n + len(r.Line))
	return invoker.LineResult{State: state, Ready: n > 0}, err
}

func (echo) Result(_ context.Context, r *invoker.ResultRequest) (*invoker.Result, error) {
	return &invoker.Result{Text: r.Stdout, ExitStatus: r.ExitStatus, Error: string(r.State)}, nil
}

// letters is a format whose prompt is the texts, a line each; in replies
// capital letters are reasoning.
type letters struct{}

func (letters) Markers() []string { return []string{"<end>"} }

func (letters) Render(_ context.Context, r *format.RenderRequest) (*format.Rendered, error) {
	out := &format.Rendered{Stops: []string{"<end>"}}
	for i, m := range r.Chat.Messages {
		out.Segments = append(out.Segments,
			format.Segment{Text: chat.PlainText(m.Parts), Kind: format.Data, Message: i},
			format.Segment{Text: "<end>", Kind: format.Markup, Message: i})
	}
	return out, nil
}

func (f letters) Tail(ctx context.Context, r *format.RenderRequest, k int, ended format.Ended) (*format.Rendered, error) {
	return &format.Rendered{Stops: []string{string(ended)}, Segments: []format.Segment{{Message: k, Kind: format.Markup}}}, nil
}

func (letters) Open(context.Context, *format.ParseOptions) (format.Parser, error) {
	return &speller{}, nil
}

// speller panics at an exclamation mark, loops at an at sign, and loops as it
// finishes a text that has a hash.
type speller struct {
	at     int
	hashed bool
}

func (p *speller) Feed(dst []format.Event, chunk []byte) []format.Event {
	text := string(chunk)
	for start, i := 0, 0; i < len(text); start = i {
		kind := kindOf(text[i])
		for i < len(text) && kindOf(text[i]) == kind {
			switch text[i] {
			case '!':
				panic("an exclamation")
			case '@':
				loop()
			case '#':
				p.hashed = true
			}
			i++
		}
		dst = append(dst, format.Event{Kind: kind, Text: text[start:i], Span: format.Span{Start: p.at, End: p.at + i - start}})
		p.at += i - start
	}
	return dst
}

// loop goes on until it is ended.
func loop() {
	for i := 0; ; i++ {
		if i == -1 {
			break
		}
	}
}

func kindOf(c byte) format.EventKind {
	if c >= 'A' && c <= 'Z' {
		return format.Reason
	}
	return format.Content
}

func (p *speller) Finish(dst []format.Event) []format.Event {
	if p.hashed {
		loop()
	}
	return append(dst, format.Event{Kind: format.Warning, Text: fmt.Sprint(p.at)})
}

func (*speller) Err() error   { return nil }
func (*speller) Close() error { return nil }

// ids writes the row ids, and the rewards to a second file.
type ids struct{}

func (ids) Convert(_ context.Context, rows iter.Seq2[*converter.Row, error], out converter.Output) error {
	names, err := out.Create("txt")
	if err != nil {
		return err
	}
	rewards, err := out.Create("rewards.txt")
	if err != nil {
		return err
	}
	for row, err := range rows {
		if err != nil {
			return err
		}
		if row.Status == "bad" {
			return errors.New("a bad row")
		}
		if _, err := fmt.Fprintln(names, row.Row); err != nil {
			return err
		}
		if row.Reward != nil {
			if _, err := fmt.Fprintln(rewards, *row.Reward); err != nil {
				return err
			}
		}
	}
	return errors.Join(names.Close(), rewards.Close())
}
