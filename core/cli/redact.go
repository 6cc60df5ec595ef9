package cli

import (
	"os"
	"slices"

	"github.com/penstock-dev/penstock/core/engine"
	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/core/redact"
)

// redactor knows the secrets of a pipeline and of this process's environment.
// From then on logs know them, too.
func (a *App) redactor(p *pipeline.Pipeline) *redact.Redactor {
	values := slices.DeleteFunc(redact.Referenced(p.SecretValues()), func(v string) bool {
		// What every record names is no secret, wherever it was read from.
		for _, m := range p.Models {
			if v == m.Model || v == m.ServeAs || v == m.Format || v == m.Tokenizer {
				return true
			}
		}
		return false
	})
	values = append(values, engine.Secrets(p)...)
	values = append(values, redact.Environment(os.Environ())...)
	r := redact.New(redact.Options{Values: values, NoPatterns: !a.settings.Redact.Patterns})
	a.secrets.Store(r)
	return r
}
