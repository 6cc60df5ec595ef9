package plugincmd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/core/plugin"
)

// manifest is the file in a plugin's folder that says what the folder holds:
// a pipeline file with nothing but `plugins:`.
const manifest = "plugin.yaml"

// Offer makes the plugins of plugin folders known to a registry: those of
// each DIR/plugin.yaml and DIR/*/plugin.yaml. It comes before the pipeline's
// own plugins are added. None is built or started before it is used.
func Offer(r *plugin.Registry, dirs []string) error {
	for _, dir := range dirs {
		sources, err := discover(dir)
		if err != nil {
			return err
		}
		for _, s := range sources {
			if err := r.Offer(s); err != nil {
				return fmt.Errorf("plugin folder %s: %w", dir, err)
			}
		}
	}
	return nil
}

// discover lists the plugins of a plugin folder.
func discover(dir string) ([]plugin.Source, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the plugin folder: %w", err)
	}
	files := []string{filepath.Join(dir, manifest)}
	for _, e := range entries {
		files = append(files, filepath.Join(dir, e.Name(), manifest))
	}
	var all []plugin.Source
	for _, file := range files {
		if _, err := os.Stat(file); err != nil {
			continue
		}
		sources, err := manifestOf(file)
		if err != nil {
			return nil, err
		}
		all = append(all, sources...)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("the plugin folder %s holds no %s, nor has a folder in it one", dir, manifest)
	}
	return all, nil
}

// manifestOf reads a plugin.yaml.
func manifestOf(file string) ([]plugin.Source, error) {
	f, err := pipeline.Parse(file, pipeline.ParseOptions{Env: os.LookupEnv, NoStages: true})
	if err != nil {
		return nil, err
	}
	var all []plugin.Source
	for _, s := range f.PluginSources() {
		source := Source(s)
		source.Origin = file
		all = append(all, source)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s names no plugins", file)
	}
	return all, nil
}

// errNoPlugin says that a path holds nothing that can be loaded.
var errNoPlugin = errors.New("it is no plugin")

// at finds what a path holds: a folder with plugin.yaml or a Go program, a
// module, a script, or a program. The sources of the last have no key.
func at(path string) ([]plugin.Source, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return inFolder(path)
	}
	switch ext := filepath.Ext(path); {
	case ext == ".yaml" || ext == ".yml":
		return manifestOf(path)
	case ext == ".wasm":
		return []plugin.Source{{Wasm: path}}, nil
	case ext == ".py" && info.Mode()&0o111 == 0:
		return []plugin.Source{{Exec: []string{"python3", path}}}, nil
	case isScript(path):
		return []plugin.Source{{Exec: []string{path}}}, nil
	case info.Mode()&0o111 != 0:
		return []plugin.Source{{Process: []string{path}}}, nil
	}
	return nil, fmt.Errorf("%s: %w: want a folder, a .wasm, .py or .yaml file, or a program that may be run", path, errNoPlugin)
}

func inFolder(dir string) ([]plugin.Source, error) {
	file := filepath.Join(dir, manifest)
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		return manifestOf(file)
	}
	goFiles, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(goFiles, func(f string) bool { return !strings.HasSuffix(f, "_test.go") }) {
		return []plugin.Source{{ProcessGo: dir}}, nil
	}
	return nil, fmt.Errorf("%s: %w: want a %s or a Go program in it; penstock plugin new writes such a folder", dir, errNoPlugin, manifest)
}

func isScript(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	start := make([]byte, 2)
	n, _ := f.Read(start)
	return string(start[:n]) == "#!"
}
