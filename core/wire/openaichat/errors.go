package openaichat

import (
	"github.com/penstock-dev/penstock/core/wire"
	"github.com/penstock-dev/penstock/core/wire/openai"
)

// Error implements wire.Dialect.
func (dialect) Error(e *wire.Error) (status int, body []byte) { return openai.Error(e) }

// Models implements wire.Dialect.
func (dialect) Models(ids []string) []byte { return openai.Models(ids) }

// Model implements wire.Dialect.
func (dialect) Model(id string) []byte { return openai.Model(id) }
