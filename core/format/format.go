// Package format finds the format that a pipeline names: a registered one, or
// a YAML file. What never enters: how any format parses or renders.
package format

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/format"
)

// Registry is where registered formats are found.
type Registry interface {
	Format(ctx context.Context, name string, config json.RawMessage) (format.Format, error)
	Names(kind string) []string
}

// UnknownError is a name that no format has.
type UnknownError struct {
	Name string
	// Near is the name that it may have been meant for, or empty.
	Near  string
	Known []string
}

func (e *UnknownError) Error() string {
	s := fmt.Sprintf("there is no format %q", e.Name)
	if e.Near != "" {
		s += fmt.Sprintf("; did you mean %q?", e.Near)
	}
	if len(e.Known) > 0 {
		s += " (known: " + strings.Join(e.Known, ", ") + "; a file's path has a / or ends in .yaml)"
	}
	return s
}

// IsFile reports whether spec names a file.
func IsFile(spec string) bool {
	if name, ok := strings.CutPrefix(spec, component.Format+"/"); ok && !strings.Contains(name, "/") && !isYAML(name) {
		return false
	}
	return strings.Contains(spec, "/") || isYAML(spec)
}

func isYAML(s string) bool { return strings.HasSuffix(s, ".yaml") || strings.HasSuffix(s, ".yml") }

// Auto is the format that is picked by the text of the model's chat template.
const Auto = "auto"

// ResolveFor opens the format of a model whose chat template is in a file, or
// which has none. With a template prompts are rendered by it, and hash is its
// own; spec auto then picks the format that parses, and a named format that the
// template contradicts is an error.
func ResolveFor(ctx context.Context, spec, template, baseDir string, registry Registry) (f format.Format, name, hash string, err error) {
	if template == "" {
		if spec == Auto {
			return nil, "", "", errors.New("format auto needs the model's chat template: give template, a .jinja file or a tokenizer_config.json")
		}
		return Resolve(ctx, spec, baseDir, registry)
	}
	file, err := ReadTemplate(template)
	if err != nil {
		return nil, "", "", err
	}
	if spec, err = choose(spec, file); err != nil {
		return nil, "", "", err
	}
	if f, name, _, err = Resolve(ctx, spec, baseDir, registry); err != nil {
		return nil, "", "", err
	}
	if f, err = OpenTemplate(ctx, f, name, file); err != nil {
		return nil, "", "", err
	}
	return f, name, file.Hash(), nil
}

// choose is the format that is named, unless the template contradicts it, or
// with auto the one that the template is of.
func choose(spec string, file *Template) (string, error) {
	if spec != Auto {
		return spec, Contradicts(strings.TrimPrefix(spec, component.Format+"/"), file.Path, file.Tools)
	}
	found, err := Detect(file.Tools)
	var unsure *DetectError
	if errors.As(err, &unsure) {
		unsure.File = file.Path
	}
	return found, err
}

// CheckTemplate finds what is wrong with a model's chat template. A format that
// a plugin brings isn't opened, so the template isn't held against that one.
func CheckTemplate(ctx context.Context, spec, template, baseDir string) error {
	file, err := ReadTemplate(template)
	if err != nil {
		return err
	}
	for _, text := range []string{file.Text, file.Tools} {
		if _, err := compile(file, text); err != nil {
			return err
		}
	}
	if spec, err = choose(spec, file); err != nil {
		return err
	}
	base, name := format.Format(nil), strings.TrimPrefix(spec, component.Format+"/")
	if IsFile(spec) {
		base, name, _, err = fromFile(spec, baseDir)
	} else if s := shipped(name); s != nil {
		base, err = format.New(s)
	}
	if err != nil || base == nil {
		return err
	}
	_, err = OpenTemplate(ctx, base, name, file)
	return err
}

// shipped is the declared format of a name or an alias, or nil.
func shipped(name string) *format.Spec {
	for _, s := range format.Shipped() {
		if s.Name == name || slices.Contains(s.Aliases, name) {
			return s
		}
	}
	return nil
}

// Resolve opens the format that spec names: with a slash or ending in .yaml a
// file, relative to baseDir; else, with or without format/ before it, a
// registered one. It returns the format's own name, and for a file the hash of
// its bytes.
func Resolve(ctx context.Context, spec, baseDir string, registry Registry) (f format.Format, name, hash string, err error) {
	if IsFile(spec) {
		return fromFile(spec, baseDir)
	}
	name = strings.TrimPrefix(spec, component.Format+"/")
	known := registry.Names(component.Format)
	sort.Strings(known)
	if i := sort.SearchStrings(known, name); i == len(known) || known[i] != name {
		return nil, "", "", &UnknownError{Name: name, Near: format.Nearest(name, known), Known: known}
	}
	if f, err = registry.Format(ctx, name, nil); err != nil {
		return nil, "", "", fmt.Errorf("open format %s: %w", name, err)
	}
	return f, name, "", nil
}

// CheckFile finds what is wrong with a format file of the user's own, and
// returns its name. It has a name of its own, as records and rows name the
// format and nothing else.
func CheckFile(path string) (name string, err error) {
	s, _, err := readFile(path)
	if err != nil {
		return "", err
	}
	if _, err := format.New(s); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	for _, name := range append([]string{s.Name}, s.Aliases...) {
		if shipped(name) != nil {
			return "", fmt.Errorf("%s: a format named %s comes with penstock: give yours another name; with `extends: %[2]s` it begins as that one", path, name)
		}
	}
	return s.Name, nil
}

func readFile(path string) (*format.Spec, []byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("read format file: %w", err)
	}
	s, err := format.ParseSpec(path, data)
	return s, data, err
}

func fromFile(spec, baseDir string) (format.Format, string, string, error) {
	path := spec
	if !filepath.IsAbs(path) {
		path = filepath.Join(baseDir, path)
	}
	s, data, err := readFile(path)
	if err != nil {
		return nil, "", "", err
	}
	f, err := format.New(s)
	if err != nil {
		return nil, "", "", fmt.Errorf("%s: %w", path, err)
	}
	sum := sha256.Sum256(data)
	return f, s.Name, hex.EncodeToString(sum[:]), nil
}
