package format

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Template is a model's chat template as it is read from files.
type Template struct {
	// Path is where it is from.
	Path string
	// Text is the template of a conversation without tools; Tools that of one
	// with tools, which is another one for models that name several.
	Text, Tools string
	// Special are the special tokens that templates know by name, such as
	// bos_token, from the tokenizer_config.json.
	Special map[string]string
	// Added are the tokens of the tokenizer that text spells, of the same file.
	Added []string
}

// Hash identifies the template and the tokens that it writes.
func (t *Template) Hash() string {
	h := sha256.New()
	special, _ := json.Marshal(t.Special) // a map of strings is always JSON
	for _, part := range []string{t.Text, t.Tools, string(special)} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil))
}

const (
	templateFile = "chat_template.jinja"
	configFile   = "tokenizer_config.json"
	moreFolder   = "additional_chat_templates"
	toolUse      = "tool_use"
)

// ReadTemplate reads a chat template: a text file, a tokenizer_config.json, or
// a folder that holds either. Beside a text file, the tokenizer_config.json of
// the same folder says what bos_token and eos_token are.
func ReadTemplate(path string) (*Template, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return readFolder(path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read chat template: %w", err)
	}
	t := &Template{Path: path}
	if strings.HasSuffix(path, ".json") {
		if err := t.readConfig(data); err != nil {
			return nil, err
		}
		if t.Text == "" {
			return nil, fmt.Errorf("%s has no chat_template", path)
		}
		return t, nil
	}
	if strings.TrimSpace(string(data)) == "" {
		return nil, fmt.Errorf("the chat template %s is empty", path)
	}
	dir := filepath.Dir(path)
	if config, err := os.ReadFile(filepath.Join(dir, configFile)); err == nil {
		if err := t.readConfig(config); err != nil {
			return nil, err
		}
	}
	t.Text, t.Tools = string(data), string(data)
	return t, nil
}

// readFolder reads the files of a model, as they are published.
func readFolder(dir string) (*Template, error) {
	for _, name := range []string{templateFile, configFile} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err != nil {
			continue
		}
		t, err := ReadTemplate(path)
		if err != nil {
			return nil, err
		}
		if more, err := os.ReadFile(filepath.Join(dir, moreFolder, toolUse+".jinja")); err == nil {
			t.Tools = string(more)
		}
		return t, nil
	}
	return nil, fmt.Errorf("%s has neither %s nor %s with a chat_template", dir, templateFile, configFile)
}

// readConfig takes what there is from a tokenizer_config.json.
func (t *Template) readConfig(data []byte) error {
	var config map[string]json.RawMessage
	if err := json.Unmarshal(data, &config); err != nil {
		return fmt.Errorf("read chat template: %s: %w", t.Path, err)
	}
	t.Special = map[string]string{}
	for key, raw := range config {
		if strings.HasSuffix(key, "_token") {
			if token, ok := tokenText(raw); ok {
				t.Special[key] = token
			}
		}
	}
	var added map[string]struct{ Content string }
	if json.Unmarshal(config["added_tokens_decoder"], &added) == nil {
		for _, token := range added {
			t.Added = append(t.Added, token.Content)
		}
	}
	t.Text, t.Tools = configTemplates(config["chat_template"])
	return nil
}

// tokenText is a special token: text, or an object with its content.
func tokenText(raw json.RawMessage) (string, bool) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, string(raw) != "null"
	}
	var object struct{ Content *string }
	if json.Unmarshal(raw, &object) == nil && object.Content != nil {
		return *object.Content, true
	}
	return "", false
}

// configTemplates is one template, or of several that have names the default
// one and the one for tools.
func configTemplates(raw json.RawMessage) (text, tools string) {
	if json.Unmarshal(raw, &text) == nil && text != "" {
		return text, text
	}
	var named []struct{ Name, Template string }
	if json.Unmarshal(raw, &named) != nil {
		return "", ""
	}
	for _, n := range named {
		switch n.Name {
		case toolUse:
			tools = n.Template
		case "default":
			text = n.Template
		}
	}
	if text == "" {
		text = tools
	}
	if tools == "" {
		tools = text
	}
	return text, tools
}
