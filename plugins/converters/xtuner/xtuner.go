// Package xtuner is converter/xtuner: rows as the RolloutState records of
// XTuner's reinforcement learning, one JSON object a line. What never enters:
// how rows come about.
package xtuner

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/penstock-dev/penstock/plugins/converters/lines"
	"github.com/penstock-dev/penstock/sdk/converter"
)

// Config says which records are wanted. XTuner refuses fields that it doesn't
// know, so the form must be that of the branch that reads it.
type Config struct {
	Form       string   `json:"form,omitempty" enum:"main,rl_design" default:"main" desc:"the branch of XTuner that reads the records: main trains whole conversations by input_ids and labels, rl_design by response_ids and response_mask"`
	Kinds      []string `json:"kinds,omitempty" desc:"kinds of lineage that are trained; main, continuation, compaction and sub_agent unless given"`
	Timeout    string   `json:"timeout,omitempty" enum:"aborted,completed,failed" default:"aborted" desc:"status of a rollout whose agent ran out of time"`
	AgentError string   `json:"agent_error,omitempty" enum:"failed,completed,aborted" default:"failed" desc:"status of a rollout whose agent failed"`
	DataSource string   `json:"data_source,omitempty" desc:"data_source of every record"`
	TaskName   string   `json:"task_name,omitempty" desc:"task_name of every record"`
}

// The forms.
const (
	formMain     = "main"
	formRLDesign = "rl_design"
)

// New opens the converter.
func New(c Config) (converter.Converter, error) {
	if c.Form == "" {
		c.Form = formMain
	}
	if c.Kinds == nil {
		c.Kinds = []string{"main", "continuation", "compaction", "sub_agent"}
	}
	if c.Timeout == "" {
		c.Timeout = aborted
	}
	if c.AgentError == "" {
		c.AgentError = failed
	}
	if c.Form != formMain && c.Form != formRLDesign {
		return nil, fmt.Errorf("form %q is neither %s nor %s", c.Form, formMain, formRLDesign)
	}
	return &xtuner{c}, nil
}

func init() {
	converter.Register("xtuner", New, converter.Summary("RolloutState records of XTuner, one JSON object a line"), converter.NeedsIDs())
}

type xtuner struct{ Config }

// Convert writes the records, those of one session with their number and
// count. Rows with fatal findings, of other kinds or with nothing to train
// are left out, and said in the file of refused rows.
func (x *xtuner) Convert(ctx context.Context, in iter.Seq2[*converter.Row, error], out converter.Output) (err error) {
	w := lines.New(out)
	defer func() { err = errors.Join(err, w.Close()) }()
	if err := w.Open("jsonl"); err != nil {
		return err
	}
	var session []*converter.Row // rows of one session follow each other
	for row, err := range in {
		if err != nil {
			return err
		}
		if why := x.refuse(row); len(why) > 0 {
			if err := w.Refuse(row, why...); err != nil {
				return err
			}
			continue
		}
		if len(session) > 0 && session[0].Session != row.Session {
			if err := x.write(w, session); err != nil {
				return err
			}
			session = session[:0]
		}
		session = append(session, row)
	}
	return x.write(w, session)
}

// refuse says why a row is no record, nil if it is one.
func (x *xtuner) refuse(row *converter.Row) []string {
	switch {
	case len(row.Integrity.Fatal) > 0:
		return row.Integrity.Fatal
	case row.InputIDs == nil || row.PromptLen == nil:
		return []string{"it has no token ids"}
	case !slices.Contains(x.Kinds, row.LineageKind):
		return []string{"its lineage is of kind " + row.LineageKind}
	case !slices.Contains(row.LossMask, 1):
		return []string{"none of its tokens can be trained"}
	}
	return nil
}

func (x *xtuner) write(w *lines.Writer, rows []*converter.Row) error {
	for i, row := range rows {
		s := x.state(row, i, len(rows))
		var record any = s
		if x.Form == formRLDesign {
			record = s.rlDesign(row)
		}
		if err := w.Write("jsonl", record); err != nil {
			return fmt.Errorf("write row %s: %w", row.Row, err)
		}
	}
	return nil
}
