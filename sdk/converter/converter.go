// Package converter is the interface of converters: they write training rows
// in the form that a trainer reads.
package converter

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/schema"
)

// Schema names the row's form.
const Schema = "penstock.row/1"

// Row is one training example: one lineage, or the part of one whose token
// ids extend each other. With capture text InputIDs, LossMask, Logprobs and
// PromptLen are null and Messages and Tools are set instead.
type Row struct {
	Schema      string   `json:"schema"`
	Row         string   `json:"row"` // <attempt>/<kind><k>/<n>
	Run         string   `json:"run"`
	Rollout     string   `json:"rollout"`
	Task        string   `json:"task"`
	Group       string   `json:"group"`
	Sample      int      `json:"sample"`
	Attempt     string   `json:"attempt"`
	Session     string   `json:"session"`
	Stage       string   `json:"stage"`
	ModelEntry  string   `json:"model_entry"`
	Calls       []string `json:"calls"`
	Lineage     string   `json:"lineage"`
	LineageKind string   `json:"lineage_kind"`
	ParentRow   string   `json:"parent_row,omitempty"`

	InputIDs  []int32    `json:"input_ids"`
	LossMask  []int8     `json:"loss_mask"`
	Logprobs  []*float64 `json:"logprobs"` // null where the mask is 0
	PromptLen *int       `json:"prompt_len"`

	Messages []chat.Message `json:"messages,omitempty"`
	Tools    []chat.Tool    `json:"tools,omitempty"`

	Reward       *float64           `json:"reward"`
	Components   map[string]float64 `json:"components,omitempty"`
	Status       string             `json:"status"`
	ExitStatus   string             `json:"exit_status"`
	FinishReason string             `json:"finish_reason"`

	WeightVersions []string      `json:"weight_versions,omitempty"` // of each call, in order
	Model          string        `json:"model"`
	Engine         string        `json:"engine"`
	Format         string        `json:"format"`
	TokenizerHash  string        `json:"tokenizer_hash,omitempty"`
	TemplateHash   string        `json:"template_hash,omitempty"`
	Requested      chat.Sampling `json:"sampling_requested"`
	Effective      chat.Sampling `json:"sampling_effective"`
	Integrity      Integrity     `json:"integrity"`
}

// Integrity says how far a row can be trusted. Converters refuse rows with
// fatal findings.
type Integrity struct {
	Calls   int            `json:"calls"`
	Missing int            `json:"missing"`
	Drift   map[string]int `json:"drift,omitempty"` // forks of the session by class
	Fatal   []string       `json:"fatal,omitempty"`
	Warn    []string       `json:"warn,omitempty"`
}

// Output makes the files of a conversion. The host puts them where the run's
// rows belong and gives them their final name only when all is written.
type Output interface {
	// Create opens a file by the ending that follows "rows.", such as "jsonl".
	Create(ending string) (io.WriteCloser, error)
}

// Refuser is an Output whose host wants to know of the rows that a converter
// leaves out.
type Refuser interface {
	Refuse(row *Row, why []string)
}

// Refuse tells the host of out that row is left out, if it wants to know.
func Refuse(out Output, row *Row, why []string) {
	if r, ok := out.(Refuser); ok {
		r.Refuse(row, why)
	}
}

// Converter writes rows. The rows come in task and sample order; an error
// from the sequence must be returned.
type Converter interface {
	Convert(ctx context.Context, rows iter.Seq2[*Row, error], out Output) error
}

// Option describes a converter further.
type Option func(*component.Descriptor)

// Summary says in a line what the converter writes.
func Summary(text string) Option { return func(d *component.Descriptor) { d.Summary = text } }

// NeedsIDs says that rows without token ids are of no use to the converter.
func NeedsIDs() Option {
	return func(d *component.Descriptor) { d.Wants = append(d.Wants, "ids") }
}

// Register adds a converter to this program. C is a struct, its config.
func Register[C any](name string, open func(C) (Converter, error), options ...Option) {
	d := component.Descriptor{Kind: component.Converter, Name: name, Config: schema.Of[C]()}
	for _, o := range options {
		o(&d)
	}
	component.Register(component.Component{
		Descriptor: d,
		Open: func(_ context.Context, config json.RawMessage) (any, error) {
			var cfg C
			if err := schema.Decode(config, &cfg); err != nil {
				return nil, err
			}
			return open(cfg)
		},
	})
}

// Lines writes one JSON value a line to the file of an ending. A row for which
// value returns nil is left out.
func Lines(rows iter.Seq2[*Row, error], out Output, ending string, value func(*Row) any) error {
	file, err := out.Create(ending)
	if err != nil {
		return err
	}
	for row, err := range rows {
		if err != nil {
			return errors.Join(err, file.Close())
		}
		v := value(row)
		if v == nil {
			continue
		}
		line, err := chat.Marshal(v)
		if err == nil {
			_, err = file.Write(append(line, '\n'))
		}
		if err != nil {
			return errors.Join(err, file.Close())
		}
	}
	return file.Close()
}
