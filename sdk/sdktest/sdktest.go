//go:build !wasip1

// Package sdktest checks components by example: the same request must give
// the same reply, byte for byte, on every transport. An author's test:
//
//	func TestExact(t *testing.T) {
//		sdktest.Judger(t, sdktest.Registered[judger.Judger]("judger/exact"), []sdktest.Case{{
//			Name:    "equal",
//			Request: `{"task":{"answer":"4"},"rollout":{"final_text":"4"}}`,
//			Want:    `{"reward":1,"status":"scored"}`,
//		}})
//	}
package sdktest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/doc"
	"github.com/penstock-dev/penstock/sdk/hook"
	"github.com/penstock-dev/penstock/sdk/judger"
	"github.com/penstock-dev/penstock/sdk/trial"
)

// Case is one request and what must come of it. Config, Request and Want are
// JSON; an empty Config is none. With Error, the call must fail with a message
// that contains it.
type Case struct {
	Name    string
	Config  string
	Request string
	Want    string
	Error   string
}

// Open opens an instance with a config. The transport under test is its
// secret.
type Open[T any] func(ctx context.Context, config json.RawMessage) (T, error)

// Registered opens a component of this program, KIND/NAME.
func Registered[T any](id string) Open[T] {
	return func(ctx context.Context, config json.RawMessage) (T, error) {
		var none T
		for _, c := range component.Registered() {
			if c.ID() != id {
				continue
			}
			instance, err := c.Open(ctx, config)
			if err != nil {
				return none, err
			}
			t, ok := instance.(T)
			if !ok {
				return none, fmt.Errorf("%s is a %T", id, instance)
			}
			return t, nil
		}
		return none, fmt.Errorf("%s is not registered", id)
	}
}

// Judger runs the cases of a judger. A request with rollouts is one of a
// group.
func Judger(t *testing.T, open Open[judger.Judger], cases []Case) {
	run(t, cases, open, func(ctx context.Context, j judger.Judger, d doc.Doc) (any, error) {
		if _, group := d.Get("/rollouts"); !group {
			return one(j.Judge(ctx, judger.NewRequest(d)))
		}
		g, ok := j.(judger.GroupJudger)
		if !ok {
			return nil, fmt.Errorf("this judger judges no groups")
		}
		return one(g.JudgeGroup(ctx, judger.NewGroupRequest(d)))
	})
}

// Hook runs the cases of a hook.
func Hook(t *testing.T, open Open[hook.Hook], cases []Case) {
	run(t, cases, open, func(ctx context.Context, h hook.Hook, d doc.Doc) (any, error) {
		return one(h.Apply(ctx, hook.NewEvent(d)))
	})
}

func one[T any](v T, err error) (any, error) { return v, err }

func run[T any](t *testing.T, cases []Case, open Open[T], call func(context.Context, T, doc.Doc) (any, error)) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			require.True(t, json.Valid([]byte(c.Request)), "the case's request is not JSON")
			instance, err := open(t.Context(), json.RawMessage(c.Config))
			var reply any
			if err == nil {
				reply, err = call(t.Context(), instance, doc.Bytes(c.Request))
			}
			if c.Error != "" {
				require.ErrorContains(t, err, c.Error)
				return
			}
			require.NoError(t, err)
			got, err := chat.Marshal(reply)
			require.NoError(t, err)
			assert.Equal(t, c.Want, string(got))
		})
	}
}

// File runs the cases of a file, one a line in the form of package trial, on a
// component of this program, KIND/NAME. It is what `penstock plugin test`
// does on the plugin as it is loaded.
func File(t *testing.T, id, path string) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	cases, err := trial.Read(f)
	require.NoError(t, err, path)
	require.NotEmpty(t, cases, path)
	Trial(t, Registered[any](id), cases)
}

// Trial runs cases on a component of any kind.
func Trial(t *testing.T, open Open[any], cases []trial.Case) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			instance, err := open(t.Context(), c.Config)
			if err != nil {
				require.NoError(t, c.Compare(nil, err))
				return
			}
			require.NoError(t, c.Check(t.Context(), instance))
		})
	}
}
