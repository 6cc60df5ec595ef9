// Package command is the judger command: it runs a program in the judge's copy
// of the workspace and reads its exit code, or what it reports: go test -json,
// JUnit XML, TAP, or a verdict of its own. What never enters: how any one
// program is installed, and whether what the agent said is right.
package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/penstock-dev/penstock/sdk/judger"
	"github.com/penstock-dev/penstock/sdk/schema"
	"github.com/penstock-dev/penstock/sdk/workspace"
)

// Config is what a stage's `with:` sets once.
type Config struct {
	Result  string `json:"result,omitempty" enum:"exit_code,json,go_test,junit,tap" desc:"what is read: exit_code (the default: 0 is reward 1, all else 0), json (standard output is a number or a verdict), or a report of tests"`
	Report  string `json:"report,omitempty" desc:"file of the workspace that the report is in, * and ? allowed; what is there before is removed; default standard output"`
	Timeout string `json:"timeout,omitempty" default:"1m" desc:"of the program, such as 90s; less than the stage's"`
	Output  int    `json:"output,omitempty" desc:"most bytes that are read; with more than that there is a judge_error, unless what was read is no pass already; default 1 MiB of result json, 64 MiB of JUnit and of the files of report; go_test and tap on standard output are read as they come, without a limit"`
	Partial bool   `json:"partial,omitempty" desc:"of a report of tests: the reward is the part of them that passed, not 1 for all and 0 otherwise"`
	Min     *int   `json:"min_tests,omitempty" desc:"fewest tests that have to pass, default 1, so that no test at all is no pass"`
	Errors  []int  `json:"error_codes,omitempty" desc:"exit codes that say that the program itself could not judge: a judge_error, without a reward"`
	Tamper  string `json:"on_tamper,omitempty" enum:"zero,score,skip" desc:"what becomes of a rollout in which a file of files was changed: zero (the default) gives reward 0, score the reward that it gets with the files restored, skip none"`
}

// Input is what `with:` gives for each rollout.
type Input struct {
	Command schema.Argv       `json:"command" desc:"the program and its arguments, or the program alone; a relative path starts at the folder of the pipeline file, and it runs in the workspace"`
	Env     map[string]string `json:"env,omitempty" desc:"environment beside PATH, the locale and a HOME that is empty: a build cache in there is cold, and GOCACHE or the like names another"`
	Stdin   string            `json:"stdin,omitempty" desc:"standard input"`
	Files   map[string]string `json:"files,omitempty" desc:"files by their path in the workspace, written before the program runs: tests that the agent may have changed, or has not seen; a text may be {file: PATH}"`
	Tests   []string          `json:"tests,omitempty" desc:"names of tests that have to pass; with them no others count"`
}

type command struct {
	cfg     Config
	timeout time.Duration
	min     int
}

// The ways in which a result is read.
const (
	exitCode = "exit_code"
	asJSON   = "json"
	goTest   = "go_test"
	junit    = "junit"
	tap      = "tap"
)

// New checks the config.
func New(cfg Config) (judger.Judger, error) {
	c := &command{cfg: cfg, timeout: workspace.DefaultTimeout, min: 1}
	if cfg.Result == "" {
		c.cfg.Result = exitCode
	}
	if cfg.Tamper == "" {
		c.cfg.Tamper = "zero"
	}
	if !slices.Contains([]string{exitCode, asJSON, goTest, junit, tap}, c.cfg.Result) {
		return nil, fmt.Errorf("result is %q, want exit_code, json, go_test, junit or tap", cfg.Result)
	}
	if !slices.Contains([]string{"zero", "score", "skip"}, c.cfg.Tamper) {
		return nil, fmt.Errorf("on_tamper is %q, want zero, score or skip", cfg.Tamper)
	}
	tests := c.cfg.Result != exitCode && c.cfg.Result != asJSON
	if cfg.Report != "" && c.cfg.Result == exitCode {
		return nil, errors.New("report is read with result json, go_test, junit or tap")
	}
	if _, err := path.Match(cfg.Report, ""); err != nil || path.IsAbs(cfg.Report) {
		return nil, fmt.Errorf("report is %q, want a path in the workspace", cfg.Report)
	}
	if !tests && (cfg.Partial || cfg.Min != nil) {
		return nil, errors.New("partial and min_tests are of a report of tests: result go_test, junit or tap")
	}
	if cfg.Min != nil {
		if c.min = *cfg.Min; c.min < 0 {
			return nil, errors.New("min_tests is negative")
		}
	}
	if cfg.Output < 0 {
		return nil, errors.New("output is negative")
	}
	if cfg.Timeout != "" {
		var err error
		if c.timeout, err = time.ParseDuration(cfg.Timeout); err != nil || c.timeout <= 0 {
			return nil, fmt.Errorf("timeout is %q, want a duration such as 90s", cfg.Timeout)
		}
	}
	return c, nil
}

// Judge runs the program. What the agent can have caused is a reward; what it
// can't, such as a program that isn't there, is an error.
func (c *command) Judge(ctx context.Context, r *judger.Request) (judger.Verdict, error) {
	var in Input
	if err := r.DecodeInput(&in); err != nil {
		return judger.Verdict{}, err
	}
	if len(in.Command) == 0 || in.Command[0] == "" {
		return judger.Verdict{}, errors.New("command is empty")
	}
	if len(in.Tests) > 0 && (c.cfg.Result == exitCode || c.cfg.Result == asJSON) {
		return judger.Verdict{}, fmt.Errorf("tests are named, but result %s reports none", c.cfg.Result)
	}
	w, err := workspace.Open(r.Rollout())
	if err != nil {
		return judger.Verdict{}, err
	}
	defer w.Close()
	changed, err := restore(w, in.Files)
	if err != nil {
		return judger.Verdict{}, err
	}
	if len(changed) > 0 && c.cfg.Tamper != "score" {
		v := judger.Skip("")
		if c.cfg.Tamper == "zero" {
			v = judger.Reward(0)
		}
		v.Tampered, v.Label, v.Explanation = true, "tampered", "changed by the agent: "+strings.Join(changed, ", ")
		return v, nil
	}
	v, err := c.run(ctx, w, in)
	v.Tampered = len(changed) > 0
	return v, err
}

// restore writes the files and names those that the agent changed: those with
// other content, those that are no regular file any more, and those that are
// gone, if they were there for it to see.
func restore(w *workspace.Workspace, files map[string]string) (changed []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		want := strings.TrimSuffix(files[name], "\n") + "\n" // a text out of YAML may have lost its last line end
		same := false
		switch info, err := w.Lstat(name); {
		case errors.Is(err, fs.ErrNotExist):
			same = !w.Had(name)
		case err == nil && info.Mode().IsRegular():
			got, err := w.ReadFile(name)
			same = err == nil && strings.TrimSuffix(strings.ReplaceAll(string(got), "\r\n", "\n"), "\n")+"\n" == want
		}
		if !same {
			changed = append(changed, name)
		}
		if err := w.WriteFile(name, []byte(want)); err != nil {
			return nil, err
		}
	}
	return changed, nil
}

func (c *command) run(ctx context.Context, w *workspace.Workspace, in Input) (judger.Verdict, error) {
	none := judger.Verdict{}
	if c.cfg.Report != "" { // the agent's own word is not asked
		if err := w.Clear(c.cfg.Report); err != nil {
			return none, err
		}
	}
	var env []string
	for _, name := range slices.Sorted(maps.Keys(in.Env)) {
		env = append(env, name+"="+in.Env[name])
	}
	run := workspace.Command{Argv: in.Command, Env: env, Stdin: []byte(in.Stdin), Timeout: c.timeout}
	var all report
	var stdout *live
	switch {
	case c.cfg.Result == asJSON:
		run.Output = c.cfg.Output
	case c.cfg.Result != exitCode && c.cfg.Report == "":
		bound := int64(c.cfg.Output)
		if bound == 0 && c.cfg.Result == junit {
			bound = defaultReport
		}
		stdout = follow(func(r io.Reader) error { return c.read(&bounded{r, bound, bound}, &all) })
		run.Stdout = stdout
	}
	res, err := w.Run(ctx, run)
	var unread error
	if stdout != nil {
		unread = stdout.end()
	}
	if err != nil {
		return none, err
	}
	if !res.TimedOut && slices.Contains(c.cfg.Errors, res.Code) {
		return none, fmt.Errorf("%s %s, which error_codes names%s", in.Command[0], ended(res), lastWords(res))
	}
	if killed(res) {
		return none, fmt.Errorf("%s was killed, such as for want of memory, so that it says nothing%s", in.Command[0], lastWords(res))
	}
	switch c.cfg.Result {
	case exitCode:
		v := judger.Pass(res.OK())
		v.Label = label(res, res.OK())
		if !res.OK() {
			v.Explanation = in.Command[0] + " " + ended(res) + lastWords(res)
		}
		return v, nil
	case asJSON:
		if !res.OK() {
			return none, fmt.Errorf("%s %s%s", in.Command[0], ended(res), lastWords(res))
		}
	}
	if c.cfg.Result == asJSON {
		texts, err := c.texts(w, res)
		if err != nil {
			return none, err
		}
		return ownVerdict(texts)
	}
	if c.cfg.Report != "" {
		unread = c.files(w, &all)
	}
	return c.tests(in, res, all, unread)
}

// texts are where the program's own verdict is: standard output, or the files
// of the report.
func (c *command) texts(w *workspace.Workspace, res *workspace.Result) ([]string, error) {
	if c.cfg.Report == "" {
		if res.Cut {
			return nil, errors.New("standard output is over the limit, so that only its end is known; raise output, or read a file with report")
		}
		return []string{res.Stdout}, nil
	}
	names, err := reports(w, c.cfg.Report)
	var out []string
	for _, name := range names {
		text, e := w.ReadFile(name)
		if e != nil {
			err = errors.Join(err, e)
			continue
		}
		out = append(out, string(text))
	}
	return out, err
}

// files reads the files of a report of tests, with one bound for all of them.
func (c *command) files(w *workspace.Workspace, out *report) error {
	names, err := reports(w, c.cfg.Report)
	in := &bounded{bound: int64(c.cfg.Output)}
	if in.bound == 0 {
		in.bound = defaultReport
	}
	in.left = in.bound
	for _, name := range names {
		f, e := w.Open(name)
		if e == nil {
			in.r = f
			e = c.read(in, out)
			f.Close()
		}
		err = errors.Join(err, e)
	}
	return err
}

// read reads one report.
func (c *command) read(r io.Reader, out *report) error {
	return readers[c.cfg.Result](r, out)
}

// reports are the files that a pattern names.
func reports(w *workspace.Workspace, pattern string) ([]string, error) {
	all, err := w.Files()
	if err != nil {
		return nil, err
	}
	pattern = path.Clean(pattern)
	return slices.DeleteFunc(all, func(name string) bool {
		ok, err := path.Match(pattern, name)
		return err != nil || !ok
	}), nil
}

// ownVerdict reads a number or a verdict.
func ownVerdict(texts []string) (judger.Verdict, error) {
	if len(texts) != 1 {
		return judger.Verdict{}, fmt.Errorf("the program left %d reports, want one", len(texts))
	}
	text := strings.TrimSpace(texts[0])
	if text == "" {
		return judger.Verdict{}, errors.New("the program wrote no verdict")
	}
	var number float64
	if json.Unmarshal([]byte(text), &number) == nil && text != "null" {
		return judger.Reward(number), nil
	}
	var v judger.Verdict
	if err := json.Unmarshal([]byte(text), &v); err != nil || text == "null" {
		return judger.Verdict{}, fmt.Errorf("what the program wrote is neither a number nor a verdict: %s", short(text))
	}
	for name := range v.Extra {
		return judger.Verdict{}, fmt.Errorf("the program's verdict has %q, which no verdict has", name)
	}
	switch {
	case v.Status == "" && v.Reward != nil:
		v.Status = judger.Scored
	case v.Status == "":
		return judger.Verdict{}, errors.New(`the program's verdict has no reward; one without says why: "status": "skipped"`)
	}
	return v, v.Check()
}

// exitKilled is how a shell tells that its child was killed.
const exitKilled = 128 + 9

// killed says that somebody else ended the program, and not its time.
func killed(res *workspace.Result) bool {
	return !res.TimedOut && (res.Signal == "killed" || res.Code == exitKilled)
}

// label says in a word how it went.
func label(res *workspace.Result, passed bool) string {
	switch {
	case res.TimedOut:
		return "timeout"
	case passed:
		return "passed"
	}
	return "failed"
}

func ended(res *workspace.Result) string {
	switch {
	case res.TimedOut:
		return "did not end in time"
	case res.Signal != "":
		return "was ended by a signal: " + res.Signal
	}
	return fmt.Sprintf("ended with exit code %d", res.Code)
}

// lastWords is the end of what the program wrote.
func lastWords(res *workspace.Result) string {
	text := strings.TrimSpace(res.Stderr)
	if text == "" {
		text = strings.TrimSpace(res.Stdout)
	}
	if text == "" {
		return ""
	}
	const most = 1000
	if len(text) > most {
		text = "…" + strings.ToValidUTF8(text[len(text)-most:], "")
	}
	return "; its output ends: " + text
}

func short(text string) string {
	const most = 200
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

func init() {
	judger.Register("command", New, judger.Input[Input](), judger.RunsPrograms(),
		judger.Summary("runs a program in a copy of the workspace: its exit code, its verdict, or its tests"))
}
