package cli

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestBuild(t *testing.T) {
	const commit = "b322db96cef3a8d00402f7c58e055292d1d521a1"
	end := " " + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH
	for name, c := range map[string]struct {
		version  string
		settings []debug.BuildSetting
		want     string
		short    string
	}{
		"a release": {version: "v1.2.3", want: "penstock v1.2.3" + end, short: "v1.2.3"},
		"a checkout": {
			version: "v0.0.0-20261130145836-b322db96cef3", short: "v0.0.0-20261130145836-b322db96cef3",
			settings: []debug.BuildSetting{{Key: "vcs.revision", Value: commit}, {Key: "vcs.modified", Value: "false"}},
			want:     "penstock v0.0.0-20261130145836-b322db96cef3 (commit b322db96cef3)" + end,
		},
		"a changed checkout that the go command made no version of": {
			version: "(devel)", short: "b322db96cef3+dirty",
			settings: []debug.BuildSetting{{Key: "vcs.revision", Value: commit}, {Key: "vcs.modified", Value: "true"}},
			want:     "penstock b322db96cef3+dirty (commit b322db96cef3 with changes)" + end,
		},
		"a short revision": {
			version: "(devel)", short: "17", settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "17"}},
			want: "penstock 17 (commit 17)" + end,
		},
		"nothing known": {version: "(devel)", want: "penstock devel" + end, short: "devel"},
	} {
		t.Run(name, func(t *testing.T) {
			b := buildOf(&debug.BuildInfo{Main: debug.Module{Version: c.version}, Settings: c.settings})
			assert.Equal(t, c.want, b.String())
			assert.Equal(t, c.short, b.Version)
		})
	}
	assert.Equal(t, "penstock devel"+end, buildOf(nil).String())
}
