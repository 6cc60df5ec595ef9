package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/penstock-dev/penstock/core/agent"
	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/invoker"
)

// program runs one try of a `run:` stage: a program without a model, in the
// rollout's workspace. It fails the stage when it exits with anything but 0;
// exit_code and text are kept either way.
func (r *rollout) program(ctx context.Context, s *pipeline.Stage, res *trace.StageResult) (string, error) {
	status, output, err := r.execute(ctx, s, res)
	res.ExitStatus = status
	if output != nil {
		res.Output = output
	}
	if err != nil {
		res.Status, res.Error = "failed", err.Error()
	}
	return again(status, err), nil
}

func (r *rollout) execute(ctx context.Context, s *pipeline.Stage, res *trace.StageResult) (string, json.RawMessage, error) {
	raw, err := r.input(s)
	var given struct{ Run []string }
	if err == nil {
		err = json.Unmarshal(raw, &given)
	}
	if err != nil {
		return invoker.InfraError, nil, err
	}
	argv := given.Run
	home, dir, err := r.place(s.ID, res)
	if err != nil {
		return invoker.InfraError, nil, err
	}
	spec := agent.Spec{
		Argv: argv, Dir: r.ws.Path(), Timeout: s.Timeout, Grace: grace,
		Env:    agent.BaseEnv(agent.EnvOptions{BinDir: r.binDir, Home: home}),
		Stdout: filepath.Join(dir, "stdout"), Stderr: filepath.Join(dir, "stderr"), Redact: r.redacted(),
	}
	if err := r.confine(&spec, s, home); err != nil {
		return invoker.InfraError, nil, err
	}
	exit, err := r.runner.Run(ctx, spec)
	if err != nil {
		return invoker.InfraError, nil, fmt.Errorf("start program: %w", err)
	}
	output, err := withText(exit.Stdout, map[string]any{"exit_code": exit.Code})
	if err != nil {
		return invoker.InfraError, nil, fmt.Errorf("encode output: %w", err)
	}
	switch {
	case exit.Lost:
		return "sandbox_lost", nil, fmt.Errorf("the program's supervisor died")
	case exit.TimedOut:
		return "timeout", output, fmt.Errorf("the program ran for longer than %s", s.Timeout)
	case exit.Cancelled:
		return "cancelled", nil, fmt.Errorf("cancelled")
	case exit.Code != 0:
		why := fmt.Sprintf("%s exited with %d", argv[0], exit.Code)
		if exit.Signal != "" {
			why = fmt.Sprintf("%s was ended by %s", argv[0], exit.Signal)
		}
		return invoker.AgentError, output, fmt.Errorf("%s%s", why, lastWords(exit.Stderr))
	}
	return invoker.OK, output, nil
}

// withText encodes the output of a stage. Its text may be all that is kept of a
// program's output, so that it is quoted in place, once.
func withText(text string, fields map[string]any) (json.RawMessage, error) {
	rest, err := chat.Marshal(fields)
	if err != nil {
		return nil, err
	}
	out := append(make([]byte, 0, len(text)+len(text)/16+len(rest)+len(`"text":"",`)), `{"text":`...)
	if out, err = jsontext.AppendQuote(out, strings.ToValidUTF8(text, "\uFFFD")); err != nil {
		return nil, err
	}
	out = append(out, ',')
	return append(out, rest[1:]...), nil
}

// lastWords is ": " with the last line that a program wrote.
func lastWords(stderr string) string {
	text := strings.TrimSpace(stderr)
	if text == "" {
		return ""
	}
	return ": " + text[strings.LastIndexByte(text, '\n')+1:]
}
