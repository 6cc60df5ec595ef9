package pipeline

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// FuzzLoad holds that no file makes the loader panic, that every finding has
// a place within its source, and that a pipeline that loads can be restored.
func FuzzLoad(f *testing.F) {
	files, _ := filepath.Glob("testdata/diag/*.yaml")
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(src), "stages.solve.with.prompt=x")
	}
	f.Add(long(2), "models.policy.hooks.0={uses: hook/mask}")
	cat := newCatalog()
	f.Fuzz(func(t *testing.T, src, set string) {
		o := ParseOptions{Env: func(string) (string, bool) { return "v", true }, Set: []string{set}, Enable: Features}
		file, err := ParseSource("testdata/diag/fuzz.yaml", []byte(src), o)
		if file == nil {
			findings(t, src, err)
			return
		}
		p, err := file.Check(cat)
		if err != nil {
			findings(t, src, err)
			return
		}
		if !json.Valid(p.Resolved) {
			t.Fatalf("resolved is no JSON: %s", p.Resolved)
		}
		Graph(p)
		e := Env{Task: json.RawMessage(`{"id":"x"}`)}
		for _, s := range p.Stages {
			if s.Input != nil {
				if out, err := s.Input.JSON(e); err == nil && !json.Valid(out) {
					t.Fatalf("input is no JSON: %s", out)
				}
			}
			if s.If != nil {
				_, _ = s.If.Bool(e)
			}
		}
	})
}

func findings(t *testing.T, src string, err error) {
	ds, ok := err.(Diagnostics)
	if !ok || ds.Errors() == 0 {
		t.Fatalf("want Diagnostics with an error, got %v", err)
	}
	lines := len(splitLines(src))
	for _, d := range ds {
		inFile := d.File == "testdata/diag/fuzz.yaml"
		if d.Message == "" || inFile && (d.Line < 1 || d.Col < 1 || d.Line > lines) {
			t.Fatalf("a finding out of place: %+v", d)
		}
		_ = d.String()
	}
	_ = ds.JSON()
}

// FuzzTasks holds that no tasks file makes the loader panic and that what it
// accepts is JSON with an id.
func FuzzTasks(f *testing.F) {
	for _, s := range []string{`{"a":1}`, "{\"id\":\"x\",\"b\":[{}]}\n{\"b\":[1,null]}", "[1]", `{"a":1,}`, "{\"id\":\"\\ud800\"}", "\xef\xbb\xbf{}", `{"iD":""}`, `{"a":{"b\"":1,"b\"":2}}`, "{\n\"a\":1\n}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := ParseSource("x.yaml", []byte("penstock: v1\ntasks: { inline: [{}] }"), ParseOptions{NoStages: true})
		if err != nil {
			t.Fatal(err)
		}
		l := &taskLoader{f: file, src: &source{name: "tasks", text: string(b)}, first: map[string]int{}}
		l.jsonl(b)
		l.stat.objectType()
		for _, task := range l.tasks {
			var v map[string]any // names are told apart by case
			if err := json.Unmarshal(task.Data, &v); err != nil || v["id"] != task.ID {
				t.Fatalf("task %q: %s: %v", task.ID, task.Data, err)
			}
		}
	})
}
