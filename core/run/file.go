package run

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/penstock-dev/penstock/sdk/chat"
)

// FileVersion is the version of run.json.
const FileVersion = 1

// File is run.json: all that describes the run beside its records. Resume
// reads it and the database, and nothing else.
type File struct {
	Version  int    `json:"version"`
	Run      string `json:"run"`
	Penstock string `json:"penstock"`
	// Resolved is the pipeline as it was read: its source, what the command
	// line set in it, and what became of both. Secrets stay references.
	Resolved json.RawMessage `json:"resolved,omitempty"`
	// Files are hashes of what the run depends on beside the pipeline file, by
	// path: model scripts, format files. Plugins are hashes by kind/name.
	Files   map[string]string `json:"files,omitempty"`
	Plugins map[string]string `json:"plugins,omitempty"`
	// PluginDirs are the plugin folders of the command line, absolute, and
	// Locked says that every plugin had to be in the lock file.
	PluginDirs []string `json:"plugin_dirs,omitempty"`
	Locked     bool     `json:"locked,omitempty"`
	// Engines say, by model, what generates and where, with its own version.
	Engines map[string]string `json:"engines,omitempty"`
	// Isolation says how agent processes are kept together: pidns or walk.
	Isolation string `json:"isolation,omitempty"`
	// Hidden says that agents saw nothing of the run folder but their own
	// workspace and home, in every part of the run.
	Hidden bool `json:"hidden"`
	// Sandboxes are, by stage, what bounds its programs and how far, where
	// something does.
	Sandboxes map[string]string `json:"sandboxes,omitempty"`
	Started   time.Time         `json:"started"`
	Ended     time.Time         `json:"ended,omitzero"`
	Resumed   int               `json:"resumed,omitempty"`
	Status    string            `json:"status"`
	Totals    *Totals           `json:"totals,omitempty"`
}

// Abandoned is the status of rollouts that a person gave up. They are
// cancelled, and no resume takes them up.
const Abandoned = "abandoned"

// Totals sums up a run.
type Totals struct {
	Rollouts   int            `json:"rollouts"`
	Status     map[string]int `json:"status"` // rollouts by status, and Abandoned
	Rewarded   int            `json:"rewarded"`
	RewardMean *float64       `json:"reward_mean"`
	Usage      chat.Usage     `json:"usage"`
	Cost       *float64       `json:"cost"` // in US dollars, null where it isn't known
	CostBasis  string         `json:"cost_basis,omitempty"`
	Calls      int            `json:"calls"`
	Rows       map[string]int `json:"rows,omitempty"` // by converter stage
	// Denied counts rows that hooks left out, by converter stage, and Dropped
	// the events that observing hooks were too slow for, by hook.
	Denied map[string]int `json:"rows_denied,omitempty"`
	// Lost counts rows left out because a hook failed, by converter stage.
	Lost    map[string]int `json:"rows_lost,omitempty"`
	Dropped map[string]int `json:"hook_events_dropped,omitempty"`
	Forks   map[string]int `json:"forks,omitempty"`
	Seconds float64        `json:"seconds"`
}

// ReadFile reads run.json.
func (f *Folder) ReadFile() (*File, error) {
	b, err := os.ReadFile(f.Path("run.json"))
	if err != nil {
		return nil, fmt.Errorf("read run file: %w", err)
	}
	var d File
	if err := json.Unmarshal(b, &d); err != nil {
		return nil, fmt.Errorf("read run file %s: %w", f.Path("run.json"), err)
	}
	if d.Version != FileVersion {
		return nil, fmt.Errorf("read run file %s: it has version %d, this penstock reads version %d", f.Path("run.json"), d.Version, FileVersion)
	}
	return &d, nil
}

// WriteFile writes run.json, which makes the folder that of a run.
func (f *Folder) WriteFile(d *File) error {
	if err := f.writeFile(d); err != nil || !f.fresh {
		return err
	}
	f.fresh = false
	if f.link == "" {
		return nil
	}
	return relink(f.link, f.ID)
}

func (f *Folder) writeFile(d *File) error {
	return Replace(f.Path("run.json"), func(w *os.File) error {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(d)
	})
}
