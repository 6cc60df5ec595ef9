package plugin

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Without a home the go command would not know where to put its caches.
func TestGoFolders(t *testing.T) {
	c := cache{dir: "/cache"}
	for name, k := range map[string]struct {
		env  map[string]string
		want []string
	}{
		"a home":             {map[string]string{"HOME": "/home/x"}, nil},
		"no home":            {nil, []string{"GOCACHE=/cache/go-build", "GOPATH=/cache/go"}},
		"they are given":     {map[string]string{"GOCACHE": "/a", "GOPATH": "/b"}, nil},
		"a folder of caches": {map[string]string{"XDG_CACHE_HOME": "/a"}, []string{"GOPATH=/cache/go"}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, k.want, c.goFolders(func(name string) string { return k.env[name] }))
		})
	}
}
