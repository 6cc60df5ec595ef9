package script

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"sync"
)

// Record is one line of the engine log: what the engine itself says that it
// did, to compare rows with.
type Record struct {
	Session    string     `json:"session"`
	Model      string     `json:"model"`
	Rule       string     `json:"rule"`
	PromptIDs  []int32    `json:"prompt_ids"`
	SampledIDs []int32    `json:"sampled_ids"`
	Logprobs   []*float64 `json:"logprobs"` // null where none was given
	Text       string     `json:"text"`
	// Finish is the engine's word; "cancelled" or "failed" for a generation
	// that did not get to its end.
	Finish string `json:"finish"`
}

func (s *stream) record(finish string) *Record {
	r := &Record{Session: s.req.AffinityKey, Model: s.req.Model, Rule: s.rule.name, Finish: finish, PromptIDs: s.req.PromptIDs}
	if s.m.tok == nil {
		r.Text = s.text[:s.at]
		return r
	}
	r.SampledIDs = s.ids[:s.at]
	r.Text = string(s.m.tok.Decode(nil, r.SampledIDs))
	r.Logprobs = make([]*float64, s.at)
	for i := range r.Logprobs {
		if !math.IsNaN(s.logprobs[i]) {
			r.Logprobs[i] = &s.logprobs[i]
		}
	}
	return r
}

// engineLog appends records to a file that is opened with the first
// generation. The zero path logs nothing.
type engineLog struct {
	path string
	mu   sync.Mutex
	file *os.File
	err  error
}

func (l *engineLog) open() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.path == "" || l.file != nil {
		return l.err
	}
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the engine log: %w", err)
	}
	l.file = f
	return l.err
}

// write keeps its error for the next generation, as a stream that ends has no
// one to tell.
func (l *engineLog) write(r *Record) {
	if l.path == "" {
		return
	}
	line, err := json.Marshal(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && l.file != nil {
		_, err = l.file.Write(append(line, '\n'))
	}
	if err != nil && l.err == nil {
		l.err = fmt.Errorf("write the engine log: %w", err)
	}
}

func (l *engineLog) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return l.err
	}
	err := l.file.Close()
	l.file = nil
	if l.err != nil {
		return l.err
	}
	return err
}
