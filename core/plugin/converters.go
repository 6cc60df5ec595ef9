package plugin

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/penstock-dev/penstock/sdk/converter"
)

// rowConverter is an instance that converts rows.
type rowConverter interface {
	convert(ctx context.Context, rows iter.Seq2[*converter.Row, error], out converter.Output) error
}

type remoteConverter struct{ remote }

func newRemoteConverter(r remote) (any, error) {
	if _, ok := r.instance.(rowConverter); !ok {
		return nil, errors.New("this transport carries no converters")
	}
	return remoteConverter{r}, nil
}

// Convert implements converter.Converter.
func (c remoteConverter) Convert(ctx context.Context, rows iter.Seq2[*converter.Row, error], out converter.Output) error {
	if err := c.instance.(rowConverter).convert(ctx, rows, out); err != nil {
		return fmt.Errorf("plugin %s: convert: %w", c.key, err)
	}
	return nil
}
