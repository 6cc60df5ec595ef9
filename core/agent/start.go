package agent

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/penstock-dev/penstock/core/agent/sandbox"
	"github.com/penstock-dev/penstock/core/shell"
)

// Reason says why a program could not be started.
type Reason string

// The reasons of a StartError.
const (
	NotFound          Reason = "not found"
	NotExecutable     Reason = "not executable"
	WrongArchitecture Reason = "wrong architecture"
	NotAProgram       Reason = "not a program"
	NoInterpreter     Reason = "no interpreter"
	TooLong           Reason = "arguments too long"
	BadDir            Reason = "bad working folder"
	NotInImage        Reason = "not in the image"
	Failed            Reason = "failed"
)

// StartError says that a program could not be started.
type StartError struct {
	Argv0  string // as asked for
	Path   string // the file that was found, if any
	Search string // the PATH that was searched, if it was
	Reason Reason
	Detail string // completes the reason: an interpreter, an architecture
	Err    error
}

func (e *StartError) Unwrap() error { return e.Err }

func (e *StartError) Error() string {
	at := e.Path
	if at == "" {
		at = e.Argv0
	}
	switch e.Reason {
	case NotFound:
		if e.Search != "" {
			return fmt.Sprintf("no program %q in PATH (%s)", e.Argv0, e.Search)
		}
		if e.Path == "" {
			return fmt.Sprintf("no program %q, and no PATH to search", e.Argv0)
		}
		return fmt.Sprintf("no program %q: %s does not exist", e.Argv0, e.Path)
	case NotInImage:
		return fmt.Sprintf("no program %q in the container of %s: install it in the image, or show its folder with read:", e.Argv0, e.Detail)
	case NotExecutable:
		return fmt.Sprintf("%s is not executable (%s)", at, e.Detail)
	case WrongArchitecture:
		return fmt.Sprintf("%s is made for another machine: %s", at, e.Detail)
	case NotAProgram:
		return fmt.Sprintf("%s is not a program: %s", at, e.Detail)
	case NoInterpreter:
		return fmt.Sprintf("%s needs %s to run, which does not exist", at, e.Detail)
	case TooLong:
		return fmt.Sprintf("%s: arguments and environment are too long for the system; give long text on stdin or in a file", at)
	case BadDir:
		return fmt.Sprintf("start %s in %s: %v", e.Argv0, e.Detail, e.Err)
	}
	return fmt.Sprintf("start %s: %v", at, e.Err)
}

// check finds the program of a spec and refuses what the system would refuse
// with less to say.
func check(s *Spec) (path string, err error) {
	if len(s.Argv) == 0 || s.Argv[0] == "" {
		return "", &StartError{Reason: Failed, Err: errors.New("argv is empty")}
	}
	argv0 := s.Argv[0]
	for _, text := range append(append([]string{s.Dir}, s.Argv...), s.Env...) {
		if strings.IndexByte(text, 0) >= 0 {
			return "", &StartError{Argv0: argv0, Reason: Failed, Err: errors.New("an argument or variable holds a zero byte")}
		}
	}
	info, err := os.Stat(s.Dir)
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	if err == nil {
		err = unix.Access(s.Dir, unix.X_OK)
	}
	if err != nil {
		return "", &StartError{Argv0: argv0, Reason: BadDir, Detail: s.Dir, Err: err}
	}
	if sandbox.Contains(s.Sandbox) {
		return "", nil // it is looked for inside
	}
	return look(argv0, s.Dir, lookup(s.Env, "PATH"))
}

// CheckProgram says, as a *StartError, why agents can't start a program: an
// absolute path, or a name that is looked for in the PATH that they get. Their
// `penstock` is always there.
func CheckProgram(name string) error {
	if name == "penstock" {
		return nil
	}
	path, err := look(name, "/", lookup(BaseEnv(EnvOptions{}), "PATH"))
	if err != nil {
		return err
	}
	i := interpreterOf(path)
	if filepath.IsAbs(i) {
		if _, err := os.Stat(i); !errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	if i == "" {
		return nil
	}
	return &StartError{Argv0: name, Path: path, Reason: NoInterpreter, Detail: i}
}

// Permanent reports whether a program can't be started now nor later: another
// try would end as this one did.
func Permanent(err error) bool {
	var e *StartError
	return errors.As(err, &e) && e.Reason != Failed && e.Reason != BadDir
}

func lookup(env []string, name string) string {
	value := ""
	for _, kv := range env {
		if k, v, ok := strings.Cut(kv, "="); ok && k == name {
			value = v
		}
	}
	return value
}

// look finds a program as execvp would, save that relative folders of PATH
// are never searched.
func look(argv0, dir, search string) (string, error) {
	if strings.Contains(argv0, "/") {
		path := argv0
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		if err := usable(argv0, path); err != nil {
			return "", err
		}
		return path, nil
	}
	var refused *StartError
	for _, d := range filepath.SplitList(search) {
		if !filepath.IsAbs(d) {
			continue
		}
		path := filepath.Join(d, argv0)
		err := usable(argv0, path)
		if err == nil {
			return path, nil
		}
		if refused == nil && err.Reason != NotFound {
			refused = err
		}
	}
	if refused != nil {
		return "", refused
	}
	return "", &StartError{Argv0: argv0, Search: search, Reason: NotFound, Err: fs.ErrNotExist}
}

func usable(argv0, path string) *StartError {
	e := &StartError{Argv0: argv0, Path: path, Reason: NotExecutable}
	info, err := os.Stat(path)
	switch {
	case err != nil && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)):
		e.Reason, e.Err = NotFound, err
	case err != nil:
		e.Detail, e.Err = "it can't be reached: "+err.Error(), err
	case info.IsDir():
		e.Detail, e.Err = "it is a folder", syscall.EISDIR
	case !info.Mode().IsRegular():
		e.Detail, e.Err = "it is no regular file", syscall.EACCES
	case info.Mode()&0o111 == 0:
		e.Detail, e.Err = "no run bit is set: chmod +x "+shell.Quote(path), syscall.EACCES
	default:
		err := unix.Access(path, unix.X_OK)
		if err == nil {
			return nil
		}
		e.Detail, e.Err = "this user may not run it", err
	}
	return e
}

// explain makes a StartError of what exec answered.
func explain(argv0, path string, errno syscall.Errno) *StartError {
	e := &StartError{Argv0: argv0, Path: path, Reason: Failed, Err: errno}
	switch errno {
	case syscall.E2BIG:
		e.Reason = TooLong
	case syscall.EACCES:
		e.Reason, e.Detail = NotExecutable, "the system refuses it: its folder is mounted noexec, or its interpreter has no run bit"
	case syscall.ENOENT:
		if interpreter := interpreterOf(path); interpreter != "" {
			e.Reason, e.Detail = NoInterpreter, interpreter
		}
	case syscall.ENOEXEC:
		e.Reason, e.Detail = kindOf(path)
	}
	return e
}

// interpreterOf returns the program that the system starts in order to run
// the file: that of its #! line, or the dynamic loader.
func interpreterOf(path string) string {
	if first, ok := bytes.CutPrefix(head(path), []byte("#!")); ok {
		line, _, _ := bytes.Cut(first, []byte("\n"))
		fields := bytes.Fields(line)
		if len(fields) == 0 {
			return ""
		}
		if bytes.HasSuffix(line, []byte("\r")) {
			return fmt.Sprintf("%q (the file has Windows line ends)", bytes.TrimLeft(line, " \t"))
		}
		return string(fields[0])
	}
	f, err := elf.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP && p.Filesz < 4096 {
			data, _ := io.ReadAll(p.Open())
			return strings.TrimRight(string(data), "\x00")
		}
	}
	return ""
}

// kindOf says what a file is that the system can't run.
func kindOf(path string) (Reason, string) {
	b := head(path)
	switch {
	case len(b) == 0:
		return NotAProgram, "it is empty"
	case bytes.HasPrefix(b, []byte(elf.ELFMAG)):
		if len(b) < 20 {
			return NotAProgram, "its ELF header is cut"
		}
		machine := elf.Machine(binary.LittleEndian.Uint16(b[18:]))
		if elf.Data(b[elf.EI_DATA]) == elf.ELFDATA2MSB {
			machine = elf.Machine(binary.BigEndian.Uint16(b[18:]))
		}
		return WrongArchitecture, fmt.Sprintf("%s, this one is %s/%s", machine, runtime.GOOS, runtime.GOARCH)
	case bytes.HasPrefix(b, []byte("MZ")):
		return WrongArchitecture, "it is a Windows program"
	case isMachO(b):
		return WrongArchitecture, "it is a macOS program"
	case bytes.HasPrefix(b, []byte("#!")):
		return NotAProgram, "its #! line names no interpreter"
	}
	return NotAProgram, "it has no #! line"
}

func isMachO(b []byte) bool {
	for _, magic := range []string{"\xcf\xfa\xed\xfe", "\xce\xfa\xed\xfe", "\xca\xfe\xba\xbe"} {
		if bytes.HasPrefix(b, []byte(magic)) {
			return true
		}
	}
	return false
}

func head(path string) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	b := make([]byte, 256)
	n, _ := io.ReadFull(f, b)
	return b[:n]
}
