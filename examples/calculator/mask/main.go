// Mask is a hook in one file: it replaces words in what a model is asked,
// before the model sees it. It builds as a WASM module and as a process.
package main

import (
	"context"
	"strings"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/hook"
	"github.com/penstock-dev/penstock/sdk/serve"
)

type config struct {
	Words []string `json:"words" desc:"words to replace, as they are written"`
}

type mask struct{ replacer *strings.Replacer }

func open(c config) (hook.Hook, error) {
	var pairs []string
	for _, w := range c.Words {
		if w != "" {
			pairs = append(pairs, w, "[masked]")
		}
	}
	return mask{strings.NewReplacer(pairs...)}, nil
}

// Apply implements hook.Hook. What the model itself wrote stays as it is.
func (m mask) Apply(_ context.Context, e *hook.Event) (hook.Result, error) {
	request, _ := e.Subject().Get("")
	masked, err := hook.EditText(request, func(role chat.Role, text string) string {
		if role == chat.Assistant {
			return text
		}
		return m.replacer.Replace(text)
	})
	if err != nil || masked == nil {
		return hook.Pass(), err
	}
	return hook.Result{Action: hook.Replace, Value: masked}, nil
}

func init() {
	hook.Register("mask", open, hook.Changes(hook.Request), hook.Summary("replaces words in the request with [masked]"))
}

func main() { serve.Main() }
