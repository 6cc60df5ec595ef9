package cli

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// build is what the binary says of how it was made.
type build struct {
	// Version is the module's version, which the go command makes of the
	// checkout's tags and commits. Without one it is the revision, with
	// "+dirty" where files were changed, or "devel".
	Version string `json:"version"`
	// Revision is the commit, Time its time in RFC 3339; "" where the build
	// doesn't know, as outside of a checkout.
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"`
	Dirty    bool   `json:"dirty"` // files of the checkout were changed
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// shortRevision is how much of a commit's hash a person reads.
const shortRevision = 12

// buildOf reads a binary's build information; nil is a binary without any.
func buildOf(info *debug.BuildInfo) build {
	b := build{Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info == nil {
		return b
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Dirty = s.Value == "true"
		}
	}
	switch v := info.Main.Version; {
	case v != "" && v != "(devel)":
		b.Version = v
	case b.Revision != "":
		b.Version = fmt.Sprintf("%.*s", shortRevision, b.Revision)
		if b.Dirty {
			b.Version += "+dirty"
		}
	}
	return b
}

// String is the build in a line.
func (b build) String() string {
	text := "penstock " + b.Version
	if b.Revision != "" {
		text += fmt.Sprintf(" (commit %.*s", shortRevision, b.Revision)
		if b.Dirty {
			text += " with changes"
		}
		text += ")"
	}
	return text + " " + b.Go + " " + b.Platform
}

func readBuild() build {
	info, _ := debug.ReadBuildInfo() // nil where there is none
	return buildOf(info)
}

// BuildVersion is the version that the binary carries.
func BuildVersion() string { return readBuild().Version }

func (a *App) versionCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "print the version, the commit, and what it was built with",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			b := readBuild()
			if asJSON {
				return json.NewEncoder(a.Stdout).Encode(b)
			}
			_, err := fmt.Fprintln(a.Stdout, b)
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print it as JSON")
	return c
}
