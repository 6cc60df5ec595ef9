package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// files calls f with each Go file of a folder and of those in it, in the form
// that a parser reads.
func files(t *testing.T, dir string, f func(path string, file *ast.File)) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || path != root && strings.HasPrefix(d.Name(), ".")):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		f(strings.TrimPrefix(path, root+"/"), file)
		return nil
	})
	require.NoError(t, err)
}

// calls are the functions of packages that a piece of a file names, as
// package.Function; of those that it gives another name, by that name.
func calls(n ast.Node) (out []string) {
	ast.Inspect(n, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if of, ok := s.X.(*ast.Ident); ok && of.Obj == nil {
				out = append(out, of.Name+"."+s.Sel.Name)
			}
		}
		return true
	})
	return out
}

// TestEachRequirementHasATest: by the name of a test or of a script.
func TestEachRequirementHasATest(t *testing.T) {
	var names []string
	files(t, ".", func(path string, file *ast.File) {
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && strings.HasSuffix(path, "_test.go") && f.Recv == nil {
				if name, ok := strings.CutPrefix(f.Name.Name, "Test"); ok {
					names = append(names, name)
				}
			}
		}
	})
	scripts, err := filepath.Glob(filepath.Join(root, "testdata", "requirements", "*.txtar"))
	require.NoError(t, err)
	for _, path := range scripts {
		names = append(names, filepath.Base(path))
	}
	var want []string
	for kind, numbers := range map[string][2]int{"R": {1, 23}, "L": {1, 16}, "A": {1, 15}} {
		for n := numbers[0]; n <= numbers[1]; n++ {
			want = append(want, fmt.Sprint(kind, n))
		}
	}
	want = append(want, "Seed10a_?[Cc]ase36", "Seed10a_?[Cc]ase38")
	for _, id := range want {
		named := regexp.MustCompile("^(Fault)?" + id + "[^0-9]")
		assert.True(t, func() bool {
			for _, name := range names {
				if named.MatchString(name) {
					return true
				}
			}
			return false
		}(), "%s is no test's name", id)
	}
}

// TestR4_NothingSetsTheEnvironment: what a child gets is made for it, so that the
// program's own environment is the same whatever happens, a panic or a kill
// between two steps too.
func TestR4_NothingSetsTheEnvironment(t *testing.T) {
	for _, dir := range []string{".", "core", "sdk", "plugins", "hooks"} {
		files(t, dir, func(path string, file *ast.File) {
			if strings.HasSuffix(path, "_test.go") {
				return
			}
			for _, c := range calls(file) {
				assert.NotRegexp(t, `^(os|syscall|unix)\.(Setenv|Unsetenv|Clearenv)$`, c, path)
			}
		})
	}
}

// TestR19_InvokersAskTheHost: an invoker says what is to be done and reads what came
// of it. Programs, clocks, environments, connections and ids are the host's, so
// that a test gives it what it likes; `penstock dev claude` and `dev agent` take
// the place of the programs.
func TestR19_InvokersAskTheHost(t *testing.T) {
	files(t, "plugins/invokers", func(path string, file *ast.File) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		for _, i := range file.Imports {
			assert.NotRegexp(t, `^"(os/exec|net|net/http|math/rand.*|crypto/rand|syscall|.*/uuid|.*/ulid.*)"$`, i.Path.Value, path)
		}
		for _, c := range calls(file) {
			assert.NotRegexp(t, `^(os\.(Getenv|LookupEnv|Environ|StartProcess)|time\.(Now|Since|Until|Sleep|After|NewTimer|Tick))$`, c, path)
		}
	})
	text, code := penstock(t, root, "dev", "claude", "--help")
	require.Zero(t, code)
	assert.Contains(t, text, "with: { mode: subscription, command: [penstock, dev, claude, --script, /PATH/model.yaml], ... }")
}

// TestR21_LoadingAPluginDoesNothing: what runs before main is Register alone, which
// only notes; no variable of a package is made from outside of the program.
func TestR21_LoadingAPluginDoesNothing(t *testing.T) {
	inits := 0
	for _, dir := range []string{"plugins", "hooks"} {
		files(t, dir, func(path string, file *ast.File) {
			if strings.HasSuffix(path, "_test.go") {
				return
			}
			for _, d := range file.Decls {
				switch d := d.(type) {
				case *ast.FuncDecl:
					if d.Name.Name != "init" || d.Recv != nil {
						continue
					}
					inits++
					for _, s := range d.Body.List {
						call, ok := s.(*ast.ExprStmt)
						require.True(t, ok, path)
						assert.Regexp(t, `^[a-z]+\.Register(YAML)?$`, calls(call.X.(*ast.CallExpr).Fun)[0], path)
						assert.NotRegexp(t, `(^| )(os|exec|net|http|time)\.`, strings.Join(calls(call), " "), path)
					}
				case *ast.GenDecl:
					if d.Tok == token.VAR {
						assert.NotRegexp(t, `(^| )(os|exec|net|http)\.[A-Z]`, strings.Join(calls(d), " "), path)
					}
				}
			}
		})
	}
	assert.Greater(t, inits, 10)
}
