package pipeline

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"sort"

	"github.com/expr-lang/expr/builtin"
	"github.com/expr-lang/expr/parser/operator"

	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/invoker"
	"github.com/penstock-dev/penstock/sdk/judger"
)

// scope is what an expression can see.
type scope struct {
	vars map[string]*Type
	// later are stages that haven't run yet, and self the stage that the
	// expression stands in.
	later map[string]bool
	self  string
	// broken are ids of stages that can't be used, which was reported where
	// they stand; reading one is not reported again. nameless among them is a
	// stage whose id isn't known: any unknown name may be meant for it.
	broken map[string]bool
	// apart are names that differ from one sample of a task to the next, and
	// can't be read where all of them are given the same.
	apart map[string]bool
	// again says that the stages are those of a loop, which see themselves
	// from the pass before.
	again bool
}

func newScope(task *Type) *scope {
	return &scope{
		vars: map[string]*Type{
			"task": task,
			"rollout": objectOf(nil, Field{"id", stringType}, Field{"sample", integerType},
				Field{"status", enumOf("queued", "running", "completed", "failed", "parked", "cancelled")}),
			"run": objectOf(nil, Field{"id", stringType}, Field{"dir", stringType}),
		},
		later: map[string]bool{},
	}
}

// nameless stands for a stage without an id.
const nameless = ""

// reported tells whether the stage that a name is meant for may be one that
// was reported where it stands.
func (s *scope) reported(name string) bool { return s.broken[name] || s.broken[nameless] }

// misnamed reports whether a text has a stage in it whose id is a word of the
// language, and can't be parsed for it.
func (s *scope) misnamed(text string) bool {
	for id := range s.broken {
		if reserved(id) != "" && slices.Contains(words.FindAllString(text, -1), id) {
			return true
		}
	}
	return false
}

var words = regexp.MustCompile(`[A-Za-z_][A-Za-z0-9_]*`)

func (s *scope) names() []string {
	var out []string
	for n := range s.vars {
		out = append(out, n)
	}
	sort.Strings(out)
	return out
}

// stageType is what later stages see of a stage. why, if it isn't "", says
// why the stage may not have run at all.
func (c *check) stageType(s *Stage, why string) *Type {
	status := enumOf("completed", "failed", "skipped")
	exit := stringType
	switch {
	case why != "":
	case s.If != nil:
		why = fmt.Sprintf("stage '%s' has an 'if' and may be skipped", s.ID)
	case s.OnError == OnErrorContinue:
		why = fmt.Sprintf("stage '%s' may fail and has 'on_error: continue'", s.ID)
	}
	if s.Kind == component.Invoker {
		exit = enumOf("ok", "agent_error", "timeout", "max_turns", "budget", "agent_no_activity", "sandbox_lost", "infra_error", "cancelled")
	}
	if s.Kind != component.Invoker || why != "" {
		exitWhy := why
		if s.Kind != component.Invoker {
			exitWhy = "only invokers have one"
		}
		exit = exit.asOptional(exitWhy)
	}
	fields := []Field{
		{"status", status},
		{"exit_status", exit},
		{"error", stringType.asOptional("only a failed stage has one")},
	}
	if out := c.outputType(s); out != nil {
		if why != "" {
			out = out.asOptional(why)
		}
		fields = append(fields, Field{"output", out})
	}
	return objectOf(nil, fields...)
}

// outputType is the type of a stage's output, nil when it has none.
func (c *check) outputType(s *Stage) *Type {
	schema := s.Writes()
	if schema == nil {
		return nil
	}
	return c.typeOf(schema)
}

// Writes is the schema of a stage's output, nil when it has none.
func (s *Stage) Writes() json.RawMessage {
	switch {
	case s.Kind == component.Converter, s.Kind == KindLoop:
		return nil
	case s.Output != nil:
		return s.Output
	case !absent(s.Descriptor.Output):
		return s.Descriptor.Output
	}
	switch s.Kind {
	case KindRun:
		return runOutput
	case component.Invoker:
		return invoker.OutputSchema
	case component.Judger:
		return judger.Output
	}
	return nil
}

// reserved reports what a stage id collides with, or "".
func reserved(id string) string {
	switch id {
	case "task", "rollout", "run":
		return "a name that every expression has"
	case "true", "false", "nil", "let", "if", "else":
		return "a keyword of expressions"
	}
	if _, ok := operator.Binary[id]; ok {
		return "an operator of expressions"
	}
	if _, ok := operator.Unary[id]; ok {
		return "an operator of expressions"
	}
	if id == fenceName {
		return "a function of expressions"
	}
	for _, b := range builtin.Builtins {
		if b.Name == id {
			return "a function of expressions"
		}
	}
	return ""
}
