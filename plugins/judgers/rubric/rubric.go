// Package rubric is the judger rubric: a model judges work against written
// criteria, one by one, each with its reason before its verdict. What never
// enters: who did the work, and any trust in what it says.
package rubric

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/judger"
)

// Config is what a stage's `with:` sets once.
type Config struct {
	Votes       int      `json:"votes,omitempty" desc:"how often the model judges, an odd number; of each criterion the majority counts; default 1"`
	Repair      *int     `json:"repair,omitempty" desc:"how often it is told what was wrong with an answer that can't be used, default 2; after that it is a judge_error"`
	ApproveAt   *float64 `json:"approve_at,omitempty" desc:"the reward from which the verdict is approve, above 0 and at most 1; default 1: all criteria are met"`
	MaxTokens   int      `json:"max_tokens,omitempty" desc:"most tokens of an answer; default what the model's entry says"`
	Temperature *float64 `json:"temperature,omitempty" desc:"default 0"`
}

// Input is what `with:` gives for each rollout.
type Input struct {
	Criteria  []Criterion `json:"criteria" desc:"what the work has to meet" min:"1" format:"names-differ"`
	Work      string      `json:"work,omitempty" desc:"what is judged; default the rollout's final text"`
	Question  string      `json:"question,omitempty" desc:"what was asked for"`
	Reference string      `json:"reference,omitempty" desc:"an answer that is known to be good"`
}

// Criterion is one thing that the work has to meet.
type Criterion struct {
	Name   string   `json:"name" desc:"short name, of a component of the verdict" min:"1"`
	Text   string   `json:"text" desc:"when it is met, in a sentence or more" min:"1"`
	Weight *float64 `json:"weight,omitempty" desc:"its part of the reward against the others', default 1" min:"0"`
}

// Output is what a verdict has beside a reward.
type Output struct {
	Verdict  string   `json:"verdict" enum:"approve,reject" desc:"whether the reward is at least approve_at"`
	Findings []string `json:"findings" desc:"what is wrong with the work; a reject has at least one"`
	Rubric   string   `json:"rubric_sha256,omitempty" desc:"hash of the criteria and of what the model was told; a person who stands in for it gives none"`
}

type rubric struct {
	cfg     Config
	repair  int
	approve float64
}

// maxVotes bounds the calls of one judgement.
const maxVotes = 99

// New checks the config.
func New(cfg Config) (judger.Judger, error) {
	r := &rubric{cfg: cfg, repair: 2, approve: 1}
	if cfg.Votes == 0 {
		r.cfg.Votes = 1
	}
	if r.cfg.Votes < 0 || r.cfg.Votes%2 == 0 || r.cfg.Votes > maxVotes {
		return nil, fmt.Errorf("votes is %d, want an odd number up to %d, so that there is a majority", cfg.Votes, maxVotes)
	}
	if cfg.Repair != nil {
		if r.repair = *cfg.Repair; r.repair < 0 {
			return nil, errors.New("repair is negative")
		}
	}
	if cfg.ApproveAt != nil {
		if r.approve = *cfg.ApproveAt; !(r.approve > 0 && r.approve <= 1) {
			return nil, errors.New("approve_at is not above 0 and at most 1")
		}
	}
	if cfg.MaxTokens < 0 {
		return nil, errors.New("max_tokens is negative")
	}
	if cfg.Temperature == nil {
		r.cfg.Temperature = new(float64)
	} else if *cfg.Temperature < 0 {
		return nil, errors.New("temperature is negative")
	}
	return r, nil
}

// Judge asks for all votes at once. One that can't be had makes no verdict: a
// majority of those that are left would be another judge.
func (r *rubric) Judge(ctx context.Context, q *judger.Request) (judger.Verdict, error) {
	var in Input
	if err := q.DecodeInput(&in); err != nil {
		return judger.Verdict{}, err
	}
	if err := in.check(); err != nil {
		return judger.Verdict{}, err
	}
	if in.Work == "" {
		in.Work = q.Rollout().FinalText()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	votes, errs := make([]*vote, r.cfg.Votes), make([]error, r.cfg.Votes)
	var all sync.WaitGroup
	for i := range votes {
		all.Go(func() {
			if votes[i], errs[i] = r.vote(ctx, q.Session(), &in); errs[i] != nil {
				cancel()
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return judger.Verdict{}, err
		}
	}
	if err := errors.Join(errs...); err != nil {
		return judger.Verdict{}, err
	}
	return r.verdict(&in, votes)
}

// check finds what is wrong with the criteria.
func (in *Input) check() error {
	if len(in.Criteria) == 0 {
		return errors.New("criteria is empty: there is nothing to judge by")
	}
	total := 0.0
	for i, c := range in.Criteria {
		switch {
		case strings.TrimSpace(c.Name) == "" || strings.TrimSpace(c.Text) == "":
			return fmt.Errorf("criteria/%d needs a name and a text", i)
		case slices.ContainsFunc(in.Criteria[:i], func(o Criterion) bool { return o.Name == c.Name }):
			return fmt.Errorf("criteria/%d: the name %q is given twice", i, c.Name)
		case c.weight() < 0 || math.IsInf(c.weight(), 0):
			return fmt.Errorf("criteria/%d: the weight is %v", i, c.weight())
		}
		total += c.weight()
	}
	if total == 0 {
		return errors.New("the weights of all criteria are 0")
	}
	return nil
}

func (c Criterion) weight() float64 {
	if c.Weight == nil {
		return 1
	}
	return *c.Weight
}

// verdict is what the majority of the votes says of each criterion.
func (r *rubric) verdict(in *Input, votes []*vote) (judger.Verdict, error) {
	components := map[string]float64{}
	met, total := 0.0, 0.0
	var why []string
	for _, c := range in.Criteria {
		yes, reason := 0, ""
		for _, v := range votes {
			if v.met[c.Name] {
				yes++
			} else if reason == "" {
				reason = v.reason[c.Name]
			}
		}
		components[c.Name] = 0
		total += c.weight()
		if 2*yes > len(votes) {
			components[c.Name] = 1
			met += c.weight()
			continue
		}
		words := fmt.Sprintf("%s is not met: %s", c.Name, reason)
		if len(votes) > 1 {
			words = fmt.Sprintf("%s is not met, by %d of %d votes: %s", c.Name, len(votes)-yes, len(votes), reason)
		}
		why = append(why, words)
	}
	out := Output{Verdict: "reject", Findings: []string{}, Rubric: in.sum()}
	v := judger.Reward(met / total)
	if *v.Reward >= r.approve {
		out.Verdict = "approve"
	}
	for _, vote := range votes {
		for _, f := range vote.findings {
			if !slices.Contains(out.Findings, f) {
				out.Findings = append(out.Findings, f)
			}
		}
	}
	if out.Verdict == "reject" && len(out.Findings) == 0 {
		out.Findings = why
	}
	v.Components, v.Label, v.Explanation = components, out.Verdict, strings.Join(why, "; ")
	raw, err := chat.Marshal(out)
	if err == nil {
		err = json.Unmarshal(raw, &v.Extra)
	}
	return v, err
}

// sum is the hash of all that decides how work is judged.
func (in *Input) sum() string {
	h := sha256.New()
	h.Write([]byte(instructions + "\x00" + in.list()))
	return hex.EncodeToString(h.Sum(nil))
}

// nonce marks where evidence begins and ends, so that no text in it can claim to
// be the end of it.
func nonce() string {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func init() {
	judger.Register("rubric", New, judger.Input[Input](), judger.Writes[Output](), judger.AsksModel(),
		judger.Summary("a model judges the work against written criteria, with reasons, findings and votes"))
}
