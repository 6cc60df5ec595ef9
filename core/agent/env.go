package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// EnvOptions says what an agent's environment is made of.
type EnvOptions struct {
	// BinDir comes first in PATH; see BinDir.
	BinDir string
	// Home is the private home; the XDG folders are in it.
	Home string
	// Temp is TMPDIR. Empty leaves it to Run, which makes a folder with a
	// short path for each run.
	Temp string
	// Extra is added at the end; a name in it wins.
	Extra map[string]string
	// Parent is the environment that allowed names are taken from; nil means
	// that of this process.
	Parent []string
}

// allowed are the names that pass from the parent. All else stays out: keys
// and switches of the operator are none of an agent's business.
var allowed = []string{
	"LANG", "LANGUAGE", "TZ", "TERM", "COLORTERM", "NO_COLOR", "SHELL", "USER", "LOGNAME",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
}

// The PATH where the parent has none, and the hosts that no proxy may see:
// the gateway is on one of them.
const (
	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	loopback    = "127.0.0.1,localhost,::1"
)

// BaseEnv returns the environment of an agent, sorted by name.
func BaseEnv(o EnvOptions) []string {
	parent := o.Parent
	if parent == nil {
		parent = os.Environ()
	}
	env := map[string]string{}
	path := defaultPath
	for _, kv := range parent {
		name, value, _ := strings.Cut(kv, "=")
		switch {
		case name == "PATH":
			path = value
		case slices.Contains(allowed, name), strings.HasPrefix(name, "LC_"):
			env[name] = value
		}
	}
	env["PATH"] = agentPath(o.BinDir, path)
	env["NO_PROXY"], env["no_proxy"] = loopback, loopback
	if o.Home != "" {
		env["HOME"] = o.Home
		env["XDG_CONFIG_HOME"] = filepath.Join(o.Home, ".config")
		env["XDG_CACHE_HOME"] = filepath.Join(o.Home, ".cache")
		env["XDG_DATA_HOME"] = filepath.Join(o.Home, ".local", "share")
		env["XDG_STATE_HOME"] = filepath.Join(o.Home, ".local", "state")
	}
	if o.Temp != "" {
		env["TMPDIR"] = o.Temp
	}
	for name, value := range o.Extra {
		env[name] = value
	}
	list := make([]string, 0, len(env))
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list
}

// agentPath leaves out relative folders, which would be searched in the
// agent's own workspace.
func agentPath(first, path string) string {
	var dirs []string
	for _, dir := range append([]string{first}, filepath.SplitList(path)...) {
		if filepath.IsAbs(dir) && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return strings.Join(dirs, string(filepath.ListSeparator))
}

// BinDir makes dir a folder in which `penstock` is the running binary, so that
// whatever an agent starts by that name is this very program. Self is the
// binary; empty means os.Executable.
func BinDir(dir, self string) error {
	if self == "" {
		exe, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find the running binary: %w", err)
		}
		self = exe
	}
	self, err := filepath.Abs(self)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make bin folder: %w", err)
	}
	link := filepath.Join(dir, "penstock")
	if old, err := os.Readlink(link); err == nil && old == self {
		return nil
	}
	if err := os.Remove(link); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("replace %s: %w", link, err)
	}
	if err := os.Symlink(self, link); err != nil {
		return fmt.Errorf("make bin folder: %w", err)
	}
	return nil
}
