package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSandboxes runs a prying program and an agent in each sandbox that this
// machine has. The program finds none of the tasks, of earlier runs and of the
// user's files, changes nothing outside, and reaches no other port; the agent
// does its work all the same.
func TestSandboxes(t *testing.T) {
	for _, name := range []string{"landlock", "bwrap"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "exact"))))
			secret := filepath.Join(t.TempDir(), "secret")
			require.NoError(t, os.WriteFile(secret, []byte("s3cret-of-the-user"), 0o600))
			opened := filepath.Join(t.TempDir(), "opened")
			require.NoError(t, os.WriteFile(opened, []byte("for all to read"), 0o600))
			listener, err := net.Listen("tcp4", "127.0.0.1:0")
			require.NoError(t, err)
			defer listener.Close()
			pry := strings.Join([]string{
				"cat " + secret, "cat " + dir + "/pipeline.yaml", "ls " + dir + "/earlier", "ls " + dir + "/out/trace",
				"echo x > " + secret + ".2", "echo x > " + dir + "/planted",
				fmt.Sprintf("echo hi > /dev/tcp/127.0.0.1/%d && echo connected", listener.Addr().(*net.TCPAddr).Port),
				"cat " + opened, "echo mine > here && cat here", "true",
			}, "; ")
			file, err := os.ReadFile(filepath.Join(dir, "pipeline.yaml"))
			require.NoError(t, err)
			text := strings.Replace(string(file), "stages:\n", "sandbox: { use: "+name+", read: ["+opened+"] }\nstages:\n  - { id: pry, run: "+jsonOf(t, []string{"bash", "-c", pry})+" }\n", 1)
			text = strings.Replace(text, "samples: 2", "samples: 1", 1)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "pipeline.yaml"), []byte(text), 0o600))
			require.NoError(t, os.Mkdir(filepath.Join(dir, "earlier"), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "earlier", "rollouts.jsonl"), []byte("{}\n"), 0o600))

			out, code := penstock(t, dir, "run", "pipeline.yaml", "--out", "out")
			if code == 2 && strings.Contains(out, "[sandbox]") {
				t.Skip(out)
			}
			require.Equal(t, 0, code, out)
			said, err := os.ReadFile(filepath.Join(dir, "out", "artifacts", "sum~0", "pry", "1.1", "stdout"))
			require.NoError(t, err)
			assert.Equal(t, "for all to readmine\n", string(said))
			assert.NoFileExists(t, secret+".2")
			assert.NoFileExists(t, filepath.Join(dir, "planted"))
			for _, reward := range column(t, filepath.Join(dir, "out", "rollouts.jsonl"), "reward") {
				assert.Equal(t, "1", reward)
			}
			var run struct {
				Sandboxes map[string]string
			}
			b, err := os.ReadFile(filepath.Join(dir, "out", "run.json"))
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(b, &run))
			assert.Contains(t, run.Sandboxes["solve"], name)
			assert.Contains(t, run.Sandboxes["pry"], "files")
			assert.Contains(t, out, "sandbox="+name)
		})
	}
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return strings.NewReplacer(`\u003e`, ">", `\u0026`, "&").Replace(string(b))
}

// TestRunFolderIsHiddenInSandboxes: a stage that may read, and even write, the
// project finds nothing in the folder of its own run, which is below it.
func TestRunFolderIsHiddenInSandboxes(t *testing.T) {
	for _, name := range []string{"landlock", "bwrap"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			look := `cat $0/mine; for d in $0/runs/*; do ls $d; cat $d/gateway.json $d/run.json; echo x >> $d/events.jsonl; done; echo made > made; cat made; echo y > $HOME/y; cat $HOME/y; true`
			require.NoError(t, os.WriteFile(filepath.Join(dir, "mine"), []byte("of the project\n"), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "pipeline.yaml"), []byte(`penstock: v1
tasks: { inline: [{ id: a }] }
stages:
  - id: look
    run: `+jsonOf(t, []string{"sh", "-c", look, dir})+`
    sandbox: { use: `+name+`, read: [`+dir+`], write: [`+dir+`] }
`), 0o600))
			out, code := penstock(t, dir, "run", "pipeline.yaml")
			if code == 2 && strings.Contains(out, "[sandbox]") {
				t.Skip(out)
			}
			require.Equal(t, 0, code, out)
			file, err := os.ReadFile(filepath.Join(dir, "runs", "latest", "run.json"))
			require.NoError(t, err)
			if !strings.Contains(string(file), `"hidden": true`) {
				t.Skip("this machine allows no namespaces")
			}
			said, err := os.ReadFile(filepath.Join(dir, "runs", "latest", "artifacts", "a~0", "look", "1.1", "stdout"))
			require.NoError(t, err)
			assert.NotContains(t, string(said), "operator_token")
			assert.True(t, strings.HasPrefix(string(said), "of the project\n"), "%s", said)
			assert.True(t, strings.HasSuffix(string(said), "made\ny\n"), "%s", said)
			assert.Empty(t, strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(string(said), "of the project\n"), "made\ny\n"), "work\n", ""), "the way to its workspace alone")
			events, err := os.ReadFile(filepath.Join(dir, "runs", "latest", "events.jsonl"))
			require.NoError(t, err)
			assert.NotContains(t, string(events), "\nx\n")
		})
	}
}
