// Package checkup tries a plugin as it is loaded, before a pipeline does: what
// it says of itself, its schemas, the author's cases, odd rollouts, many calls
// at once, its own death and a caller who gives up.
//
// What never enters: what a component of some kind ought to answer, save where
// the author's cases say it.
package checkup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock-dev/penstock/core/plugin"
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/schema"
	"github.com/penstock-dev/penstock/sdk/trial"
)

// Finding is the outcome of one check.
type Finding struct {
	Plugin string  `json:"plugin"`
	Check  string  `json:"check"`
	OK     bool    `json:"ok"`
	Detail string  `json:"detail,omitempty"`
	Millis float64 `json:"ms"`
}

// Subject is what is tried: a source, the cases of its author, and the settings
// for samples and for cases that have none of their own.
type Subject struct {
	Source plugin.Source
	Cases  []trial.Case
	Config json.RawMessage // nil: the samples take those of the first case
}

const (
	patience = 30 * time.Second // for a call that should take no time
	callers  = 8
)

// examination is one run of the checks.
type examination struct {
	Subject
	registry   *plugin.Registry
	kind, name string
	descriptor component.Descriptor
	report     func(Finding)
	failed     bool
	answered   int    // requests that did what they should
	refusal    string // what it said to the first sample that it refused
}

// Run adds the subject to the registry and tries it. Report is called with
// each finding as it is there; Run returns whether all is well.
func Run(ctx context.Context, r *plugin.Registry, s Subject, report func(Finding)) bool {
	kind, name, _ := strings.Cut(s.Source.Key, "/")
	x := &examination{Subject: s, registry: r, kind: kind, name: name, report: report}
	if !x.check(ctx, "describe", x.describe) || !x.check(ctx, "schema", x.schema) {
		return false
	}
	for _, c := range x.Cases {
		x.check(ctx, "case: "+c.Name, func(ctx context.Context) (string, error) { return x.try(ctx, c) })
	}
	if err := x.settings(ctx); err != nil {
		x.check(ctx, "settings", func(context.Context) (string, error) { return "", err })
		return false
	}
	for _, c := range x.samples() {
		x.check(ctx, "sample: "+c.Name, func(ctx context.Context) (string, error) { return x.endure(ctx, c) })
	}
	if x.answered == 0 && !x.failed {
		x.check(ctx, "answers", x.unanswered)
	}
	if c, ok := x.steady(ctx); ok {
		x.check(ctx, "at once", func(ctx context.Context) (string, error) { return x.atOnce(ctx, c) })
		x.check(ctx, "timeout", func(ctx context.Context) (string, error) { return x.timeout(ctx, c) })
		x.check(ctx, "crash", func(ctx context.Context) (string, error) { return x.crash(ctx, c) })
	}
	return !x.failed
}

// config is what the samples are opened with.
func (x *examination) config() json.RawMessage {
	if x.Config == nil && len(x.Cases) > 0 {
		return x.Cases[0].Config
	}
	return x.Config
}

// settings says why the samples can't be tried: a component that isn't opened
// judges nothing, so that no check after this one would mean anything.
func (x *examination) settings(ctx context.Context) error {
	config := x.config()
	err := x.registry.CheckConfig(ctx, x.kind, x.name, config)
	var field *schema.Error
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &field):
		return fmt.Errorf("no sample was tried: %w", err)
	case len(config) == 0:
		return fmt.Errorf("no sample was tried, as it can't be opened without settings: %w; give them with --with NAME=VALUE, or as the \"config\" of a case in cases.jsonl", err)
	}
	return fmt.Errorf("no sample was tried, as it can't be opened with the settings %s: %w", short(string(config)), err)
}

// unanswered is for a component that never did what it is for.
func (x *examination) unanswered(context.Context) (string, error) {
	all := x.samples()
	if len(all) == 0 {
		return "", errors.New("nothing was tried, as there is no sample for it; write cases.jsonl")
	}
	line, err := json.Marshal(all[0])
	if err != nil {
		return "", err
	}
	return "", fmt.Errorf("nothing was tried, as it refused every sample, the first with: %s\nwrite a request that it answers into cases.jsonl; the first sample, as a line of it: %s", x.refusal, line)
}

// samples leaves out the points at which a hook is never called.
func (x *examination) samples() []trial.Case {
	all := samples(x.kind)
	for i := range all {
		all[i].Config = x.config()
	}
	if grouped(x.descriptor) {
		return groups(all)
	}
	if x.kind != component.Hook {
		return all
	}
	points := slices.Concat(x.descriptor.Changes, x.descriptor.Observes)
	return slices.DeleteFunc(all, func(c trial.Case) bool {
		var q struct {
			Point string `json:"point"`
		}
		return json.Unmarshal(c.Request, &q) != nil || !slices.Contains(points, q.Point)
	})
}

func (x *examination) check(ctx context.Context, name string, f func(context.Context) (string, error)) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*patience) // describe may build
	defer cancel()
	begin := time.Now()
	detail, err := f(ctx)
	if err != nil {
		detail, x.failed = err.Error(), true
	}
	x.report(Finding{Plugin: x.Source.Key, Check: name, OK: err == nil, Detail: detail, Millis: float64(time.Since(begin).Microseconds()) / 1000})
	return err == nil
}

func (x *examination) describe(ctx context.Context) (string, error) {
	if err := x.registry.Add(ctx, x.Source); err != nil {
		return "", err
	}
	d, err := x.registry.Describe(x.kind, x.name)
	if err != nil {
		return "", err
	}
	x.descriptor = d
	sum := x.registry.Digest(x.kind, x.name)
	return fmt.Sprintf("%s, sha256 %.12s", x.registry.Transport(x.kind, x.name), sum), nil
}

// schema looks at what a user's mistake comes to: a field that isn't there is
// refused with its pointer.
func (x *examination) schema(ctx context.Context) (string, error) {
	config, err := withField(x.config(), oddField)
	if err != nil {
		return "", err
	}
	err = x.registry.CheckConfig(ctx, x.kind, x.name, config)
	var field *schema.Error
	switch {
	case err == nil:
		return "its config takes any field, so that a typing error is not told", nil
	case !errors.As(err, &field):
		return "", fmt.Errorf("a field that isn't there gives no error with a pointer: %w", err)
	case field.Pointer == "/"+oddField:
		return "a wrong field is refused at " + field.Pointer, nil
	case strings.Contains(field.Message, "missing"): // which is told of the settings
		return "not tried, as a field is missing", nil
	}
	return "", fmt.Errorf("a field that isn't there is refused at %q: %s", field.Pointer, field.Message)
}

// oddField is no plugin's.
const oddField = "no_such_field"

// withField adds a field to the settings of a config, which is an object or
// nothing.
func withField(config json.RawMessage, name string) (json.RawMessage, error) {
	fields := map[string]json.RawMessage{}
	if len(config) > 0 {
		if err := json.Unmarshal(config, &fields); err != nil {
			return nil, fmt.Errorf("the settings are no object: %w", err)
		}
	}
	fields[name] = json.RawMessage("1")
	return json.Marshal(fields)
}

func (x *examination) answer(ctx context.Context, c trial.Case) (json.RawMessage, error) {
	if len(c.Config) == 0 {
		c.Config = x.Config
	}
	instance, err := x.registry.Open(ctx, x.kind, x.name, c.Config)
	if err != nil {
		return nil, err
	}
	return trial.Answer(ctx, instance, c.Request)
}

func (x *examination) try(ctx context.Context, c trial.Case) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	got, err := x.answer(ctx, c)
	if err = c.Compare(got, err); err == nil {
		x.answered++
	}
	return "", err
}

// endure sends what a run may send. The component may refuse it; its program
// may not die, hang, or answer what is no reply.
func (x *examination) endure(ctx context.Context, c trial.Case) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	got, err := x.answer(ctx, c)
	if err == nil {
		x.answered++
		return short(string(got)), nil
	}
	var e *plugin.Error
	var field *schema.Error
	if errors.As(err, &field) || errors.As(err, &e) && e.Reason == plugin.Failed && !strings.Contains(e.Message, "panicked") {
		if x.refusal == "" {
			x.refusal = err.Error()
		}
		return "refused: " + short(err.Error()), nil
	}
	return "", err
}

func short(text string) string {
	if len(text) > 120 {
		text = strings.ToValidUTF8(text[:117], "") + "..."
	}
	return strings.ReplaceAll(text, "\n", " ")
}

// steady is a request that the component answers.
func (x *examination) steady(ctx context.Context) (trial.Case, bool) {
	all := slices.Concat(x.Cases, x.samples())
	for _, c := range all {
		if c.Error != "" {
			continue
		}
		if _, err := x.answer(ctx, c); err == nil {
			return c, true
		}
	}
	return trial.Case{}, false
}

func (x *examination) atOnce(ctx context.Context, c trial.Case) (string, error) {
	want, err := x.answer(ctx, c)
	if err != nil {
		return "", err
	}
	var wg sync.WaitGroup
	errs := make([]error, callers)
	for i := range callers {
		wg.Go(func() {
			got, err := x.answer(ctx, c)
			if err == nil && !trial.Equal(got, want) {
				err = fmt.Errorf("calls at once give different replies: %s and %s", short(string(want)), short(string(got)))
			}
			errs[i] = err
		})
	}
	wg.Wait()
	return fmt.Sprintf("%d callers, one reply", callers), errors.Join(errs...)
}

// timeout gives up on a call at once; the next one must work.
func (x *examination) timeout(ctx context.Context, c trial.Case) (string, error) {
	brief, cancel := context.WithTimeout(ctx, time.Microsecond)
	defer cancel()
	_, err := x.answer(brief, c)
	<-brief.Done() // a transport may see that the time is over before the context tells
	if err != nil && !gaveUp(err) {
		return "", err
	}
	return "a caller may give up, the next one is served", x.again(ctx, c)
}

// gaveUp reports whether an error says that the time was over, or that nobody
// waits any more.
func gaveUp(err error) bool {
	var e *plugin.Error
	if errors.As(err, &e) && (e.Reason == plugin.Timeout || e.Reason == plugin.Cancelled) {
		return true
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

func (x *examination) crash(ctx context.Context, c trial.Case) (string, error) {
	if !x.registry.Crash(x.kind, x.name) {
		return "a module's instance that fails is thrown away", x.again(ctx, c)
	}
	return "killed, started again", x.again(ctx, c)
}

// again is a call after trouble.
func (x *examination) again(ctx context.Context, c trial.Case) error {
	var err error
	for range 3 {
		if _, err = x.answer(ctx, c); err == nil {
			return nil
		}
		var e *component.Error
		if !errors.As(err, &e) || !e.Retryable {
			return err
		}
	}
	return err
}
