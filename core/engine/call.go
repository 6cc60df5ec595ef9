package engine

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/penstock-dev/penstock/core/agent"
	"github.com/penstock-dev/penstock/core/run"
	"github.com/penstock-dev/penstock/sdk/model"
)

// makeCall makes the call that a plan has instead of a program, in the stage's
// session, and tells of its end as a program's is told: the answer is its
// output, the HTTP status its exit code.
func (v *invocation) makeCall(ctx context.Context, deadline time.Time) (*agent.Exit, error) {
	c := v.plan.Call
	switch {
	case len(v.plan.Argv) > 0:
		return nil, errors.New("plan: it has both a program and a call")
	case v.session == nil:
		return nil, errors.New("plan: it calls a model, but the stage names none")
	case !strings.HasPrefix(c.Path, "/"):
		return nil, fmt.Errorf("plan: %q is no route of the gateway", c.Path)
	}
	limited, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	exit := &agent.Exit{Started: time.Now()}
	body, err := model.Ask(limited, model.Session{BaseURL: v.session.Root(), Token: v.session.Token()}, c.Path, c.Body)
	status := http.StatusOK
	var refused *model.StatusError
	if errors.As(err, &refused) {
		status, body, err = refused.Status, refused.Body, nil
	}
	exit.Ended = time.Now()
	switch {
	// Asked of the clock: at its deadline the session ends calls too.
	case err != nil && !time.Now().Before(deadline), status >= http.StatusBadRequest && !time.Now().Before(deadline):
		exit.TimedOut, exit.Code = true, -1
	case err != nil && ctx.Err() != nil:
		exit.Cancelled, exit.Code = true, -1
	case err != nil:
		return nil, err
	case status != http.StatusOK:
		exit.Code = status
	}
	exit.Stdout = string(body)
	exit.OutputErr = run.Artifact(filepath.Join(v.dir, "stdout"), func(f *os.File) error {
		w := v.Redact.Writer(f)
		if _, err := w.Write(body); err != nil {
			return err
		}
		return w.Close()
	})
	return exit, nil
}
