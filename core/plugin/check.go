package plugin

import (
	"context"
	"encoding/json"
)

// CheckConfig opens a component with a config, as the run will, so that what
// only the component itself can know is found before anything starts. The
// instance is kept for the run. An error about one field of the config is a
// *schema.Error.
func (r *Registry) CheckConfig(ctx context.Context, kind, name string, config json.RawMessage) error {
	_, err := openAs[any](ctx, r, kind, name, config)
	return err
}
