package pipeline

import (
	"encoding/json"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/penstock-dev/penstock/core/upstream/cost"
	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/component"
)

// Version is the only value of the key `penstock` so far.
const Version = "v1"

// Pipeline is a file that was checked: paths are absolute, secrets are
// resolved, defaults are filled in, expressions are compiled. It may be used
// from several goroutines.
type Pipeline struct {
	Path string // absolute
	Dir  string // the folder that holds the file; relative paths start here
	Name string
	// Source is the file as read. With the list of --set values it is all
	// that Restore needs.
	Source      []byte
	Tasks       []Task
	Samples     int // rollouts per task, at least 1
	Models      map[string]*Model
	ModelOrder  []string
	Stages      []*Stage // in file order, which is the order in which they run
	Reward      *Expr    // nil when no stage judges: then the reward is null
	Workspace   Workspace
	Concurrency Concurrency
	Notify      []Notify
	Warnings    Diagnostics
	// Plugins are the registered names that this pipeline uses, such as
	// "judger/answer", sorted.
	Plugins []string
	// Hashes holds the sha256 of each file that gives the pipeline its
	// meaning, by absolute path: upstream, format, template and tokenizer
	// files. The pipeline file's own stands under Path.
	Hashes map[string]string
	// Resolved is the pipeline as kept in run.json, secrets as their
	// ${env:} and ${file:} references. Restore reads it.
	Resolved json.RawMessage

	reads   []Read
	secrets []string
}

// Task is one line of the tasks file.
type Task struct {
	ID   string
	Data json.RawMessage // the object, with id filled in
}

// Model is an entry of `models:`.
type Model struct {
	Name     string
	Upstream Upstream
	Model    string // its name at the upstream
	ServeAs  string // what the agent is told
	// Aliases are further names under which the agent may ask for it.
	Aliases []string
	// UnknownModels is reject or main.
	UnknownModels string
	// Format is a name, or an absolute path if FormatFile is set.
	Format     string
	FormatFile bool
	Template   string // a path is absolute
	Tokenizer  string // a path is absolute
	Capture    string // exact, reported or text
	Context    int    // tokens; 0 = not given
	Sampling   chat.Sampling
	Family     string
	Hooks      []HookUse
	Prices     *cost.Prices // nil = not known
}

// Upstream says who generates.
type Upstream struct {
	Kind   string
	URL    string
	APIKey string
	File   string // absolute
	// With holds what only this kind of upstream knows.
	With map[string]any
}

// HookUse is one entry of a `hooks:` list.
type HookUse struct {
	Name       string // without "hook/"
	Config     json.RawMessage
	FailOpen   bool
	Descriptor component.Descriptor
	// Observes and Changes are the points of this place at which it acts.
	Observes, Changes []string
}

// Stage is one entry of `stages:`. It uses a component, runs a program (Run)
// or repeats stages (Loop).
type Stage struct {
	ID    string
	Kind  string // invoker, judger or converter; run or loop
	Name  string // of the component, without its kind
	Model string // an entry of Models, or ""
	// Config is given once, when the component is opened.
	Config json.RawMessage
	// Input is given with each call; nil when the component takes none.
	Input      *Template
	If         *Expr // nil = always
	Needs      []string
	Timeout    time.Duration // 0 = none
	Retry      Retry
	OnError    string        // fail or continue
	Idle       time.Duration // 0 = off
	Budget     Budget
	Hooks      []HookUse
	Sandbox    Sandbox
	Descriptor component.Descriptor

	Run  *Template // the command line, a list of texts
	Loop *Loop
	// Group says that a judger sees all samples of a task at once.
	Group bool
	// Direct says that the component reaches a model by itself, past the gateway.
	Direct bool
	family string // of the model that it reaches so
	// Output is the schema that the file gives for what the stage writes; nil
	// leaves it to the component.
	Output json.RawMessage
	// Repair is how often an agent is asked again whose output doesn't fit.
	Repair int
	// Compat are names that the stage may write in place of those of Output.
	Compat map[string]string
	output *jsonschema.Schema
	// takes and gives are what the stage itself takes and gives; see
	// CheckInput and CheckResult.
	takes, gives *jsonschema.Schema
}

// The kinds of stage that use no component.
const (
	KindRun  = "run"
	KindLoop = "loop"
)

// Loop is a body of stages that is run until a condition holds.
type Loop struct {
	Stages []*Stage
	Until  *Expr
	Max    int // passes through the body, at least 1
	// Else is fail, continue, park, or the id of a later stage to go on with,
	// when Max passes didn't make Until true.
	Else string
}

// Uses is the name in the file, such as "judger/answer", or the stage's kind
// when it uses no component.
func (s *Stage) Uses() string {
	if s.Name == "" {
		return s.Kind
	}
	return s.Kind + "/" + s.Name
}

// Each calls f with every stage of the pipeline, those within loops included,
// in the order of the file.
func (p *Pipeline) Each(f func(*Stage)) { each(p.Stages, f) }

func each(stages []*Stage, f func(*Stage)) {
	for _, s := range stages {
		f(s)
		if s.Loop != nil {
			each(s.Loop.Stages, f)
		}
	}
}

// Retry says how often a stage is tried.
type Retry struct {
	Attempts int      // all tries, at least 1
	On       []string // exit_status values and judge_error
}

// Budget bounds what a stage's agent may use. 0 = no bound.
type Budget struct {
	Calls  int           // generations that reached the upstream
	Turns  int           // those of the main lineage
	Tokens int           // input and output
	USD    float64       // of calls, by their prices
	Wall   time.Duration // wall time
}

// Sandbox is what the programs of a stage may touch beside their workspace,
// their home and the system's own. Paths are absolute.
type Sandbox struct {
	Use         string // one of Sandboxes
	Image       string // of docker and podman
	Read, Write []string
	// Network leaves the network as it is; else TCP goes to the gateway alone,
	// where the kernel can hold that.
	Network bool
}

// Concurrency says how much runs at once.
type Concurrency struct {
	Rollouts int // rollouts in flight
	Judge    int // judge calls in flight
}

// Notify is who is told of a park: exactly one of its fields is set.
type Notify struct {
	Command []string
	Webhook string
	File    string // absolute
}

// Workspace is where the stages of a rollout work.
type Workspace struct {
	// From names the folder that each rollout's workspace is copied from; nil
	// means that it starts empty. See Source.
	From *Template
	Keep string // failed, always or never
	dir  string
}

// The values of on_error, and of keep.
const (
	OnErrorFail     = "fail"
	OnErrorContinue = "continue"
	OnErrorPark     = "park"
	KeepFailed      = "failed"
	KeepAlways      = "always"
	KeepNever       = "never"
)

// Env is what expressions read, for one rollout.
type Env struct {
	Task    json.RawMessage
	Rollout RolloutEnv
	Run     RunEnv
	Stages  map[string]StageEnv
}

// RolloutEnv is `rollout` in expressions.
type RolloutEnv struct {
	ID     string
	Sample int
	Status string
}

// RunEnv is `run` in expressions.
type RunEnv struct {
	ID, Dir string
}

// StageEnv is what later stages read of a stage: Status is completed, failed
// or skipped; Output is nil when there is none.
type StageEnv struct {
	Status, ExitStatus, Error string
	Output                    json.RawMessage
}

// Catalog knows the components: built in, and those of the file's plugins.
// Its formats are those of plugins and of format files that ship with the
// program.
type Catalog interface {
	Describe(kind, name string) (component.Descriptor, error)
	Names(kind string) []string
}

// ConfigChecker is a Catalog that can try a config on the component itself. An
// error about one field is a *schema.Error.
type ConfigChecker interface {
	CheckConfig(kind, name string, config json.RawMessage) error
}

// PluginSource is one entry of `plugins:`. Exactly one of Process, ProcessGo,
// Wasm, WasmGo and Exec is set; paths are absolute.
type PluginSource struct {
	Key         string // judger/exact42
	Process     []string
	ProcessGo   string
	Wasm        string
	WasmGo      string
	Exec        []string
	Env         []string // NAME=value
	Limits      Limits
	Grant       []string
	MaxInFlight int
	Files       []string
	Override    bool
	Name        string // where the plugin registers another name than Key's
}

// Limits bounds a plugin. 0 = the transport's default.
type Limits struct {
	Memory  int64 // bytes
	Timeout time.Duration
	In, Out int64 // bytes
}

// ParseOptions says how a file is read.
type ParseOptions struct {
	// Set holds the --set values, each path=value.
	Set []string
	// Tasks replaces the file's tasks by those of this JSONL file; a relative
	// path starts at the working directory.
	Tasks string
	// Samples replaces tasks.samples if it isn't 0.
	Samples int
	// GivenTasks, if not nil, are the tasks: no tasks file is read. It is how
	// a run is resumed.
	GivenTasks []Task
	// NoEnv leaves ${env:} and ${file:} as they are, and programs, sandboxes
	// and their folders unsought.
	NoEnv bool
	// Env looks up ${env:}; os.LookupEnv by default.
	Env func(string) (string, bool)
	// Program says why a program can't be started: one of an absolute path, or
	// of a name that is looked for as agents look for it. The error of one that
	// isn't there is fs.ErrNotExist. Nil, or NoEnv, looks for none.
	Program func(name string) error
	// Sandbox says why a sandbox of this name, and of an image where it has one,
	// can't be had here. Nil, or NoEnv, leaves that out.
	Sandbox func(name, image string) error
	// Enable names features of the file's language that are known to the
	// decoder and refused unless named here; see Features.
	Enable []string
	// JudgeOnly says that only judgers will run, and of them those whose stages
	// Judges names if it names any. What the others need from outside of the
	// file, such as ${env:}, may be missing.
	JudgeOnly bool
	Judges    []string
	// NoStages allows a file without stages and tasks: one whose models alone
	// are served.
	NoStages bool
}
