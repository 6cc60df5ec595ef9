// Package sdk carries the source of the packages below it, so that the
// penstock binary can write it beside a plugin: a new plugin then builds
// without this project being published or checked out anywhere.
//
// What never enters: tests and their data, and anything that a plugin runs.
package sdk

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// Module is the path of the module that the sdk belongs to.
const Module = "github.com/penstock-dev/penstock"

//go:embed */*.go */*/*.go proto/plugin.proto python/penstock.py python/penstock_grpc.py c/penstock.h assemblyscript/penstock.ts module/*.txt
var files embed.FS

// File is one file of the sdk by its path below sdk/, such as
// python/penstock.py. It panics on a file that there isn't, as the name is
// always a constant.
func File(name string) []byte {
	data, err := files.ReadFile(name)
	if err != nil {
		panic(fmt.Sprintf("sdk: %v", err))
	}
	return data
}

// Sum is the go.sum of a module that needs nothing but the sdk and its tests.
func Sum() []byte { return File("module/sum.txt") }

// Requires are the require directives of the sdk, for the go.mod of a module
// that uses it. With indirect all are marked so, as they are to that module.
func Requires(indirect bool) []byte {
	all := File("module/require.txt")
	if !indirect {
		return all
	}
	all = bytes.ReplaceAll(all, []byte(" // indirect"), nil)
	return direct.ReplaceAll(all, []byte("$1 // indirect"))
}

var direct = regexp.MustCompile(`(?m)^(\t\S+ v\S+)$`)

// Write writes the sdk as a module of its own into a folder, which it makes:
// go.mod, go.sum, and sdk/ without tests.
func Write(dir string) error {
	head := "module " + Module + "\n\ngo 1.26.0\n\n"
	if err := write(filepath.Join(dir, "go.mod"), append([]byte(head), Requires(false)...)); err != nil {
		return err
	}
	if err := write(filepath.Join(dir, "go.sum"), Sum()); err != nil {
		return err
	}
	return fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") || strings.Contains(name, "testdata/") {
			return nil
		}
		return write(filepath.Join(dir, "sdk", filepath.FromSlash(name)), File(name))
	})
}

func write(name string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return fmt.Errorf("write the sdk: %w", err)
	}
	if err := os.WriteFile(name, data, 0o644); err != nil {
		return fmt.Errorf("write the sdk: %w", err)
	}
	return nil
}
