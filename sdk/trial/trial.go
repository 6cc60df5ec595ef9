// Package trial is a component tried by example: a case is one request and
// what must come of it. Cases lie in a file, one a line, so that they are the
// same in every language:
//
//	{"name":"equal","request":{"task":{"answer":"4"},"rollout":{"final_text":"4"}},"want":{"reward":1,"status":"scored"}}
//	{"name":"no answer","request":{"rollout":{"final_text":"4"}},"error":"the task has no answer"}
//
// What never enters: which transport an instance came over.
package trial

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"reflect"
	"strings"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/converter"
	"github.com/penstock-dev/penstock/sdk/doc"
	"github.com/penstock-dev/penstock/sdk/format"
	"github.com/penstock-dev/penstock/sdk/hook"
	"github.com/penstock-dev/penstock/sdk/invoker"
	"github.com/penstock-dev/penstock/sdk/judger"
)

// Case is one request. Without Want and Error any reply will do.
type Case struct {
	Name    string          `json:"name"`
	Config  json.RawMessage `json:"config,omitempty"`
	Request json.RawMessage `json:"request"`
	Want    json.RawMessage `json:"want,omitempty"`
	Error   string          `json:"error,omitempty"` // part of the message
}

// Read reads cases, one a line. Empty lines are left out. The error names the
// line.
func Read(r io.Reader) ([]Case, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read cases: %w", err)
	}
	var all []Case
	for i, line := range bytes.Split(data, []byte{'\n'}) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var c Case
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields()
		err := d.Decode(&c)
		switch {
		case err != nil:
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		case len(c.Request) == 0:
			return nil, fmt.Errorf("line %d: the case has no request", i+1)
		}
		if c.Name == "" {
			c.Name = fmt.Sprintf("line %d", i+1)
		}
		all = append(all, c)
	}
	return all, nil
}

// Check tries an instance and says what is wrong with its reply, nil if
// nothing is.
func (c Case) Check(ctx context.Context, instance any) error {
	got, err := Answer(ctx, instance, c.Request)
	return c.Compare(got, err)
}

// Compare says how a reply, or an error, differs from what the case wants.
func (c Case) Compare(got json.RawMessage, err error) error {
	switch {
	case c.Error != "" && err == nil:
		return fmt.Errorf("want an error with %q, got %s", c.Error, got)
	case c.Error != "" && !strings.Contains(err.Error(), c.Error):
		return fmt.Errorf("want an error with %q, got: %w", c.Error, err)
	case c.Error != "":
		return nil
	case err != nil:
		return err
	case len(c.Want) > 0 && !Equal(got, c.Want):
		return fmt.Errorf("want %s\n got %s", c.Want, got)
	}
	return nil
}

// Equal reports whether two texts are the same JSON value.
func Equal(a, b []byte) bool {
	var x, y any
	if decode(a, &x) != nil || decode(b, &y) != nil {
		return false
	}
	return reflect.DeepEqual(x, y)
}

func decode(data []byte, v *any) error {
	return json.Unmarshal(data, v)
}

// Answer calls an instance of any kind and returns its reply as JSON:
//
//	judger     the verdict; of a request with rollouts, the verdicts
//	hook       the result
//	invoker    the plan of {session}, the answer to {line}, the result of {exit}
//	format     {text, tools?} gives {reasoning, content, calls}, fed whole and in
//	           small pieces, which must give the same; {chat} gives {text, stops}
//	converter  {rows} gives the files by their ending
func Answer(ctx context.Context, instance any, request []byte) (json.RawMessage, error) {
	if !json.Valid(request) {
		return nil, errors.New("the request is not JSON")
	}
	d := doc.Bytes(request)
	switch v := instance.(type) {
	case judger.Judger:
		return judge(ctx, v, d)
	case hook.Hook:
		return hook.Call(ctx, v, hook.Method, d)
	case invoker.Invoker:
		return invoke(ctx, v, d)
	case format.Format:
		return parseOrRender(ctx, v, d)
	case converter.Converter:
		return convert(ctx, v, request)
	}
	return nil, fmt.Errorf("a %T is of no kind", instance)
}

func judge(ctx context.Context, j judger.Judger, d doc.Doc) (json.RawMessage, error) {
	if _, group := d.Get("/rollouts"); group {
		return judger.Call(ctx, j, judger.MethodJudgeGroup, d)
	}
	return judger.Call(ctx, j, judger.MethodJudge, d)
}

func invoke(ctx context.Context, i invoker.Invoker, d doc.Doc) (json.RawMessage, error) {
	method := invoker.MethodPlan
	if _, ok := d.Get("/line"); ok {
		method = invoker.MethodLine
	} else if _, ok := d.Get("/exit"); ok {
		method = invoker.MethodResult
	}
	return invoker.Call(ctx, i, method, d)
}

func parseOrRender(ctx context.Context, f format.Format, d doc.Doc) (json.RawMessage, error) {
	var q struct {
		format.ParseOptions
		Text string             `json:"text"`
		Chat *chat.Conversation `json:"chat"`
	}
	all, _ := d.Get("")
	if err := json.Unmarshal(all, &q); err != nil {
		return nil, fmt.Errorf("read request: %w", err)
	}
	if q.Chat != nil {
		r, err := f.Render(ctx, &format.RenderRequest{Chat: q.Chat})
		if err != nil {
			return nil, err
		}
		return chat.Marshal(map[string]any{"text": format.Text(r.Segments), "stops": r.Stops})
	}
	whole, err := parse(ctx, f, &q.ParseOptions, q.Text, len(q.Text)+1)
	if err != nil {
		return nil, err
	}
	for _, size := range []int{1, 2, 3, 5, 16} {
		split, err := parse(ctx, f, &q.ParseOptions, q.Text, size)
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(whole, split) {
			return nil, fmt.Errorf("in pieces of %d bytes the text parses otherwise:\nwhole %s\nsplit %s", size, whole, split)
		}
	}
	return whole, nil
}

func parse(ctx context.Context, f format.Format, o *format.ParseOptions, text string, size int) (json.RawMessage, error) {
	p, err := f.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	var events []format.Event
	for rest := []byte(text); len(rest) > 0; rest = rest[min(size, len(rest)):] {
		events = p.Feed(events, rest[:min(size, len(rest))])
	}
	events = p.Finish(events)
	if err := errors.Join(p.Err(), p.Close()); err != nil {
		return nil, err
	}
	r := format.Collect(format.Join(events))
	type call struct {
		Name       string `json:"name"`
		Arguments  string `json:"arguments"`
		Incomplete bool   `json:"incomplete,omitempty"`
	}
	calls := []call{} // without ids, which formats that have none make up
	for _, c := range r.Calls {
		calls = append(calls, call{c.Name, c.Arguments, c.Incomplete})
	}
	return chat.Marshal(map[string]any{"reasoning": r.Reasoning, "content": r.Content, "calls": calls})
}

func convert(ctx context.Context, c converter.Converter, request []byte) (json.RawMessage, error) {
	var q struct {
		Rows []*converter.Row `json:"rows"`
	}
	if err := json.Unmarshal(request, &q); err != nil {
		return nil, fmt.Errorf("read request: %w", err)
	}
	out := written{}
	if err := c.Convert(ctx, rowsOf(q.Rows), out); err != nil {
		return nil, err
	}
	texts := map[string]string{}
	for name, b := range out {
		texts[name] = b.String()
	}
	return chat.Marshal(texts)
}

func rowsOf(rows []*converter.Row) iter.Seq2[*converter.Row, error] {
	return func(yield func(*converter.Row, error) bool) {
		for _, r := range rows {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// written keeps the files of a converter by their ending.
type written map[string]*bytes.Buffer

// Create implements converter.Output.
func (w written) Create(ending string) (io.WriteCloser, error) {
	w[ending] = &bytes.Buffer{}
	return closing{w[ending]}, nil
}

type closing struct{ io.Writer }

func (closing) Close() error { return nil }
