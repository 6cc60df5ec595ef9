// Package notify tells people, outside of penstock, of one thing that happened:
// by a program, a webhook or a line in a file. What never enters: what the
// message means, and when it is sent.
package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Target is where a message goes: exactly one of its fields is set.
type Target struct {
	Command []string // gets the message on standard input
	Webhook string   // gets it as the body of a POST
	File    string   // gets it as a line at its end
}

func (t Target) String() string {
	switch {
	case len(t.Command) > 0:
		return "command " + t.Command[0]
	case t.Webhook != "":
		return "webhook" // its address may hold a secret
	}
	return "file " + t.File
}

// Message is a JSON document. ID is the same for every copy of it, so that
// whoever gets it twice can tell: a program finds it in PENSTOCK_NOTIFY_ID, a
// server in Idempotency-Key.
type Message struct {
	ID   string
	JSON []byte // one line
}

const (
	tries   = 3
	limit   = 10 * time.Second // of one try
	backoff = time.Second
)

// Send delivers a message, or says why it can't after three tries. A file gets
// each message once, also when it is sent again after a crash.
func Send(ctx context.Context, t Target, m Message) error {
	var err error
	for n := range tries {
		if n > 0 {
			select {
			case <-ctx.Done():
				return fmt.Errorf("notify %s: %w", t, ctx.Err())
			case <-time.After(backoff << (n - 1)):
			}
		}
		if err = t.once(ctx, m); err == nil {
			return nil
		}
	}
	return fmt.Errorf("notify %s: %w", t, err)
}

func (t Target) once(ctx context.Context, m Message) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	switch {
	case len(t.Command) > 0:
		return t.run(ctx, m)
	case t.Webhook != "":
		return t.post(ctx, m)
	}
	return t.write(m)
}

func (t Target) run(ctx context.Context, m Message) error {
	cmd := exec.CommandContext(ctx, t.Command[0], t.Command[1:]...)
	cmd.Stdin = io.MultiReader(bytes.NewReader(m.JSON), strings.NewReader("\n"))
	cmd.Env = append(os.Environ(), "PENSTOCK_NOTIFY_ID="+m.ID)
	cmd.WaitDelay = time.Second
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		if text := bytes.TrimSpace(said.Bytes()); len(text) > 0 {
			return fmt.Errorf("%w: %s", err, text[max(0, len(text)-500):])
		}
		return err
	}
	return nil
}

func (t Target) post(ctx context.Context, m Message) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.Webhook, bytes.NewReader(m.JSON))
	if err != nil {
		return errors.New("its address is no URL")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", m.ID)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return errors.New("it can't be reached") // the cause names the address
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("it answered %s", resp.Status)
	}
	return nil
}

func (t Target) write(m Message) error {
	f, err := os.OpenFile(t.File, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	before, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	line := append(bytes.TrimRight(bytes.Clone(m.JSON), "\n"), '\n')
	if bytes.HasPrefix(before, line) || bytes.Contains(before, append([]byte{'\n'}, line...)) {
		return nil
	}
	if len(before) > 0 && before[len(before)-1] != '\n' {
		line = append([]byte{'\n'}, line...)
	}
	if _, err := f.Write(line); err != nil {
		return err
	}
	return f.Sync()
}
