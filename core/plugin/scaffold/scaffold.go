// Package scaffold writes the folder of a new plugin: what its author edits,
// and all that lets it build, test and run at once, offline where the
// language's own tools are there.
//
// What never enters: loading and testing plugins.
package scaffold

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"github.com/penstock-dev/penstock/sdk"
	"github.com/penstock-dev/penstock/sdk/component"
)

//go:embed templates
var templates embed.FS

// notModules are the names that no module of Python may have here: its keywords,
// the modules of its standard library, which one of that name would hide, and
// the sdk's own.
//
//go:embed python.txt
var notModules string

// Languages lists the languages, the default first.
var Languages = []string{"go", "go-wasm", "python", "c", "assemblyscript"}

// kindsOf are the kinds that a language has a template for: over exec and in
// small WASM modules those whose requests need no SDK.
var kindsOf = map[string][]string{
	"go":             component.Kinds,
	"go-wasm":        {component.Invoker, component.Judger, component.Format, component.Hook},
	"python":         {component.Judger, component.Hook},
	"c":              {component.Judger, component.Hook},
	"assemblyscript": {component.Judger, component.Hook},
}

// Options say what is written.
type Options struct {
	Kind, Name, Language string
	Dir                  string // default ./NAME; it must be new or empty
	// Taken are the names of the kind that are built in: a plugin of such a name
	// is refused by a pipeline that doesn't say that it wants it.
	Taken []string
}

// Plugin is what was written.
type Plugin struct {
	Key   string   `json:"plugin"`
	Dir   string   `json:"dir"`
	Edit  string   `json:"edit"` // the author's file
	Files []string `json:"files"`
	Next  []string `json:"next"` // the commands to go on with, in Dir
}

// view is what the templates see.
type view struct {
	Plugin
	Kind, Name, Ident, Source, Spoken string
	Module, Requires                  string
	Go                                bool
}

// names are safe in a pipeline file, a path, a Go string and a YAML key.
var names = regexp.MustCompile(`^[a-z][a-z0-9_-]*$`)

// New writes the folder of a plugin.
func New(o Options) (*Plugin, error) {
	v, err := o.view()
	if err != nil {
		return nil, err
	}
	if err := makeEmpty(v.Dir); err != nil {
		return nil, err
	}
	for _, group := range v.groups(o.Language) {
		if err := v.write(group); err != nil {
			return nil, fmt.Errorf("write the plugin: %w", err)
		}
	}
	if err := v.addSDK(o.Language); err != nil {
		return nil, err
	}
	slices.Sort(v.Files)
	return &v.Plugin, nil
}

func (o *Options) view() (*view, error) {
	if o.Language == "" {
		o.Language = Languages[0]
	}
	kinds, ok := kindsOf[o.Language]
	switch {
	case !slices.Contains(component.Kinds, o.Kind):
		return nil, fmt.Errorf("there is no kind %q; the kinds are %s", o.Kind, strings.Join(component.Kinds, ", "))
	case !ok:
		return nil, fmt.Errorf("there is no language %q; the languages are %s", o.Language, strings.Join(Languages, ", "))
	case !slices.Contains(kinds, o.Kind):
		return nil, fmt.Errorf("there is no template for the kind %s in %s; %s has %s, and go has every kind", o.Kind, o.Language, o.Language, strings.Join(kinds, " and "))
	case !names.MatchString(o.Name):
		return nil, fmt.Errorf("%q can't be a plugin's name: it begins with a small letter and has small letters, digits, _ and - only", o.Name)
	case slices.Contains(o.Taken, o.Name):
		return nil, fmt.Errorf("%s/%s is built in; choose another name, such as my_%s", o.Kind, o.Name, o.Name)
	}
	if o.Dir == "" {
		o.Dir = o.Name
	}
	v := &view{Kind: o.Kind, Name: o.Name, Ident: strings.ReplaceAll(o.Name, "-", "_"), Module: sdk.Module}
	v.Key, v.Dir = o.Kind+"/"+o.Name, o.Dir
	if o.Language == "python" && slices.Contains(strings.Fields(notModules), v.Ident) {
		v.Ident += "_" + o.Kind
	}
	v.describe(o.Language)
	return v, nil
}

// describe fills in what differs from one language to the next.
func (v *view) describe(language string) {
	const run = "penstock run pipeline.yaml"
	switch language {
	case "go", "go-wasm":
		v.Go, v.Spoken, v.Edit, v.Source = true, "Go", "main.go", "{ process: { go: . } }"
		if language == "go-wasm" {
			v.Spoken, v.Source = "Go, run as WASM", "{ wasm: { go: . }, limits: { timeout: 2s } }"
		}
		if v.Kind == component.Format {
			v.Edit = v.Name + ".yaml"
		}
		v.Requires = string(sdk.Requires(true))
		v.Next = []string{"go test ./...", "penstock plugin test .", run}
	case "python":
		v.Spoken, v.Edit = "Python", v.Ident+".py"
		v.Source = "{ exec: [./" + v.Edit + "], files: [./penstock.py] }"
		v.Next = []string{"python3 -m unittest", "penstock plugin test .", run}
	case "c":
		v.Spoken, v.Edit, v.Source = "C", v.Ident+".c", "{ wasm: ./"+v.Ident+".wasm }"
		v.Next = []string{"make", "make test", run}
	case "assemblyscript":
		v.Spoken, v.Edit, v.Source = "AssemblyScript", "assembly/index.ts", "{ wasm: ./"+v.Ident+".wasm }"
		v.Next = []string{"npm install", "npm test", run}
	}
}

func (v *view) groups(language string) []string {
	language = strings.TrimSuffix(language, "-wasm")
	return []string{"common", v.Kind, language, language + "-" + v.Kind}
}

// makeEmpty makes a folder that is new or empty.
func makeEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case err == nil && len(entries) > 0:
		return fmt.Errorf("%s is not empty; nothing was written", dir)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return os.MkdirAll(dir, 0o755)
}

// write writes the templates of a group.
func (v *view) write(group string) error {
	root := path.Join("templates", group)
	return fs.WalkDir(templates, root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := templates.ReadFile(name)
		if err != nil {
			return err
		}
		t, err := template.New(name).Delims("<<", ">>").Parse(string(data))
		if err != nil {
			return err
		}
		var text bytes.Buffer
		if err := t.Execute(&text, v); err != nil {
			return err
		}
		return v.add(v.target(strings.TrimPrefix(name, root+"/")), text.Bytes())
	})
}

// target is the file that a template becomes.
func (v *view) target(name string) string {
	name = strings.TrimSuffix(name, ".tmpl")
	if name == "gitignore" {
		return ".gitignore"
	}
	return strings.NewReplacer("IDENT", v.Ident, "NAME", v.Name).Replace(name)
}

func (v *view) add(name string, data []byte) error {
	file := filepath.Join(v.Dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if bytes.HasPrefix(data, []byte("#!")) {
		mode = 0o755
	}
	v.Files = append(v.Files, name)
	return os.WriteFile(file, data, mode)
}

// addSDK puts what the plugin builds against beside it.
func (v *view) addSDK(language string) error {
	switch language {
	case "python":
		return v.add("penstock.py", sdk.File("python/penstock.py"))
	case "c":
		return v.add("penstock.h", sdk.File("c/penstock.h"))
	case "assemblyscript":
		return v.add("assembly/penstock.ts", sdk.File("assemblyscript/penstock.ts"))
	}
	v.Files = append(v.Files, ".penstock/")
	return errors.Join(v.add("go.sum", sdk.Sum()), sdk.Write(filepath.Join(v.Dir, ".penstock")))
}
