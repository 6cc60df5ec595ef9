package pipeline

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// write makes a folder with files and returns the path of the first.
func write(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		path := filepath.Join(dir, files[i])
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(files[i+1]), 0o644))
	}
	return filepath.Join(dir, files[0])
}

const example = `penstock: v1
name: calculator
plugins:
  judger/exact42: { process: { go: ./exact42 }, limits: { memory: 64MiB, timeout: 200ms }, env: { KEY: "${env:SECRET}" } }
tasks: { file: tasks.jsonl, samples: 2 }
models:
  policy:
    upstream: { kind: script, file: model.yaml }
    format: qwen3_coder
    sampling: { temperature: 1.0, max_tokens: 1024, stop: [END] }
    hooks: [hook/sanitize-tools, { uses: hook/mask, with: { words: ["${env:SECRET}"] }, on_error: open }]
stages:
  - id: solve
    uses: invoker/agent
    model: policy
    with: { prompt: "${{ task.prompt }}", max_turns: 5, mcp: { calc: { command: [a, "${{ task.id }}-${{ rollout.sample }}"] } }, extra: "${{ task }}" }
    timeout: 10m
    retry: { attempts: 2, on: [infra_error] }
    budget: { calls: 7, turns: 3 }
    idle: 90s
  - id: exact
    uses: judger/exact42
    if: ${{ solve.exit_status == "ok" && solve.output.text != "" }}
    needs: [solve]
  - { id: rows, uses: converter/rows }
workspace: { from: "work/${{ task.id }}", keep: always }
concurrency: { rollouts: 3 }
`

const tasks = `{"id": "one", "prompt": "2+2", "big": 12345678901234567890, "zeta": null}
{"prompt": "3*3", "zeta": 1}
`

func loadExample(t *testing.T, set ...string) *Pipeline {
	t.Helper()
	path := write(t, "p.yaml", example, "tasks.jsonl", tasks, "model.yaml", "rules: []", "exact42/main.go", "package main")
	p, err := load(path, ParseOptions{Set: set, Env: func(n string) (string, bool) { return "s3cret", n == "SECRET" }})
	require.NoError(t, err)
	return p
}

func TestPipelineIsWhatTheFileSays(t *testing.T) {
	p := loadExample(t)
	assert.Equal(t, "calculator", p.Name)
	assert.Equal(t, 2, p.Samples)
	require.Len(t, p.Tasks, 2)
	assert.Equal(t, "one", p.Tasks[0].ID)
	assert.Equal(t, "t0002", p.Tasks[1].ID)
	assert.JSONEq(t, `{"id":"t0002","prompt":"3*3","zeta":1}`, string(p.Tasks[1].Data))

	m := p.Models["policy"]
	assert.Equal(t, "exact", m.Capture, "the default with kind script")
	assert.Equal(t, "policy", m.ServeAs)
	assert.Equal(t, filepath.Join(p.Dir, "model.yaml"), m.Upstream.File)
	assert.Equal(t, 1024, *m.Sampling.MaxTokens)
	require.Len(t, m.Hooks, 2)
	assert.True(t, m.Hooks[1].FailOpen)
	assert.JSONEq(t, `{"words":["s3cret"]}`, string(m.Hooks[1].Config))

	require.Len(t, p.Stages, 3)
	solve := p.Stages[0]
	assert.Equal(t, 10*time.Minute, solve.Timeout)
	assert.Equal(t, 90*time.Second, solve.Idle)
	assert.Equal(t, Budget{Calls: 7, Turns: 3}, solve.Budget)
	assert.Equal(t, Retry{Attempts: 2, On: []string{"infra_error"}}, solve.Retry)
	assert.JSONEq(t, `{"max_turns":5}`, string(solve.Config))
	assert.Equal(t, 2*time.Minute, p.Stages[1].Timeout)
	assert.Equal(t, 3, p.Concurrency.Rollouts)
	assert.Positive(t, p.Concurrency.Judge)
	assert.Equal(t, []string{"converter/rows", "format/qwen3_coder", "hook/mask", "hook/sanitize-tools", "invoker/agent", "judger/exact42"}, p.Plugins)
	assert.Empty(t, p.Warnings)
}

func env(task string) Env {
	return Env{
		Task:    json.RawMessage(task),
		Rollout: RolloutEnv{ID: "one~1", Sample: 1, Status: "running"},
		Run:     RunEnv{ID: "r-1", Dir: "/runs/1"},
		Stages: map[string]StageEnv{
			"solve": {Status: "completed", ExitStatus: "ok", Output: json.RawMessage(`{"text":"4","usage":{"input":1,"output":2},"cost":null,"exit_status":"ok"}`)},
		},
	}
}

func TestInputKeepsTypesOrderAndBigNumbers(t *testing.T) {
	p := loadExample(t)
	got, err := p.Stages[0].Input.JSON(env(`{"id":"one","prompt":"say \"<hi>\"","zeta":null,"big":12345678901234567890}`))
	require.NoError(t, err)
	assert.Equal(t, `{"prompt":"say \"<hi>\"","mcp":{"calc":{"command":["a","one-1"]}},`+
		`"extra":{"id":"one","prompt":"say \"<hi>\"","zeta":null,"big":12345678901234567890}}`, string(got))
}

func TestInputThatBreaksTheSchemaAtRunTimeIsAnError(t *testing.T) {
	p := loadExample(t)
	_, err := p.Stages[0].Input.JSON(env(`{"id":"one","prompt":7}`))
	require.Error(t, err)
	assert.Contains(t, err.Error(), "/prompt: this is a number, want a string")
}

func TestConditionsAndRewards(t *testing.T) {
	p := loadExample(t)
	e := env(`{"id":"one","prompt":"x"}`)
	ok, err := p.Stages[1].If.Bool(e)
	require.NoError(t, err)
	assert.True(t, ok)

	r, err := p.Reward.Number(e)
	require.NoError(t, err)
	assert.Nil(t, r, "a judger that was skipped gives no reward")
	e.Stages["exact"] = StageEnv{Status: "completed", Output: json.RawMessage(`{"reward":0,"status":"scored"}`)}
	r, err = p.Reward.Number(e)
	require.NoError(t, err)
	assert.Equal(t, 0.0, *r, "0 is a reward, not null")
	e.Stages["exact"] = StageEnv{Status: "completed", Output: json.RawMessage(`{"reward":null,"status":"skipped"}`)}
	r, err = p.Reward.Number(e)
	require.NoError(t, err)
	assert.Nil(t, r)

	dir, err := p.Workspace.FromDir(e)
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(p.Dir, "work/one"), dir)
}

func TestExpressionsRunInParallel(t *testing.T) {
	p := loadExample(t)
	done := make(chan error)
	for range 8 {
		go func() {
			var err error
			for range 200 {
				if _, err = p.Stages[0].Input.JSON(env(`{"id":"one","prompt":"x"}`)); err != nil {
					break
				}
				if _, err = p.Stages[1].If.Bool(env(`{"id":"one","prompt":"x"}`)); err != nil {
					break
				}
			}
			done <- err
		}()
	}
	for range 8 {
		require.NoError(t, <-done)
	}
}

func TestSetWorksInAnyOrder(t *testing.T) {
	for _, set := range [][]string{
		{"stages.solve.uses=invoker/quiet", "stages.solve.model=policy", "stages.solve.with.effort=high"},
		{"stages.solve.with.effort=high", "stages.solve.uses=invoker/quiet"},
	} {
		path := write(t, "p.yaml", example, "tasks.jsonl", tasks, "model.yaml", "", "exact42/main.go", "")
		_, err := load(path, ParseOptions{Set: append(set, "stages.solve.with.max_turns=2"), Env: func(string) (string, bool) { return "x", true }})
		require.Error(t, err, "quiet takes neither model nor max_turns")
		assert.Contains(t, err.Error(), "invoker/quiet has no setting 'max_turns'")
	}
	p := loadExample(t, "stages.solve.with.mcp.calc.command=[penstock, dev, calculator, --wrong]", "stages.solve.with.mode=api",
		"models.policy.format=hermes", "models.policy.context=100", "tasks.samples=5", "stages.solve.retry.attempts=4", "stages.solve.retry.on.0=timeout")
	got, err := p.Stages[0].Input.JSON(env(`{"id":"one","prompt":"x"}`))
	require.NoError(t, err)
	assert.Contains(t, string(got), `["penstock","dev","calculator","--wrong"]`)
	assert.JSONEq(t, `{"max_turns":5,"mode":"api"}`, string(p.Stages[0].Config))
	assert.Equal(t, "hermes", p.Models["policy"].Format)
	assert.Equal(t, 100, p.Models["policy"].Context)
	assert.Equal(t, 5, p.Samples)
	assert.Equal(t, Retry{Attempts: 4, On: []string{"timeout"}}, p.Stages[0].Retry)
}

func TestSecretsStayReferences(t *testing.T) {
	p := loadExample(t)
	assert.Equal(t, []string{"s3cret"}, p.SecretValues())
	assert.NotContains(t, string(p.Resolved), "s3cret")
	assert.Contains(t, string(p.Resolved), "${env:SECRET}")
}

func TestNoMessageShowsASecret(t *testing.T) {
	path := write(t, "p.yaml", example, "tasks.jsonl", tasks, "model.yaml", "", "exact42/main.go", "")
	_, err := load(path, ParseOptions{Set: []string{"stages.solve.with.mode=${env:SECRET}"}, Env: func(string) (string, bool) { return "s3cret", true }})
	require.ErrorContains(t, err, "'***' is not one of")
	assert.NotContains(t, err.Error(), "s3cret")
}

func TestRestoreGivesTheSamePipeline(t *testing.T) {
	p := loadExample(t, "stages.solve.with.max_turns=9", "models.policy.hooks=[]")
	require.NoError(t, os.Remove(filepath.Join(p.Dir, "tasks.jsonl")))
	require.NoError(t, os.Remove(p.Path))
	f, err := Restore(p.Resolved, ParseOptions{GivenTasks: p.Tasks, Env: func(string) (string, bool) { return "new", true }})
	require.NoError(t, err)
	q, err := f.Check(newCatalog())
	require.NoError(t, err)
	assert.Equal(t, p.Tasks, q.Tasks)
	assert.Equal(t, p.Samples, q.Samples)
	assert.Equal(t, p.Hashes, q.Hashes)
	assert.JSONEq(t, `{"max_turns":9}`, string(q.Stages[0].Config))
	assert.JSONEq(t, string(p.Resolved), strings.Replace(string(q.Resolved), `"samples":2`, `"samples":2,"tasks_file":"`+filepath.Join(p.Dir, "tasks.jsonl")+`"`, 1))
}

func TestPluginSources(t *testing.T) {
	path := write(t, "p.yaml", example, "tasks.jsonl", tasks, "model.yaml", "", "exact42/main.go", "")
	f, err := Parse(path, ParseOptions{Env: func(string) (string, bool) { return "s3cret", true }})
	require.NoError(t, err)
	require.Len(t, f.PluginSources(), 1)
	assert.Equal(t, PluginSource{
		Key: "judger/exact42", ProcessGo: filepath.Join(filepath.Dir(path), "exact42"), Env: []string{"KEY=s3cret"},
		Limits: Limits{Memory: 64 << 20, Timeout: 200 * time.Millisecond},
	}, f.PluginSources()[0])
	err = f.PluginError(f.PluginSources()[0], os.ErrInvalid)
	assert.Contains(t, err.Error(), "p.yaml:4:3: error: the plugin judger/exact42 can't be used: invalid argument")
}

func TestParseGivesTheFileBesideItsErrors(t *testing.T) {
	path := write(t, "p.yaml", strings.Replace(example, "name: calc", "nmae: calc", 1), "tasks.jsonl", tasks, "model.yaml", "", "exact42/main.go", "")
	f, err := Parse(path, ParseOptions{})
	require.Error(t, err)
	require.NotNil(t, f)
	_, err = f.Check(testCatalog{})
	assert.Contains(t, err.Error(), "unknown key 'nmae'")
	assert.Contains(t, err.Error(), "there is no invoker 'agent'")
}

func TestInlineAndCSVTasks(t *testing.T) {
	path := write(t, "p.yaml", "penstock: v1\ntasks: { file: t.csv }\n", "t.csv", "id,prompt,n\na,\"two\nlines\",\nb,x,3\n")
	f, err := Parse(path, ParseOptions{Enable: []string{"csv"}, NoStages: true})
	require.NoError(t, err)
	require.Len(t, f.Tasks(), 2)
	assert.JSONEq(t, `{"id":"a","prompt":"two\nlines"}`, string(f.Tasks()[0].Data))
	assert.True(t, f.taskType.field("n").optional)
	assert.False(t, f.taskType.field("prompt").optional)
}

func TestGraphAndSchema(t *testing.T) {
	p := loadExample(t)
	golden(t, "testdata/graph.golden", Graph(p))
	cat := newCatalog()
	delete(cat, "judger/broken")
	b, err := Schema(cat)
	require.NoError(t, err)
	golden(t, "testdata/schema.golden", string(b)+"\n")

	// With loops a stage holds stages.
	b, err = Schema(cat, Features...)
	require.NoError(t, err)
	set := schemaSet{}
	compiled, err := set.compile(b)
	require.NoError(t, err)
	src, err := os.ReadFile("testdata/diag/ok.yaml")
	require.NoError(t, err)
	check := func(text string) error {
		var v any
		require.NoError(t, yaml.Unmarshal([]byte(text), &v))
		j, err := json.Marshal(v)
		require.NoError(t, err)
		v, err = jsonschema.UnmarshalJSON(bytes.NewReader(j))
		require.NoError(t, err)
		return compiled.Validate(v)
	}
	assert.NoError(t, check(string(src)), "the example fits the schema that editors use")
	assert.Error(t, check(strings.Replace(string(src), "max_turns", "max_trns", 1)))
	assert.Error(t, check(strings.Replace(string(src), "samples", "smples", 1)))
	loop := `{penstock: v1, stages: [{id: a, loop: {max: 2, until: "${{ true }}", stages: [{id: b, uses: judger/exact42}]}}]}`
	assert.NoError(t, check(loop))
	assert.Error(t, check(strings.Replace(loop, "uses", "usse", 1)), "a stage of a loop is checked as well")
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), got)
}

func TestLaterFeaturesAreThere(t *testing.T) {
	src, err := os.ReadFile("testdata/diag/team.yaml")
	require.NoError(t, err)
	p, err := load("testdata/diag/team.yaml", options(string(src)))
	require.NoError(t, err)
	loop := p.Stages[0].Loop
	require.NotNil(t, loop)
	assert.Equal(t, 3, loop.Max)
	assert.Equal(t, "park", loop.Else)
	require.Len(t, loop.Stages, 2)
	assert.Equal(t, Budget{Tokens: 1000, USD: 0.5, Wall: time.Hour}, loop.Stages[0].Budget)
	assert.Equal(t, []string{"claude-haiku"}, p.Models["policy"].Aliases)

	e := env(`{"id":"a","prompt":"it"}`)
	in, err := loop.Stages[0].Input.JSON(e)
	require.NoError(t, err)
	assert.Equal(t, `{"prompt":"Plan it.  before: nothing"}`, string(in), "the first pass has nothing before it")
	e.Stages["plan"] = StageEnv{Status: "completed", Output: json.RawMessage(`{"text":"do"}`)}
	e.Stages["review"] = StageEnv{Status: "completed", Output: json.RawMessage(`{"decision":"reject","findings":["a","b"],"reward":0.5,"status":"scored"}`)}
	in, err = loop.Stages[0].Input.JSON(e)
	require.NoError(t, err)
	assert.Equal(t, `{"prompt":"Plan it. a; b before: do"}`, string(in))
	done, err := loop.Until.Bool(e)
	require.NoError(t, err)
	assert.False(t, done)
	e.Stages["work"] = StageEnv{Status: "completed"}
	argv, err := p.Stages[1].Run.JSON(e)
	require.NoError(t, err)
	assert.Equal(t, `["make","completed",""]`, string(argv))
	assert.NoError(t, p.Stages[2].CheckOutput(json.RawMessage(`{"verdict":"a","notes":""}`)))
	assert.ErrorContains(t, p.Stages[2].CheckOutput(json.RawMessage(`{"verdict":"c","notes":""}`)), `/verdict: 'c' is not one of "a", "b"`)
}

// A relative program starts at the file's folder, whether the file spells it
// out or an expression gives it.
func TestProgramsStartAtTheFile(t *testing.T) {
	path := write(t, "sub/p.yaml", `penstock: v1
tasks: { inline: [{ id: one, program: ./bin/late, argv: [bin/late, ./x], name: sh }] }
models: { m: { upstream: { kind: script, file: model.yaml }, format: hermes } }
stages:
  - { id: config, uses: invoker/agent, model: m, with: { prompt: x, command: [./bin/agent, ./x] } }
  - { id: plain, uses: invoker/command, with: { command: bin/agent } }
  - { id: server, uses: invoker/agent, model: m, with: { prompt: x, mcp: { tool: { command: ../tool } } } }
  - { id: word, uses: invoker/command, with: { command: ["${{ task.program }}", ./x] } }
  - { id: text, uses: invoker/command, with: { command: "${{ task.program }}" } }
  - { id: mixed, uses: invoker/command, with: { command: ["./bin/${{ task.id }}"] } }
  - { id: whole, uses: invoker/command, with: { command: "${{ task.argv }}" } }
  - { id: name, uses: invoker/command, with: { command: ["${{ task.name }}"] } }
  - { id: filled, uses: invoker/command, with: { command: [$PENSTOCK_WORKSPACE/x] } }
  - { id: program, run: [bin/measure, ./x] }
`, "sub/model.yaml", "")
	p, err := load(path, ParseOptions{Enable: []string{"run"}})
	require.NoError(t, err)
	dir := filepath.Dir(path)
	env := Env{Task: p.Tasks[0].Data}
	got := map[string]string{}
	for _, s := range p.Stages {
		template := s.Input
		if s.Kind == KindRun {
			template = s.Run
		}
		raw, err := template.JSON(env)
		require.NoError(t, err)
		got[s.ID] = strings.ReplaceAll(string(raw), dir, "DIR")
	}
	assert.JSONEq(t, `{"command":["DIR/bin/agent","./x"]}`, strings.ReplaceAll(string(p.Stages[0].Config), dir, "DIR"))
	assert.Equal(t, map[string]string{
		"config":  `{"prompt":"x"}`,
		"plain":   `{"command":"DIR/bin/agent"}`,
		"server":  `{"prompt":"x","mcp":{"tool":{"command":"` + filepath.Join(filepath.Dir(dir), "tool") + `"}}}`,
		"word":    `{"command":["DIR/bin/late","./x"]}`,
		"text":    `{"command":"DIR/bin/late"}`,
		"mixed":   `{"command":["DIR/bin/one"]}`,
		"whole":   `{"command":["DIR/bin/late","./x"]}`,
		"name":    `{"command":["sh"]}`,
		"filled":  `{"command":["$PENSTOCK_WORKSPACE/x"]}`,
		"program": `["DIR/bin/measure","./x"]`,
	}, got)
}

// What is wrong with one plugin is told with all else that is wrong, and what
// uses it is not reported again.
func TestAPluginThatFailedIsReportedOnce(t *testing.T) {
	path := write(t, "p.yaml", strings.Replace(example, "name: calc", "nmae: calc", 1), "tasks.jsonl", tasks, "model.yaml", "", "exact42/main.go", "")
	f, err := Parse(path, ParseOptions{Env: func(string) (string, bool) { return "s3cret", true }})
	require.Error(t, err)
	f.PluginFailed(f.PluginSources()[0], os.ErrInvalid)
	cat := newCatalog()
	delete(cat, "judger/exact42")
	_, err = f.Check(cat)
	assert.Contains(t, err.Error(), "unknown key 'nmae'")
	assert.Contains(t, err.Error(), "p.yaml:4:3: error: the plugin judger/exact42 can't be used: invalid argument")
	assert.Equal(t, 1, strings.Count(err.Error(), "judger/exact42 can't be used"))
	assert.NotContains(t, err.Error(), "there is no judger")
}
