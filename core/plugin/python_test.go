package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/judger"
	"github.com/penstock-dev/penstock/sdk/proto"
	"github.com/penstock-dev/penstock/sdk/sdktest"
)

// grpcio is the environment in which Python finds grpcio: the machine's own,
// or what make deps has unpacked.
func grpcio(t *testing.T) []string {
	t.Helper()
	debian, err := filepath.Abs("../../.cache/debian/usr/lib")
	require.NoError(t, err)
	for _, env := range [][]string{noCache, append([]string{
		"PYTHONPATH=" + filepath.Join(debian, "python3", "dist-packages"), "LD_LIBRARY_PATH=" + filepath.Join(debian, "x86_64-linux-gnu"),
	}, noCache...)} {
		cmd := exec.CommandContext(t.Context(), "python3", "-c", "import grpc")
		cmd.Env = environ(env)
		if cmd.Run() == nil {
			return env
		}
	}
	t.Skip("there is no grpcio; make deps fetches it")
	return nil
}

// TestPythonAsAProcess: the same program as over exec, as a go-plugin process.
func TestPythonAsAProcess(t *testing.T) {
	source := Source{Key: "judger/tame", Process: python(t), Env: grpcio(t)}
	r, logged := load(t, source)
	sdktest.Judger(t, func(ctx context.Context, config json.RawMessage) (judger.Judger, error) {
		return r.Judger(ctx, "tame", config)
	}, []sdktest.Case{
		{Name: "equal", Request: `{"task":{"answer":"é"},"rollout":{"final_text":"é","tool_calls":[{},{}]}}`,
			Want: `{"reward":1,"components":{"calls":2},"explanation":"got é","status":"scored"}`},
		{Name: "config", Config: `{"ignore_case":true}`, Request: `{"task":{"answer":"A"},"rollout":{"final_text":"a"}}`,
			Want: `{"reward":1,"components":{"calls":0},"explanation":"got a","status":"scored"}`},
		{Name: "skip", Request: `{"rollout":{"final_text":"skip"}}`, Want: `{"reward":null,"explanation":"nothing to see","status":"skipped"}`},
		{Name: "exception", Request: `{"rollout":{"final_text":"error"}}`, Error: "plugin judger/tame: judge: ValueError: can't tell"},
		{Name: "refused config", Config: `{"weight":-1}`, Request: `{}`, Error: "/weight: is negative"},
		{Name: "large, by file", Request: `{"task":{"answer":"` + strings.Repeat("x", proto.MaxInline) + `"},"rollout":{"final_text":"a"}}`,
			Want: `{"reward":0,"components":{"calls":0},"explanation":"got a","status":"scored"}`},
	})
	_, err := open(t, r, "tame").Judge(t.Context(), judgeRequest(`{"rollout":{"final_text":"again"}}`))
	var e *component.Error
	require.ErrorAs(t, err, &e)
	assert.True(t, e.Retryable)
	assert.Eventually(t, func() bool { return strings.Contains(logged.String(), `msg="judging é" plugin=judger/tame`) }, time.Minute, 5*time.Millisecond)
}

// TestPythonAsAProcessDiesAndComesBack: killed in a call, and with the host's
// end of Watch.
func TestPythonAsAProcessDiesAndComesBack(t *testing.T) {
	r, _ := load(t, Source{Key: "judger/wild", Process: python(t), Env: grpcio(t)})
	j := open(t, r, "wild")
	_, err := ask(j, "crash")
	e := fails(t, err, Unavailable)
	assert.True(t, e.Retryable)
	v, err := ask(j, "")
	require.NoError(t, err)
	assert.InDelta(t, 1, *v.Reward, 0)

	run, err := j.(remoteJudger).instance.(*processInstance).ready(t.Context())
	require.NoError(t, err)
	var pid int
	_, err = fmt.Sscan(run.group.ID(), &pid)
	require.NoError(t, err)
	run.watch() // as the death of the host would
	gone(t, 15*time.Second, pid)
	require.NoError(t, r.Close(context.Background()))
}
