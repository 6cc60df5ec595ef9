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
// which has none. With spec auto the template picks the format; a named format
// that the template contradicts is an error.
func ResolveFor(ctx context.Context, spec, template, baseDir string, registry Registry) (f format.Format, name, hash string, err error) {
	if template == "" {
		if spec == Auto {
			return nil, "", "", errors.New("format auto needs the model's chat template: give template, a .jinja file or a tokenizer_config.json")
		}
		return Resolve(ctx, spec, baseDir, registry)
	}
	text, err := ReadTemplate(template)
	if err != nil {
		return nil, "", "", err
	}
	if spec == Auto {
		if spec, err = Detect(text); err != nil {
			var unsure *DetectError
			if errors.As(err, &unsure) {
				unsure.File = template
			}
			return nil, "", "", err
		}
	} else if err := Contradicts(strings.TrimPrefix(spec, component.Format+"/"), template, text); err != nil {
		return nil, "", "", err
	}
	return Resolve(ctx, spec, baseDir, registry)
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

func fromFile(spec, baseDir string) (format.Format, string, string, error) {
	path := spec
	if !filepath.IsAbs(path) {
		path = filepath.Join(baseDir, path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, "", "", fmt.Errorf("read format file: %w", err)
	}
	s, err := format.ParseSpec(path, data)
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
