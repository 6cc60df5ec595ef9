package format

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/penstock-dev/penstock/sdk/format"
)

// DetectError is a chat template that names no format, or more than one.
type DetectError struct {
	// File is where the template is from, or empty.
	File string
	// Candidates are the formats that it may be of.
	Candidates []string
}

func (e *DetectError) Error() string {
	s := "the chat template"
	if e.File != "" {
		s += " in " + e.File
	}
	if len(e.Candidates) == 0 {
		return s + " is of no format that is known; name one with format, or write a format file"
	}
	return fmt.Sprintf("%s may be of %s; name one with format", s, strings.Join(e.Candidates, ", "))
}

// ContradictionError is a named format whose model has the template of
// another.
type ContradictionError struct {
	File, Named, Found string
}

func (e *ContradictionError) Error() string {
	return fmt.Sprintf("format is %s, but the chat template in %s is that of %s", e.Named, e.File, e.Found)
}

// Detect picks the shipped format that a chat template's text is of. It never
// guesses: without a match, or with several, it returns a *DetectError.
func Detect(template string) (string, error) {
	var found []string
	for _, s := range format.Shipped() {
		if matches(s, template) {
			found = append(found, s.Name)
		}
	}
	if len(found) != 1 {
		return "", &DetectError{Candidates: found}
	}
	return found[0], nil
}

// matches reports whether a template has everything that a format is known by,
// and nothing that rules it out.
func matches(s *format.Spec, template string) bool {
	for _, d := range s.Detect {
		text, not := strings.CutPrefix(d, "!")
		if strings.Contains(template, text) == not {
			return false
		}
	}
	return len(s.Detect) > 0
}

// Contradicts reports, as a *ContradictionError, that the template in a file
// is surely of another format than the named one. Formats that ship without
// marks to know them by, and those of plugins, contradict nothing.
func Contradicts(name, file, template string) error {
	found, err := Detect(template)
	if err != nil {
		return nil
	}
	for _, s := range format.Shipped() {
		same := s.Name == name
		for _, a := range s.Aliases {
			same = same || a == name
		}
		if same && s.Name != found && len(s.Detect) > 0 && !matches(s, template) {
			return &ContradictionError{File: file, Named: name, Found: found}
		}
	}
	return nil
}

// ReadTemplate reads a chat template: a text file, the chat_template of a
// tokenizer_config.json, or a folder that holds either.
func ReadTemplate(path string) (string, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		for _, name := range []string{"chat_template.jinja", "tokenizer_config.json"} {
			if text, err := ReadTemplate(filepath.Join(path, name)); err == nil {
				return text, nil
			}
		}
		return "", fmt.Errorf("%s has neither chat_template.jinja nor tokenizer_config.json with a chat_template", path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read chat template: %w", err)
	}
	if !strings.HasSuffix(path, ".json") {
		return string(data), nil
	}
	var config struct {
		Template json.RawMessage `json:"chat_template"`
	}
	if err := json.Unmarshal(data, &config); err != nil {
		return "", fmt.Errorf("read chat template: %s: %w", path, err)
	}
	return configTemplate(path, config.Template)
}

// configTemplate is a template, or of several that have names the one for
// tools, else the default one.
func configTemplate(path string, raw json.RawMessage) (string, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil && text != "" {
		return text, nil
	}
	var named []struct{ Name, Template string }
	if json.Unmarshal(raw, &named) == nil {
		for _, want := range []string{"tool_use", "default"} {
			for _, n := range named {
				if n.Name == want {
					return n.Template, nil
				}
			}
		}
	}
	return "", fmt.Errorf("%s has no chat_template", path)
}
