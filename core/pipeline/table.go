package pipeline

import "github.com/penstock-dev/penstock/sdk/component"

// kind is what a value of the file must be.
type kind int

const (
	kText     kind = iota
	kInteger       // at least min
	kNumber        // at least 0
	kBoolean       //
	kDuration      // 30s, 10m
	kSize          // 64MiB
	kChoice        // one of choices
	kObject        // with fields
	kDict          // any names, values of one shape
	kList          // items of one shape
	kFree          // anything: the settings of a plugin
	kExpr          // one ${{ }}
	kEither        // one of alts, told apart by what the value is
)

// shape is what the decoder, the JSON Schema and --set know of a value.
type shape struct {
	kind    kind
	doc     string
	example string // a value, for messages
	argv    bool   // a list that is a command line
	choices []string
	min     int
	fields  []field
	of      *shape
	alts    []*shape
	// def names a shape that holds itself, as a stage may hold a loop of
	// stages: the JSON Schema refers to it.
	def string
	// rest allows keys beside fields.
	rest bool
	// later holds choices that are features.
	later map[string]string
}

// field is one key of an object. A key with a feature is known, and refused
// by name unless the feature is enabled.
type field struct {
	name     string
	shape    *shape
	required bool
	feature  string
	// apart says that the stage's kind decides whether the feature is enabled,
	// so that it is refused where the kind is known.
	apart bool
}

// Features are parts of the file's language that are known and refused unless
// ParseOptions.Enable names them.
var Features = []string{
	"loop", "run", "output", "scope: group", "on_error: park", "stage hooks", "row hooks", "aliases", "unknown_models",
	"csv", "format: auto", "budget.tokens", "budget.usd", "budget.wall",
	"upstream vllm", "upstream sglang", "upstream lmdeploy", "upstream openai", "upstream anthropic", "upstream bedrock",
}

func text(doc string) *shape             { return &shape{kind: kText, doc: doc} }
func integer(min int, doc string) *shape { return &shape{kind: kInteger, min: min, doc: doc} }
func number(doc string) *shape           { return &shape{kind: kNumber, doc: doc} }
func boolean(doc string) *shape          { return &shape{kind: kBoolean, doc: doc} }
func duration(doc string) *shape         { return &shape{kind: kDuration, doc: doc} }
func size(doc string) *shape             { return &shape{kind: kSize, doc: doc} }
func free(doc string) *shape             { return &shape{kind: kFree, doc: doc} }
func expression(doc string) *shape       { return &shape{kind: kExpr, doc: doc} }
func list(of *shape, doc string) *shape  { return &shape{kind: kList, of: of, doc: doc} }
func dict(of *shape, doc string) *shape  { return &shape{kind: kDict, of: of, doc: doc} }
func choice(doc string, choices ...string) *shape {
	return &shape{kind: kChoice, choices: choices, doc: doc}
}
func object(doc string, fields ...field) *shape {
	return &shape{kind: kObject, fields: fields, doc: doc}
}
func either(doc string, alts ...*shape) *shape { return &shape{kind: kEither, alts: alts, doc: doc} }

// like gives a value of the shape that messages show.
func (s *shape) like(example string) *shape {
	s.example = example
	return s
}

func (s *shape) withLater(later map[string]string) *shape {
	s.later = later
	return s
}

func (s *shape) field(name string) *field {
	for i := range s.fields {
		if s.fields[i].name == name {
			return &s.fields[i]
		}
	}
	return nil
}

func (s *shape) names() []string {
	out := make([]string, len(s.fields))
	for i, f := range s.fields {
		out[i] = f.name
	}
	return out
}

// exitStatuses are how an agent can end, and judge_error.
var retryable = []string{
	"agent_error", "timeout", "max_turns", "budget", "agent_no_activity", "sandbox_lost", "infra_error", "cancelled", "judge_error",
}

// tables are the shapes of a pipeline file.
type tables struct{ file, stage, model, plugin, hooks *shape }

func argv(doc string) *shape {
	s := list(text(""), doc).like("[python3, main.py]")
	s.argv = true
	return s
}

func newTables() *tables {
	t := &tables{}
	t.hooks = list(either("a hook, by name or with settings",
		text("hook/NAME").like("hook/redact"),
		object("a hook with settings",
			field{name: "uses", shape: text("hook/NAME").like("hook/redact"), required: true},
			field{name: "with", shape: free("the hook's settings; it takes no ${{ }}")},
			field{name: "on_error", shape: choice("what an error of the hook means: closed denies, open goes on (default closed)", "closed", "open")},
		)), "hooks, in the order in which they act")
	t.plugin = pluginTable()
	t.model = modelTable(t.hooks)
	t.stage = stageTable(t.hooks)
	t.file = object("a penstock pipeline",
		field{name: "penstock", shape: choice("the version of the file's language", Version), required: true},
		field{name: "name", shape: text("the pipeline's name; default the file's").like("calculator")},
		field{name: "plugins", shape: dict(t.plugin, "plugins that this file brings, by KIND/NAME").like("{ judger/mine: { process: { go: ./mine } } }")},
		field{name: "tasks", shape: tasksTable()},
		field{name: "models", shape: dict(t.model, "models that agents call through the gateway").like("{ policy: { upstream: { kind: script, file: model.yaml }, format: hermes } }")},
		field{name: "stages", shape: list(t.stage, "what each rollout goes through, in order").like("[{ id: solve, uses: invoker/agent }]")},
		field{name: "reward", shape: expression("the rollout's reward, a number or null; needed when several stages judge")},
		field{name: "workspace", shape: object("where the stages of a rollout work",
			field{name: "from", shape: text("the folder that each workspace is copied from")},
			field{name: "keep", shape: choice("which workspaces stay after the run (default failed)", KeepFailed, KeepAlways, KeepNever)},
		)},
		field{name: "notify", shape: list(object("exactly one of command, webhook and file",
			field{name: "command", shape: argv("a program that gets the park as JSON on standard input")},
			field{name: "webhook", shape: text("an address that the park is posted to as JSON")},
			field{name: "file", shape: text("a file that gets a line of JSON for each park")},
		), "who is told of a rollout that waits for a person")},
		field{name: "sandbox", shape: sandboxTable()},
		field{name: "concurrency", shape: object("how much runs at once",
			field{name: "rollouts", shape: integer(1, "rollouts in flight (default 2 x cores)")},
			field{name: "judge", shape: integer(1, "judge calls in flight (default 2 x cores)")},
		)},
	)
	return t
}

// Sandboxes are the names of what agents may run in.
var Sandboxes = []string{"auto", "none", "landlock", "bwrap", "docker", "podman"}

func sandboxTable() *shape {
	return either("what programs of agents may touch (default none)",
		text("auto, none, landlock or bwrap").like("auto"),
		object("a sandbox with settings",
			field{name: "use", shape: choice("auto is the strongest that holds on this machine", Sandboxes...), required: true},
			field{name: "image", shape: text("what docker and podman make containers of, with the programs in it; auto tries them first where there is one")},
			field{name: "read", shape: list(text("a path"), "further files and folders that may be read")},
			field{name: "write", shape: list(text("a path"), "further files and folders that may be changed")},
			field{name: "network", shape: choice("gateway allows TCP to the gateway alone, where the kernel can (default); host allows all", "gateway", "host")},
		)).like("auto")
}

func tasksTable() *shape {
	return object("the tasks, each run as often as samples says",
		field{name: "file", shape: text("a JSONL file, one task a line").like("tasks.jsonl")},
		field{name: "inline", shape: list(free("a task: {id, prompt, ...}"), "the tasks themselves")},
		field{name: "samples", shape: integer(1, "rollouts per task (default 1)")},
	)
}

func pluginTable() *shape {
	dir := object("a folder with a Go main package", field{name: "go", shape: text("the folder").like("./mine"), required: true})
	return object("exactly one of process, wasm and exec",
		field{name: "process", shape: either("a go-plugin process", text("its program").like("./mine"), argv("its command line"), dir)},
		field{name: "wasm", shape: either("a WASM module", text("the .wasm file").like("./mine.wasm"), dir)},
		field{name: "exec", shape: argv("a program that speaks JSON-RPC 2.0 on stdin and stdout")},
		field{name: "env", shape: dict(text("a value"), "environment of the plugin, beside the allow-listed part of ours")},
		field{name: "limits", shape: object("bounds",
			field{name: "memory", shape: size("most memory, such as 64MiB")},
			field{name: "timeout", shape: duration("longest call")},
			field{name: "in", shape: size("largest request")},
			field{name: "out", shape: size("largest reply")},
		)},
		field{name: "grant", shape: list(text(""), "what a WASM module may use beyond the contract")},
		field{name: "max_in_flight", shape: integer(1, "most calls at once")},
		field{name: "files", shape: list(text("a file"), "further files that belong to the plugin: they count in its hash")},
		field{name: "override", shape: boolean("whether this plugin may take the name of one that is built in")},
		field{name: "name", shape: text("the name under which the plugin registers, if it is another")},
	)
}

// upstreamKinds are script and the kinds of server.
var upstreamKinds = []string{"script", "vllm", "sglang", "lmdeploy", "openai", "anthropic", "bedrock"}

func upstreamTable() *shape {
	later := map[string]string{}
	for _, k := range upstreamKinds[1:] {
		later[k] = "upstream " + k
	}
	kind := func(kinds []string) field {
		return field{name: "kind", shape: choice("the kind of engine or provider", kinds...).withLater(later), required: true}
	}
	stand := append([]field{
		kind(upstreamKinds[1:]),
		{name: "model", shape: text("the model's name there; default that of the first upstream")},
		{name: "prices", shape: pricesTable("what tokens cost there; default those of the model, unless it has a name of its own")},
		{name: "context", shape: integer(1, "most tokens of a prompt and its reply")},
	}, serverFields()...)
	first := append([]field{
		kind(upstreamKinds),
		{name: "file", shape: text("the rules of kind script")},
		{name: "fallback", shape: list(object("an upstream that stands in for those before it", stand...), "upstreams that are asked where a request can't have run on those before")},
	}, serverFields()...)
	return object("who generates", first...).like("{ kind: script, file: model.yaml }")
}

func pricesTable(doc string) *shape {
	return object(doc,
		field{name: "input", shape: number("of a prompt, in US dollars for a million tokens"), required: true},
		field{name: "output", shape: number("of a reply, its reasoning included"), required: true},
		field{name: "cache_read", shape: number("of what a prompt has from a cache (default input)")},
		field{name: "cache_write", shape: number("of what a prompt leaves in a cache (default input)")},
	)
}

// serverFields are the keys of all kinds of server.
func serverFields() []field {
	return []field{
		{name: "url", shape: text("its address").like(`"http://127.0.0.1:8000/v1"`)},
		{name: "urls", shape: list(text(""), "replicas; a session keeps to one")},
		{name: "api_key", shape: text("its key: ${env:NAME} or ${file:PATH}")},
		{name: "headers", shape: dict(text("a value"), "sent on top of each request")},
		{name: "bearer", shape: boolean("whether the key goes as Authorization, with kind anthropic")},
		{name: "region", shape: text("the region of AWS, with kind bedrock").like("us-east-1")},
		{name: "access_key_id", shape: text("what requests are signed with, with kind bedrock: ${env:AWS_ACCESS_KEY_ID}")},
		{name: "secret_access_key", shape: text("likewise: ${env:AWS_SECRET_ACCESS_KEY}")},
		{name: "session_token", shape: text("likewise, for temporary credentials: ${env:AWS_SESSION_TOKEN}")},
		{name: "concurrency", shape: integer(1, "generations at once on each replica (default no bound)")},
		{name: "tries", shape: integer(1, "of one request, where it can't have run (default 5)")},
		{name: "max_wait", shape: duration("longest Retry-After that is waited for (default 60s)")},
		{name: "ready", shape: duration("how long a server may take to be up (default 30s)")},
		{name: "connect_timeout", shape: duration("to connect")},
		{name: "first_byte_timeout", shape: duration("until an answer begins")},
		{name: "stall_timeout", shape: duration("between two pieces of a reply")},
		{name: "max_tokens", shape: integer(1, "of a reply, where neither request nor context bounds it")},
		{name: "thinking_budget", shape: integer(1024, "tokens of reasoning, where a client asks for it, with kind anthropic or bedrock")},
	}
}

func modelTable(hooks *shape) *shape {
	return object("a model",
		field{name: "upstream", required: true, shape: upstreamTable()},
		field{name: "model", shape: text("its name at the upstream; default the entry's key")},
		field{name: "serve_as", shape: text("the name that the agent is told; default the entry's key")},
		field{name: "aliases", shape: list(text(""), "further names that the agent may ask for"), feature: "aliases"},
		field{name: "unknown_models", shape: choice("what a strange name means (default reject)", "reject", "main"), feature: "unknown_models"},
		field{name: "format", shape: text("how the model writes reasoning and tool calls: a name, a YAML file, or upstream").like("hermes"), required: true},
		field{name: "template", shape: text("a chat template that renders in place of the format's")},
		field{name: "tokenizer", shape: text("the tokenizer, such as bytes; capture exact needs it, save with kind script")},
		field{name: "capture", shape: choice("what is known of a call's tokens (default exact with kind script, else text)", "exact", "reported", "text")},
		field{name: "context", shape: integer(1, "most tokens of a prompt and its reply")},
		field{name: "sampling", shape: object("how tokens are drawn",
			field{name: "temperature", shape: number("")},
			field{name: "top_p", shape: number("")},
			field{name: "top_k", shape: integer(0, "")},
			field{name: "max_tokens", shape: integer(1, "most tokens of a reply")},
			field{name: "seed", shape: integer(0, "")},
			field{name: "stop", shape: list(text(""), "texts that end a reply")},
		)},
		field{name: "prices", shape: pricesTable("what its tokens cost, where the upstream doesn't bill each call; budget.usd needs them")},
		field{name: "family", shape: text("the model's family, such as qwen3")},
		field{name: "hooks", shape: hooks},
	)
}

func stageTable(hooks *shape) *shape {
	body := list(nil, "the body")
	stage := object("a stage: exactly one of uses, loop and run",
		field{name: "id", shape: text("its name in expressions: [a-z][a-z0-9_]*").like("solve"), required: true},
		field{name: "uses", shape: text("KIND/NAME of an invoker, a judger or a converter").like("invoker/agent")},
		field{name: "run", shape: argv("a program without a model"), feature: "run"},
		field{name: "loop", shape: object("stages that are run until a condition holds",
			field{name: "stages", shape: body, required: true},
			field{name: "until", shape: expression("ends the loop when true"), required: true},
			field{name: "max", shape: integer(1, "passes through the body"), required: true},
			field{name: "allow_same_family", shape: boolean("whether a stage that gives findings may use a model of the family whose work it looks at (default no)")},
			field{name: "else", shape: text("fail, continue, park or a later stage, when max passes didn't do (default fail)")},
		), feature: "loop"},
		field{name: "model", shape: text("an entry of models")},
		field{name: "with", shape: free("the settings and inputs of what is used")},
		field{name: "if", shape: expression("runs the stage only when true")},
		field{name: "needs", shape: list(text("a stage id").like("solve"), "earlier stages that must have run or been skipped")},
		field{name: "timeout", shape: duration("default 30m for invokers, 2m for judgers")},
		field{name: "retry", shape: object("tries",
			field{name: "attempts", shape: integer(1, "all tries, the first included: 1 is no second try"), required: true},
			field{name: "on", shape: list(choice("", retryable...), "the ends that are tried again; default those that fail the stage")},
		)},
		field{name: "on_error", shape: choice("what a failure of the stage means (default fail)", OnErrorFail, OnErrorContinue, OnErrorPark).
			withLater(map[string]string{OnErrorPark: "on_error: park"})},
		field{name: "output", shape: object("what the stage writes",
			field{name: "schema", shape: free("a JSON Schema"), required: true},
			field{name: "repair", shape: integer(0, "how often an agent is told what is wrong with its output, and asked again (default 2)")},
			field{name: "compat", shape: dict(text("a property of the schema"), "old names of properties that the stage may still write, each with the one that it has in the schema")},
		), feature: "output"},
		field{name: "hooks", shape: hooks, feature: "stage hooks", apart: true},
		field{name: "sandbox", shape: sandboxTable()},
		field{name: "scope", shape: choice("what a judger sees: a rollout (the default), or all samples of a task together", "rollout", "group").
			withLater(map[string]string{"group": "scope: group"})},
		field{name: "idle", shape: duration("ends an agent that neither wrote nor called for so long (default off)")},
		field{name: "budget", shape: object("what the agents of all tries of the stage may use together",
			field{name: "calls", shape: integer(1, "calls of the model")},
			field{name: "turns", shape: integer(1, "calls of the main conversation")},
			field{name: "tokens", shape: integer(1, "tokens in and out"), feature: "budget.tokens"},
			field{name: "usd", shape: number("US dollars; the models need prices"), feature: "budget.usd"},
			field{name: "wall", shape: duration("wall time"), feature: "budget.wall"},
		)},
	)
	body.of, stage.def = stage, "stage"
	return stage
}

// stageKinds are the kinds that a stage may use.
var stageKinds = []string{component.Invoker, component.Judger, component.Converter}
