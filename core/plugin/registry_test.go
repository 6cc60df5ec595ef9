package plugin

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/doc"
	"github.com/penstock-dev/penstock/sdk/judger"
	"github.com/penstock-dev/penstock/sdk/schema"
)

func judgeRequest(text string) *judger.Request { return judger.NewRequest(doc.Bytes(text)) }

func wat(t testing.TB, name string) string {
	path, err := filepath.Abs("testdata/wat/" + name + ".wasm")
	require.NoError(t, err)
	return path
}

func TestAddRefusesWhatCanNotBe(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "notes.txt")
	require.NoError(t, os.WriteFile(text, []byte("#!/bin/sh\n"), 0o600))
	for name, c := range map[string]struct {
		source Source
		want   string
	}{
		"no kind":            {Source{Key: "exact", Process: []string{"x"}}, `"exact" is not KIND/NAME`},
		"unknown kind":       {Source{Key: "jugder/exact", Process: []string{"x"}}, "is not KIND/NAME"},
		"no transport":       {Source{Key: "judger/a"}, "exactly one of process, wasm and exec"},
		"two transports":     {Source{Key: "judger/a", Wasm: "a", Exec: []string{"b"}}, "exactly one of process, wasm and exec"},
		"converter as wasm":  {Source{Key: "converter/a", Wasm: "a"}, "a converter can't be a wasm plugin; load it with process"},
		"invoker as exec":    {Source{Key: "invoker/a", Exec: []string{"b"}}, "a invoker can't be a exec plugin; load it with process or wasm"},
		"built in":           {Source{Key: "judger/tame", Wasm: zooBuilt.wasm}, "judger/tame is built in; set override: true"},
		"missing program":    {Source{Key: "judger/a", Process: []string{filepath.Join(dir, "none")}}, "does not exist"},
		"not in PATH":        {Source{Key: "judger/a", Process: []string{"no-such-program-here"}}, `there is no program "no-such-program-here" in PATH`},
		"no run bit":         {Source{Key: "judger/a", Process: []string{text}}, "may not be run: chmod +x"},
		"folder":             {Source{Key: "judger/a", Process: []string{dir}}, "is a folder; write {go: "},
		"missing module":     {Source{Key: "judger/a", Wasm: filepath.Join(dir, "none.wasm")}, "no such file"},
		"not a module":       {Source{Key: "judger/a", Wasm: text}, "it is no WASM module; build one for wasip1"},
		"ungranted import":   {Source{Key: "judger/a", Wasm: wat(t, "ungranted")}, `it imports "http_fetch", which isn't granted`},
		"foreign import":     {Source{Key: "judger/a", Wasm: wat(t, "foreign")}, "it imports env.abort"},
		"wrong signature":    {Source{Key: "judger/a", Wasm: wat(t, "signature")}, "it imports field_read as (i32) -> i64, want (i32, i32, i32, i32) -> i32"},
		"wrong export":       {Source{Key: "judger/a", Wasm: wat(t, "export")}, "it exports judge as (i32) -> i32, want () -> i32"},
		"no marker":          {Source{Key: "judger/a", Wasm: wat(t, "unmarked")}, "it doesn't export penstock_v1"},
		"another kind":       {Source{Key: "hook/a", Wasm: wat(t, "exact")}, "the module is no hook: it doesn't export hook_apply"},
		"unknown grant":      {Source{Key: "judger/a", Wasm: wat(t, "exact"), Grant: []string{"http_fetch"}}, `"http_fetch" can't be granted`},
		"another name":       {Source{Key: "judger/other", Wasm: zooBuilt.wasm}, "it holds no judger/other but ["},
		"go without package": {Source{Key: "judger/a", ProcessGo: dir}, "build "},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := newRegistry(t, component.Registered()...)
			require.ErrorContains(t, r.Add(t.Context(), c.source), c.want)
		})
	}
}

// TestR21_ABuiltInGivesWayToAnOverrideAlone: a name is bound once, unless the file
// says that it shall be bound anew.
func TestR21_ABuiltInGivesWayToAnOverrideAlone(t *testing.T) {
	assert.PanicsWithValue(t, "component judger/tame is registered twice", func() {
		component.Register(component.Component{Descriptor: component.Descriptor{Kind: component.Judger, Name: "tame"}})
	})
	r, _ := newRegistry(t, component.Registered()...)
	require.ErrorContains(t, r.Add(t.Context(), Source{Key: "judger/tame", Wasm: zooBuilt.wasm}), "judger/tame is built in; set override: true")
	require.NoError(t, r.Add(t.Context(), Source{Key: "judger/tame", Wasm: zooBuilt.wasm, Override: true}))
	assert.Equal(t, Wasm, r.Transport(component.Judger, "tame"))
	require.ErrorContains(t, r.Add(t.Context(), Source{Key: "judger/tame", Wasm: zooBuilt.wasm, Override: true}), "is given twice")
}

func TestAKeyMayNameAComponentOtherwise(t *testing.T) {
	r, _ := load(t, Source{Key: "judger/mine", Name: "tame", Wasm: zooBuilt.wasm})
	v, err := open(t, r, "mine").Judge(t.Context(), judgeRequest(`{"task":{"answer":"a"},"rollout":{"final_text":"a"}}`))
	require.NoError(t, err)
	assert.InDelta(t, 1, *v.Reward, 0)
}

func TestDigestsAreThoseOfWhatRuns(t *testing.T) {
	r, _ := load(t, Source{Key: "judger/tame", Process: []string{zooBuilt.process}})
	require.NoError(t, r.Add(t.Context(), Source{Key: "hook/shout", Wasm: zooBuilt.wasm}))
	process, err := hashFile(zooBuilt.process)
	require.NoError(t, err)
	module, err := hashFile(zooBuilt.wasm)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"judger/tame": process, "hook/shout": module}, r.Digests())
}

func TestAProgramThatChangesAfterAddRunsAsItWasHashed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plugin")
	text, err := os.ReadFile(zooBuilt.process)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text, 0o700))
	r, _ := load(t, Source{Key: "judger/tame", Process: []string{path}})
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/false\n"), 0o700))
	_, err = open(t, r, "tame").Judge(t.Context(), judgeRequest(`{"rollout":{"final_text":"skip"}}`))
	require.NoError(t, err)
}

func TestAGoFolderIsBuiltAgainOnlyWhenItChanged(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("go.mod", "module built\n\ngo 1.26\n")
	write("main.go", "package main\n\nfunc main() {}\n")
	r, _ := newRegistry(t)
	path, err := r.build(t.Context(), dir, goProcess)
	require.NoError(t, err)
	before, err := hashFile(path)
	require.NoError(t, err)

	with := os.Getenv("PATH")
	t.Setenv("PATH", "") // without a go command
	_, err = r.build(t.Context(), dir, goProcess)
	require.NoError(t, err)
	for name, text := range map[string]string{
		"main.go": "package main\n\nfunc main() { println() }\n",
		"more.go": "package main\n\nfunc init() { println() }\n",
		"go.mod":  "module built\n\ngo 1.25\n",
	} {
		old, err := os.ReadFile(filepath.Join(dir, name))
		write(name, text)
		_, buildErr := r.build(t.Context(), dir, goProcess)
		require.ErrorContains(t, buildErr, "there is no go command in PATH", name)
		if err == nil {
			write(name, string(old))
		} else {
			require.NoError(t, os.Remove(filepath.Join(dir, name)))
		}
	}
	write("main.go", "package main\n\nfunc main() { println(1) }\n")
	t.Setenv("PATH", with)
	_, err = r.build(t.Context(), dir, goProcess)
	require.NoError(t, err)
	after, err := hashFile(path)
	require.NoError(t, err)
	assert.NotEqual(t, before, after)
}

func TestABuildErrorShowsTheCompilersText(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module bad\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n\nfunc main() { undefined() }\n"), 0o600))
	r, _ := newRegistry(t)
	require.ErrorContains(t, r.Add(t.Context(), Source{Key: "judger/a", ProcessGo: dir}), "main.go:3:15: undefined: undefined")
}

func TestConfigErrorsPointAtTheField(t *testing.T) {
	d := component.Descriptor{Config: json.RawMessage(`{"type":"object","additionalProperties":false,"required":["name"],
		"properties":{"name":{"type":"string"},"mode":{"enum":["a","b"]},"inner":{"type":"object","properties":{"n/m":{"type":"integer","minimum":1}}}}}`)}
	for config, want := range map[string]schema.Error{
		`{}`:                                {Pointer: "", Message: "missing name"},
		`{"name":1}`:                        {Pointer: "/name", Message: "is number, want string"},
		`{"name":"x","nmae":"y"}`:           {Pointer: "/nmae", Message: `unknown field, did you mean "name"?`},
		`{"name":"x","zzzzzz":"y"}`:         {Pointer: "/zzzzzz", Message: "unknown field"},
		`{"name":"x","mode":"c"}`:           {Pointer: "/mode", Message: "value must be one of 'a', 'b'"},
		`{"name":"x","inner":{"n/m":0}}`:    {Pointer: "/inner/n~1m", Message: "minimum: got 0, want 1"},
		`{"name":"x","inner":{"n/m":"no"}}`: {Pointer: "/inner/n~1m", Message: "is string, want integer"},
		`[]`:                                {Pointer: "", Message: "is array, want object"},
	} {
		var e *schema.Error
		require.ErrorAs(t, ValidateConfig(d, json.RawMessage(config)), &e, config)
		assert.Equal(t, want, *e, config)
	}
	require.NoError(t, ValidateConfig(d, json.RawMessage(`{"name":"x"}`)))
	require.NoError(t, ValidateConfig(component.Descriptor{}, nil))
	require.Error(t, ValidateConfig(component.Descriptor{}, json.RawMessage(`{"a":1}`)))
}

func TestADescriptionMustBeUsable(t *testing.T) {
	object := func(name string) json.RawMessage {
		return json.RawMessage(`{"type":"object","properties":{"` + name + `":{}}}`)
	}
	require.NoError(t, checkSchemas(component.Descriptor{Config: object("a"), Input: object("b")}))
	require.ErrorContains(t, checkSchemas(component.Descriptor{Config: object("a"), Input: object("a")}), `"a" is a name of both`)
	require.ErrorContains(t, checkSchemas(component.Descriptor{Config: json.RawMessage(`{"type":"objct"}`)}), "config schema")
	require.ErrorContains(t, checkSchemas(component.Descriptor{Input: json.RawMessage(`{"$ref":"file:///etc/passwd"}`)}), "must stand alone")
}

// TestARefusedPluginIsNeverStarted, not even to describe itself, on any
// transport, whether it is the pipeline's own or offered by a folder.
func TestARefusedPluginIsNeverStarted(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "started")
	program := script(t, "touch "+mark+"\nsleep 60\n")
	for name, s := range map[string]Source{
		Process: {Process: []string{program}}, Exec: {Exec: []string{program}}, Wasm: {Wasm: wat(t, "exact")},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := newRegistry(t)
			asked := map[string]string{}
			r.Hold(func(key, digest string) error {
				asked[key] = digest
				return errors.New("is not locked")
			})
			s.Key = "judger/own"
			require.ErrorContains(t, r.Add(t.Context(), s), "load plugin judger/own: is not locked")
			s.Key, s.Origin = "judger/offered", "plugin.yaml"
			require.NoError(t, r.Offer(s))
			_, err := r.Describe("judger", "offered")
			require.ErrorContains(t, err, "is not locked")
			assert.Len(t, asked, 2)
			assert.Equal(t, asked["judger/own"], asked["judger/offered"])
			assert.Len(t, asked["judger/own"], 64)
			assert.NoFileExists(t, mark)
			assert.Empty(t, r.Digests())
		})
	}
}

// TestAScriptThatChangedIsNotStartedAgain: what was hashed is what runs, also
// after a restart.
func TestAScriptThatChangedIsNotStartedAgain(t *testing.T) {
	path := script(t, speaks(`{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"reward\":1}}`))
	helper := filepath.Join(t.TempDir(), "helper")
	require.NoError(t, os.WriteFile(helper, []byte("one"), 0o600))
	r, _ := load(t, Source{Key: "judger/a", Exec: []string{path}, Files: []string{helper}})
	j := open(t, r, "a")
	_, err := ask(j, "")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(helper, []byte("two"), 0o600))
	_, err = ask(j, "")
	require.NoError(t, err, "the one that runs is the one that was hashed")
	require.True(t, r.Crash("judger", "a"))
	_, err = ask(j, "")
	e := fails(t, err, Unavailable)
	assert.Contains(t, e.Message, "its files have changed since they were hashed")
	require.NoError(t, os.WriteFile(helper, []byte("one"), 0o600))
	_, err = ask(j, "")
	require.NoError(t, err)
}
