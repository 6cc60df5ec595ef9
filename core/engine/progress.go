package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/core/run"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/doc"
)

// progress is what the passes of a loop came to so far.
type progress struct {
	found [][]string // of each pass that has any: its findings, with their stages
	plan  string     // what the agents of the last pass wrote and left
	wrote string     // what all stages of the last pass wrote
}

// noFurther takes a pass in, and says why another one would come to the same, or ""
// when it need not.
func (r *rollout) noFurther(l *pipeline.Loop, p *progress) string {
	found, told := r.found(l)
	plan, wrote := r.plan(l), r.wrote(l)
	defer func() { p.plan, p.wrote = plan, wrote }()
	if !told && plan != "" && plan == p.plan && wrote == p.wrote && r.reviewed(l) {
		return "the last two passes came to the same: another one would too"
	}
	if len(found) > 0 {
		for _, earlier := range p.found {
			if containsAll(found, earlier) {
				return "all that was found in an earlier pass is found again: another one would do no better"
			}
		}
		p.found = append(p.found, found)
	}
	if told && plan != "" && plan == p.plan {
		return "the work is the same as in the pass before, whatever was found in it: another one would be too"
	}
	return ""
}

// reviewed says whether a stage of the body judges the work of the others. A loop
// without one, or without work, waits for something: as often as it may.
func (r *rollout) reviewed(l *pipeline.Loop) bool {
	return slices.ContainsFunc(l.Stages, func(s *pipeline.Stage) bool {
		res := r.results[s.ID]
		return res != nil && (s.Kind == component.Judger || doc.At(doc.Bytes(res.Output), "").Has("verdict"))
	})
}

func containsAll(list, of []string) bool {
	return !slices.ContainsFunc(of, func(s string) bool { return !slices.Contains(list, s) })
}

// found are the findings of the body's stages in this pass; told says whether
// any of them gives findings.
func (r *rollout) found(l *pipeline.Loop) (found []string, told bool) {
	for _, s := range l.Stages {
		if res := r.results[s.ID]; res != nil {
			list, ok := findings(res.Output)
			told = told || ok
			for _, f := range list {
				found = append(found, s.ID+"\x00"+f)
			}
		}
	}
	return found, told
}

// plan is what the agents that findings are told to wrote, and how they left the
// workspace; "" when there is none.
func (r *rollout) plan(l *pipeline.Loop) string {
	var out []string
	for _, s := range l.Stages {
		res := r.results[s.ID]
		if s.Kind != component.Invoker || res == nil || res.Output == nil {
			continue
		}
		if _, ok := findings(res.Output); ok {
			continue
		}
		diff := r.Folder.Path("artifacts", run.Escape(r.state.ID), run.Escape(s.ID), fmt.Sprintf("%d.%d", res.Round, res.Try), "workspace.diff")
		out = append(out, s.ID+"\x00"+said(res)+"\x00"+sumOf(diff))
	}
	return strings.Join(out, "\x01")
}

// sumOf is the hash of a file, "" of one that isn't there.
func sumOf(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
}

// wrote is all that the body's stages wrote, in a form that can be compared.
func (r *rollout) wrote(l *pipeline.Loop) string {
	var out []string
	for _, s := range l.Stages {
		if res := r.results[s.ID]; res != nil {
			out = append(out, s.ID+"\x00"+said(res))
		}
	}
	return strings.Join(out, "\x01")
}

// said is a stage's output without what differs each time.
func said(res *trace.StageResult) string {
	var m map[string]json.RawMessage
	if json.Unmarshal(res.Output, &m) != nil {
		return string(res.Output)
	}
	for _, k := range []string{"usage", "cost"} {
		delete(m, k)
	}
	b, err := chat.Marshal(m)
	if err != nil {
		return string(res.Output)
	}
	return string(b)
}

// findings are those of an output, each without what doesn't count: case, white
// space and how a sentence ends.
func findings(output json.RawMessage) ([]string, bool) {
	var o struct {
		Findings *[]json.RawMessage `json:"findings"`
	}
	if json.Unmarshal(output, &o) != nil || o.Findings == nil {
		return nil, false
	}
	out := make([]string, len(*o.Findings))
	for i, f := range *o.Findings {
		var v any
		var text string
		if json.Unmarshal(f, &text) == nil {
			f = json.RawMessage(text)
		} else if json.Unmarshal(f, &v) == nil {
			if b, err := chat.Marshal(v); err == nil {
				f = b
			}
		}
		out[i] = strings.TrimRight(strings.Join(strings.Fields(strings.ToLower(string(f))), " "), ".!;, ")
	}
	return out, true
}

// approves says whether a stage that gives findings is content all the same.
func approves(output json.RawMessage) bool {
	var o struct {
		Verdict string `json:"verdict"`
	}
	return json.Unmarshal(output, &o) == nil && strings.HasPrefix(strings.ToLower(o.Verdict), "approve")
}
