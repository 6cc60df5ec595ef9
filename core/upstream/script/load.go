package script

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/penstock-dev/penstock/sdk/chat"
)

// Version is the value of the file's penstock key.
const Version = "script/v1"

// Script is a scripted model, as read from its file.
type Script struct {
	// Weights is reported as the weight version of every token.
	Weights string
	// Seed changes the logprobs, see Logprob.
	Seed uint64
	// Log is the path of the engine log, "" for none; see Record.
	Log string

	rules     []*rule
	otherwise *rule
}

type rule struct {
	name       string
	prompt     *regexp.Regexp
	last       *regexp.Regexp
	notPrompt  *regexp.Regexp
	notLast    *regexp.Regexp
	turn       int
	reply      template
	finish     string
	think      time.Duration
	delay      time.Duration
	chunk      []int
	logprob    *float64 // nil: derived from the token
	noLogprobs bool
	fail       *fail
	prompts    int // the engine's own count of prompt tokens, 0 for the true one
}

type fail struct {
	status     int
	message    string
	retryAfter int
	after      int // chunks that go out first
	times      int // 0: always
}

// The file as YAML.
type (
	fileYAML struct {
		Penstock  string    `yaml:"penstock"`
		Weights   string    `yaml:"weights"`
		Seed      uint64    `yaml:"seed"`
		Log       string    `yaml:"log"`
		Defaults  styleYAML `yaml:"defaults"`
		Rules     []ruleYAML
		Otherwise *ruleYAML `yaml:"otherwise"`
	}
	ruleYAML struct {
		Name      string    `yaml:"name"`
		When      *whenYAML `yaml:"when"`
		Reply     *string   `yaml:"reply"`
		Finish    string    `yaml:"finish"`
		Fail      *failYAML `yaml:"fail"`
		Usage     usageYAML `yaml:"usage"`
		styleYAML `yaml:",inline"`
	}
	whenYAML struct {
		Prompt pattern `yaml:"prompt"`
		Last   pattern `yaml:"last"`
		Turn   int     `yaml:"turn"`
		Not    struct {
			Prompt pattern `yaml:"prompt"`
			Last   pattern `yaml:"last"`
		} `yaml:"not"`
	}
	styleYAML struct {
		ThinkTime *duration `yaml:"think_time"`
		Delay     *duration `yaml:"delay"`
		Chunk     sizes     `yaml:"chunk"`
		Logprob   *float64  `yaml:"logprob"`
		Logprobs  *bool     `yaml:"logprobs"`
	}
	failYAML struct {
		Status     int    `yaml:"status"`
		Message    string `yaml:"message"`
		RetryAfter int    `yaml:"retry_after"`
		After      int    `yaml:"after"`
		Times      int    `yaml:"times"`
	}
	usageYAML struct {
		PromptTokens int `yaml:"prompt_tokens"`
	}
)

// pattern is a regular expression that names its line when it is wrong.
type pattern struct{ re *regexp.Regexp }

func (p *pattern) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.ScalarNode || n.Value == "" {
		return fmt.Errorf("line %d: want a regular expression", n.Line)
	}
	re, err := regexp.Compile(n.Value)
	if err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	p.re = re
	return nil
}

// duration refuses numbers without a unit.
type duration time.Duration

func (d *duration) UnmarshalYAML(n *yaml.Node) error {
	v, err := time.ParseDuration(n.Value)
	if err != nil || v < 0 || n.Value == "0" {
		return fmt.Errorf("line %d: %q is not a duration, want for example 20ms", n.Line, n.Value)
	}
	*d = duration(v)
	return nil
}

// sizes is one number, or a list that is gone through again and again.
type sizes []int

func (s *sizes) UnmarshalYAML(n *yaml.Node) error {
	items := n.Content
	if n.Kind == yaml.ScalarNode {
		items = []*yaml.Node{n}
	}
	for _, item := range items {
		var v int
		if err := item.Decode(&v); err != nil || v < 1 {
			return fmt.Errorf("line %d: chunk wants a number of tokens above 0, or a list of such", item.Line)
		}
		*s = append(*s, v)
	}
	if len(*s) == 0 {
		return fmt.Errorf("line %d: chunk wants a number of tokens above 0, or a list of such", n.Line)
	}
	return nil
}

// Load reads a script. Errors name the file and the line. The engine log's
// path, when relative, starts at the file's folder.
func Load(path string) (*Script, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read script: %w", err)
	}
	s, err := Parse(data)
	if err != nil {
		return nil, at(path, err)
	}
	if s.Log != "" && !filepath.IsAbs(s.Log) {
		s.Log = filepath.Join(filepath.Dir(path), s.Log)
	}
	return s, nil
}

var lineOf = regexp.MustCompile(`^(?:yaml: )?line (\d+): `)

// at turns "line 3: what" into "path:3: what".
func at(path string, err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	var wrong *yaml.TypeError
	if errors.As(err, &wrong) && len(wrong.Errors) > 0 {
		text = strings.Join(wrong.Errors, "\n")
	}
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		l = strings.TrimSpace(l)
		if m := lineOf.FindStringSubmatch(l); m != nil {
			l = path + ":" + m[1] + ": " + l[len(m[0]):]
		} else {
			l = path + ": " + l
		}
		lines[i] = goTypes.Replace(l)
	}
	return errors.New(strings.Join(lines, "\n"))
}

// goTypes keeps the names of our types out of messages.
var goTypes = strings.NewReplacer(
	" not found in type script.fileYAML", " is unknown, want penstock, weights, seed, log, defaults, rules or otherwise",
	" not found in type script.ruleYAML", " is unknown, want name, when, reply, finish, fail, usage, think_time, delay, chunk, logprob or logprobs",
	" not found in type script.whenYAML", " is unknown, want last, prompt, turn or not",
	" not found in type script.styleYAML", " is unknown, want think_time, delay, chunk, logprob or logprobs",
	" not found in type script.failYAML", " is unknown, want status, message, retry_after, after or times",
	" not found in type script.usageYAML", " is unknown, want prompt_tokens",
	" into []script.ruleYAML", " into a list of rules",
	" into script.ruleYAML", " into a rule",
	" into script.whenYAML", " into when",
	" into script.failYAML", " into fail",
)

// Parse reads a script from memory. Errors begin with "line N:" where there
// is one.
func Parse(data []byte) (*Script, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil {
		return nil, err
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	var f fileYAML
	if err := d.Decode(&f); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, errors.New("the file is empty")
		}
		return nil, err
	}
	if f.Penstock != Version {
		return nil, fmt.Errorf("line 1: penstock: is %q, want %s", f.Penstock, Version)
	}
	if len(f.Rules) == 0 && f.Otherwise == nil {
		return nil, errors.New("line 1: there are no rules")
	}
	s := &Script{Weights: f.Weights, Seed: f.Seed, Log: f.Log}
	lines := ruleLines(&root)
	for i := range f.Rules {
		r, err := f.Rules[i].build(f.Defaults, fmt.Sprintf("rule %d", i+1))
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", lines[i], err)
		}
		if f.Rules[i].When == nil {
			return nil, fmt.Errorf("line %d: %s has no when (a reply for all else goes under otherwise)", lines[i], r.label())
		}
		s.rules = append(s.rules, r)
	}
	if o := f.Otherwise; o != nil {
		line := valueOf(root.Content[0], "otherwise").Line
		r, err := o.build(f.Defaults, "otherwise")
		if err == nil && o.When != nil {
			err = errors.New("otherwise takes no when")
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		s.otherwise = r
	}
	return s, nil
}

func ruleLines(root *yaml.Node) []int {
	var out []int
	if rules := valueOf(root.Content[0], "rules"); rules != nil {
		for _, r := range rules.Content {
			out = append(out, r.Line)
		}
	}
	return out
}

func valueOf(mapping *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}

var finishes = map[string]chat.Finish{
	"stop":           chat.FinishStop,
	"length":         chat.FinishLength,
	"content_filter": chat.FinishRefusal,
	"abort":          chat.FinishError,
}

// defaultChunk is how many tokens go out together.
const defaultChunk = 16

func (y *ruleYAML) build(defaults styleYAML, name string) (*rule, error) {
	if y.Name != "" {
		name = y.Name
	}
	r := &rule{name: name, finish: y.Finish, prompts: y.Usage.PromptTokens, chunk: []int{defaultChunk}}
	if w := y.When; w != nil {
		r.prompt, r.last, r.turn = w.Prompt.re, w.Last.re, w.Turn
		r.notPrompt, r.notLast = w.Not.Prompt.re, w.Not.Last.re
		if *w == (whenYAML{}) {
			return nil, fmt.Errorf("%s: when is empty", r.label())
		}
	}
	if _, known := finishes[y.Finish]; !known && y.Finish != "" {
		return nil, fmt.Errorf("%s: finish is %q, want stop, length, content_filter or abort", r.label(), y.Finish)
	}
	r.style(defaults)
	r.style(y.styleYAML)
	if f := y.Fail; f != nil {
		if f.Status != 0 && (f.Status < 400 || f.Status > 599) || f.After < 0 || f.Times < 0 || *f == (failYAML{}) {
			return nil, fmt.Errorf("%s: fail wants a status from 400 to 599, or after: the chunks that go out before the cut", r.label())
		}
		r.fail = &fail{f.Status, f.Message, f.RetryAfter, f.After, f.Times}
	}
	if y.Reply == nil && (r.fail == nil || r.fail.after > 0 || r.fail.times > 0) {
		return nil, fmt.Errorf("%s has no reply", r.label())
	}
	if y.Reply != nil {
		var err error
		if r.reply, err = compile(*y.Reply, r.last, r.prompt); err != nil {
			return nil, fmt.Errorf("%s: %w", r.label(), err)
		}
	}
	return r, nil
}

// label is the rule's name in errors.
func (r *rule) label() string {
	if r.name == "otherwise" || strings.HasPrefix(r.name, "rule ") {
		return r.name
	}
	return fmt.Sprintf("rule %q", r.name)
}

func (r *rule) style(y styleYAML) {
	if y.ThinkTime != nil {
		r.think = time.Duration(*y.ThinkTime)
	}
	if y.Delay != nil {
		r.delay = time.Duration(*y.Delay)
	}
	if y.Chunk != nil {
		r.chunk = y.Chunk
	}
	if y.Logprob != nil {
		r.logprob = y.Logprob
	}
	if y.Logprobs != nil {
		r.noLogprobs = !*y.Logprobs
	}
}
