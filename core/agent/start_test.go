package agent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestStartErrors(t *testing.T) {
	bin := t.TempDir()
	put := func(name, data string, mode fs.FileMode) string {
		path := filepath.Join(bin, name)
		require.NoError(t, os.WriteFile(path, []byte(data), mode))
		return path
	}
	self, err := os.ReadFile(os.Args[0])
	require.NoError(t, err)
	foreign := append([]byte(nil), self[:4096]...)
	foreign[18], foreign[19] = 243, 0 // RISC-V, or else not this machine
	put("norun", "#!/bin/sh\n", 0o644)
	put("foreign", string(foreign), 0o755)
	put("windows.exe", "MZ\x90\x00", 0o755)
	put("noline", "echo hello\n", 0o755)
	put("empty", "", 0o755)
	put("lost", "#!/no/such/interpreter -x\n", 0o755)
	put("crlf", "#!/bin/sh\r\nexit 0\r\n", 0o755)
	require.NoError(t, os.Mkdir(filepath.Join(bin, "folder"), 0o755))
	path := "PATH=" + bin + ":relative"

	tests := []struct {
		name   string
		argv   []string
		env    string
		dir    string
		reason Reason
		says   []string
	}{
		{name: "missing", argv: []string{"clod"}, env: path, reason: NotFound, says: []string{`"clod"`, bin}},
		{name: "missing path", argv: []string{"./clod"}, env: path, reason: NotFound, says: []string{"/clod"}},
		{name: "no PATH", argv: []string{"sh"}, env: "A=1", reason: NotFound, says: []string{"no PATH"}},
		{name: "no run bit", argv: []string{"norun"}, env: path, reason: NotExecutable, says: []string{"no run bit", "chmod +x"}},
		{name: "folder", argv: []string{bin + "/folder"}, env: path, reason: NotExecutable, says: []string{"folder"}},
		{name: "other machine", argv: []string{"foreign"}, env: path, reason: WrongArchitecture, says: []string{"EM_RISCV"}},
		{name: "windows", argv: []string{"windows.exe"}, env: path, reason: WrongArchitecture, says: []string{"Windows"}},
		{name: "no line", argv: []string{"noline"}, env: path, reason: NotAProgram, says: []string{"#!"}},
		{name: "empty", argv: []string{"empty"}, env: path, reason: NotAProgram, says: []string{"empty"}},
		{name: "interpreter", argv: []string{"lost"}, env: path, reason: NoInterpreter, says: []string{"/no/such/interpreter"}},
		{name: "windows line ends", argv: []string{"crlf"}, env: path, reason: NoInterpreter, says: []string{"Windows line ends"}},
		{name: "too long", argv: []string{"/bin/sh", strings.Repeat("x", 1<<20)}, reason: TooLong, says: []string{"stdin"}},
		{name: "no dir", argv: []string{"/bin/sh"}, dir: bin + "/gone", reason: BadDir, says: []string{"/gone"}},
		{name: "no argv", reason: Failed, says: []string{"argv is empty"}},
		{name: "zero byte", argv: []string{"/bin/sh", "a\x00b"}, reason: Failed, says: []string{"zero byte"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := Spec{Argv: test.argv, Env: []string{test.env}, Dir: test.dir}
			if s.Dir == "" {
				s.Dir = t.TempDir()
			}
			temp := t.TempDir()
			t.Setenv("TMPDIR", temp)
			e, err := runner("").Run(t.Context(), s)
			require.Nil(t, e)
			var start *StartError
			require.ErrorAs(t, err, &start)
			require.Equal(t, test.reason, start.Reason, "%v", err)
			for _, text := range test.says {
				require.ErrorContains(t, err, text)
			}
			left, err := os.ReadDir(temp)
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

// A program is found in the PATH of the agent, never in that of the host.
func TestProgramIsFoundInTheAgentsPath(t *testing.T) {
	bin := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(bin, "only-here"), []byte("#!/bin/sh\necho \"$0 $1\"\n"), 0o755))
	s := job(t, "")
	s.Argv, s.Env = []string{"only-here", "x"}, []string{"PATH=/nowhere:" + bin + ":/usr/bin:/bin"}
	e := run1(t, runner(""), s)
	require.Equal(t, bin+"/only-here x\n", string(e.Stdout))

	require.NoError(t, os.WriteFile(filepath.Join(s.Dir, "local"), []byte("#!/bin/sh\necho local\n"), 0o755))
	s.Argv = []string{"./local"}
	require.Equal(t, "local\n", string(run1(t, runner(""), s).Stdout))
}

// What agents would not find, or could not start, is told before they are.
func TestCheckProgram(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), mode))
		return path
	}
	t.Setenv("PATH", dir+string(filepath.ListSeparator)+"relative")
	good := file("good", "#!/bin/sh\n", 0o700)
	for name, want := range map[string]Reason{
		"penstock": "", "good": "", good: "",
		"nowhere": NotFound, filepath.Join(dir, "nowhere"): NotFound, filepath.Join(good, "x"): NotFound,
		file("plain", "#!/bin/sh\n", 0o600): NotExecutable, dir: NotExecutable,
		file("orphan", "#!/no/such/interpreter -x\n", 0o700): NoInterpreter,
		file("windows", "#!/bin/sh\r\n", 0o700):              NoInterpreter,
	} {
		t.Run(filepath.Base(name), func(t *testing.T) {
			err := CheckProgram(name)
			assert.Equal(t, want != "", Permanent(err))
			if want == "" {
				require.NoError(t, err)
				return
			}
			var e *StartError
			require.ErrorAs(t, err, &e)
			assert.Equal(t, want, e.Reason)
		})
	}
	assert.ErrorIs(t, CheckProgram("nowhere"), fs.ErrNotExist)
	assert.False(t, Permanent(errors.New("no memory")))
	assert.False(t, Permanent(&StartError{Reason: Failed}))
}
