package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// goTarget is what a Go folder is built as.
type goTarget struct {
	name string
	env  []string
	args []string
}

var (
	goProcess = goTarget{name: "plugin"}
	goWasm    = goTarget{name: "plugin.wasm", env: []string{"GOOS=wasip1", "GOARCH=wasm"}, args: []string{"-buildmode=c-shared"}}
)

// built remembers what a build was made of.
type built struct {
	Settings string            `json:"settings"`
	Files    map[string]string `json:"files"`   // path -> sha256
	Folders  map[string]string `json:"folders"` // path -> the names of its Go files
}

// buildSettings are the variables that change what the go command makes.
var buildSettings = []string{"GOFLAGS", "GOEXPERIMENT", "GOTOOLCHAIN", "GOWORK", "GOOS", "GOARCH", "GOAMD64", "CGO_ENABLED"}

// build builds the Go program in a folder and returns the path of the result.
// Nothing is done when the sources are those of the last build.
func (r *Registry) build(ctx context.Context, dir string, target goTarget) (string, error) {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", fmt.Errorf("go: %s is not a folder", dir)
	}
	out, err := r.cache.folder(filepath.Join("build", hashText(dir + "\x00" + target.name)[:16]))
	if err != nil {
		return "", err
	}
	path, note := filepath.Join(out, target.name), filepath.Join(out, "built.json")
	if unchanged(note) {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	tool, err := exec.LookPath("go")
	if err != nil {
		return "", fmt.Errorf("build %s: there is no go command in PATH; install Go, or build the plugin elsewhere and name the file", dir)
	}
	target.env = append(r.cache.goFolders(os.Getenv), target.env...)
	r.log.Debug("build plugin", "folder", dir, "as", target.name)
	if err := compileGo(ctx, tool, dir, path, target); err != nil {
		return "", fmt.Errorf("build %s: %w", dir, err)
	}
	if err := remember(ctx, tool, dir, target, note); err != nil {
		r.log.Debug("plugin build is not remembered", "folder", dir, "error", err)
	}
	return path, nil
}

// compileGo builds and puts the result in place whole. Paths, the state of the
// checkout and debug information are left out, so that equal sources give
// equal bytes anywhere.
func compileGo(ctx context.Context, tool, dir, path string, target goTarget) error {
	tmp, err := os.MkdirTemp(filepath.Dir(path), "new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	fresh := filepath.Join(tmp, target.name)
	args := append([]string{"build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", fresh}, target.args...)
	if text, err := runGo(ctx, tool, dir, target, append(args, ".")); err != nil {
		if bytes.Contains(text, []byte("go.mod file not found")) {
			return errors.New("there is no go.mod; penstock plugin new makes a folder that has one, with the SDK")
		}
		return fmt.Errorf("%w\n%s", err, text)
	}
	return os.Rename(fresh, path)
}

func runGo(ctx context.Context, tool, dir string, target goTarget, args []string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, tool, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), target.env...)
	// The compilers that it starts end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	var out, text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &text
	if err := cmd.Run(); err != nil {
		return bytes.TrimSpace(append(text.Bytes(), out.Bytes()...)), err
	}
	return out.Bytes(), nil
}

// listed is what `go list -deps -json` says of a package.
type listed struct {
	Dir        string
	Standard   bool
	GoFiles    []string
	CgoFiles   []string
	CFiles     []string
	HFiles     []string
	SFiles     []string
	EmbedFiles []string
	Module     *struct {
		Version string
		GoMod   string
		Replace *struct{ Version string }
	}
}

// local reports whether the package lies in folders that a person edits; one
// of a version in the module cache never changes.
func (l listed) local() bool {
	if l.Standard || l.Module == nil {
		return !l.Standard
	}
	return l.Module.Version == "" || l.Module.Replace != nil && l.Module.Replace.Version == ""
}

// remember writes down what a build was made of.
func remember(ctx context.Context, tool, dir string, target goTarget, note string) error {
	text, err := runGo(ctx, tool, dir, target, []string{"list", "-deps", "-json=Dir,Standard,GoFiles,CgoFiles,CFiles,HFiles,SFiles,EmbedFiles,Module", "."})
	if err != nil {
		return err
	}
	work, err := runGo(ctx, tool, dir, target, []string{"env", "GOWORK"})
	if err != nil {
		return err
	}
	b := built{Settings: settings(), Files: map[string]string{}, Folders: map[string]string{}}
	add := func(path string) error {
		sum, err := hashFile(path)
		b.Files[path] = sum
		return err
	}
	var errs []error
	if w := strings.TrimSpace(string(work)); w != "" && w != "off" {
		errs = append(errs, add(w))
	}
	for d := json.NewDecoder(bytes.NewReader(text)); d.More(); {
		var l listed
		if err := d.Decode(&l); err != nil {
			return err
		}
		if !l.local() {
			continue
		}
		b.Folders[l.Dir] = goFiles(l.Dir)
		for _, list := range [][]string{l.GoFiles, l.CgoFiles, l.CFiles, l.HFiles, l.SFiles, l.EmbedFiles} {
			for _, name := range list {
				errs = append(errs, add(filepath.Join(l.Dir, name)))
			}
		}
		if l.Module != nil && l.Module.GoMod != "" {
			errs = append(errs, add(l.Module.GoMod))
			if sum := strings.TrimSuffix(l.Module.GoMod, "mod") + "sum"; exists(sum) {
				errs = append(errs, add(sum))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	data, err := json.Marshal(b)
	if err != nil {
		return err
	}
	return write(note, data)
}

// unchanged reports whether everything that a build was made of is as it was.
func unchanged(note string) bool {
	data, err := os.ReadFile(note)
	if err != nil {
		return false
	}
	var b built
	if json.Unmarshal(data, &b) != nil || b.Settings != settings() {
		return false
	}
	for dir, names := range b.Folders {
		if goFiles(dir) != names {
			return false
		}
	}
	for path, sum := range b.Files {
		if now, err := hashFile(path); err != nil || now != sum {
			return false
		}
	}
	return len(b.Files) > 0
}

// settings is what of the environment goes into a build.
func settings() string {
	var b strings.Builder
	for _, name := range buildSettings {
		fmt.Fprintf(&b, "%s=%s\n", name, os.Getenv(name))
	}
	return b.String()
}

// goFiles lists the Go files of a folder: a new one changes the build too.
func goFiles(dir string) string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return ""
	}
	var names []string
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
