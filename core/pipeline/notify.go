package pipeline

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// notify checks who is told of parks.
func (c *check) notify() {
	f := c.f
	list := f.get(f.root, "notify")
	if list == nil {
		return
	}
	for _, n := range list.Content {
		if f.bad[n] {
			continue
		}
		to := Notify{Command: f.texts(n, "command"), Webhook: f.text(n, "webhook"), File: f.text(n, "file")}
		given := 0
		for _, is := range []bool{len(to.Command) > 0, to.Webhook != "", to.File != ""} {
			if is {
				given++
			}
		}
		if given != 1 {
			f.errorf(f.at(n), "notify", "notify: [{file: parks.jsonl}]", "each entry has exactly one of command, webhook and file")
			continue
		}
		if !f.unseen(n) && !f.opts.NoStages {
			f.reachable(n, to)
		}
		if len(to.Command) > 0 && strings.Contains(to.Command[0], "/") {
			to.Command[0] = f.abs(to.Command[0])
		}
		if to.File != "" {
			to.File = f.abs(to.File)
		}
		c.p.Notify = append(c.p.Notify, to)
	}
}

// reachable reports what can't be told of anything. Whether a server is there,
// and what it answers, is known only when it is asked.
func (f *File) reachable(n *yaml.Node, to Notify) {
	switch {
	case len(to.Command) > 0:
		f.startable(f.get(n, "command").Content[0], to.Command[0], true, false)
	case to.Webhook != "":
		if at, err := url.Parse(to.Webhook); err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Hostname() == "" {
			f.errorf(f.at(f.get(n, "webhook")), "notify", "webhook: https://example.com/parks", "the webhook is no http or https URL") // it may hold a secret
		}
	default:
		name, at := f.abs(to.File), f.at(f.get(n, "file"))
		if info, err := os.Stat(filepath.Dir(name)); err != nil || !info.IsDir() {
			f.errorf(at, "notify", "make it, or name another", "there is no folder %s for the file '%s'", filepath.Dir(name), to.File)
		} else if info, err := os.Stat(name); err == nil && info.IsDir() {
			f.errorf(at, "notify", "name a file in it", "'%s' is a folder", to.File)
		}
	}
}
