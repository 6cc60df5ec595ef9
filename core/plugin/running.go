package plugin

import (
	"bufio"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"

	"github.com/penstock-dev/penstock/core/shell"
	"github.com/penstock-dev/penstock/core/temp"
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/proto"
)

// startTimeout bounds a start up to the handshake. An interpreter that loads
// much, on a busy machine, takes seconds. Only a test changes it.
var startTimeout = 30 * time.Second

const (
	openTimeout  = 30 * time.Second
	closeTimeout = 50 * time.Millisecond
	maxSocketDir = 45 // bytes; with what go-plugin adds, a socket's path may have 107
)

// running is one life of a plugin process.
type running struct {
	client *goplugin.Client
	group  *group
	dir    *temp.Folder // holds its socket
	plugin proto.PluginClient
	conn   grpc.ClientConnInterface
	watch  context.CancelFunc
	lost   chan struct{} // closed when the program is gone
	files  bool          // it reads large documents from files

	opening sync.Mutex
	handles sync.Map // handle -> true
	ended   sync.Once
}

// glue is the client's side of the one entry of the plugin set.
type glue struct {
	goplugin.NetRPCUnsupportedPlugin
}

func (glue) GRPCServer(*goplugin.GRPCBroker, *grpc.Server) error {
	return errors.New("this is the host's side")
}

func (glue) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return conn, nil
}

// start starts a program, shakes hands and opens Watch.
func start(ctx context.Context, argv, env []string, log *slog.Logger) (*running, error) {
	dir, err := socketFolder()
	if err != nil {
		return nil, err
	}
	g := newGroup(argv, env)
	lines := newLineLog(log)
	client := goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig: goplugin.HandshakeConfig{
			ProtocolVersion: proto.Version, MagicCookieKey: proto.CookieKey, MagicCookieValue: proto.CookieValue,
		},
		VersionedPlugins: map[int]goplugin.PluginSet{proto.Version: {proto.Name: glue{}}},
		RunnerFunc: func(_ hclog.Logger, cmd *exec.Cmd, _ string) (runner.Runner, error) {
			return g, g.prepare(cmd.Env)
		},
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		Logger:           hclog.NewNullLogger(),
		Stderr:           lines,
		SyncStdout:       newLineLog(log),
		SyncStderr:       newLineLog(log),
		StartTimeout:     startTimeout,
		SkipHostEnv:      true,
		UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: dir.Path},
		GRPCDialOptions: []grpc.DialOption{grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(proto.MaxMessage), grpc.MaxCallSendMsgSize(proto.MaxMessage))},
	})
	g.lines = lines
	run := &running{client: client, group: g, dir: dir, lost: make(chan struct{})}
	if err := run.connect(ctx); err != nil {
		run.kill()
		return nil, g.explain(err)
	}
	return run, nil
}

// connect waits for the handshake, which go-plugin bounds, and opens Watch
// before anything else.
func (r *running) connect(ctx context.Context) error {
	stop := context.AfterFunc(ctx, r.group.kill)
	defer stop()
	rpc, err := r.client.Client()
	if err != nil {
		return err
	}
	conn, err := rpc.Dispense(proto.Name)
	if err != nil {
		return err
	}
	r.conn = conn.(*grpc.ClientConn)
	r.plugin = proto.NewPluginClient(r.conn)
	watching, cancel := context.WithCancel(context.Background())
	r.watch = cancel
	stream, err := r.plugin.Watch(watching, &proto.WatchRequest{})
	var first *proto.WatchEvent
	if err == nil {
		first, err = stream.Recv()
	}
	r.files = slices.Contains(first.GetCapabilities(), proto.CapabilityFiles)
	if err != nil {
		close(r.lost)
		return fmt.Errorf("watch: %w", err)
	}
	go func() {
		defer close(r.lost)
		for {
			if _, err := stream.Recv(); err != nil {
				return
			}
		}
	}()
	return nil
}

// socketFolder makes a short folder for the socket, which only this user can
// enter.
func socketFolder() (*temp.Folder, error) {
	base := os.TempDir()
	if len(base) > maxSocketDir {
		base = "/tmp"
	}
	dir, err := temp.Make(base, temp.Plugin)
	if err != nil {
		return nil, fmt.Errorf("make a folder for the plugin's socket: %w", err)
	}
	return dir, nil
}

// open opens a handle unless it is open. The error that the component itself
// gave is the first result.
func (r *running) open(ctx context.Context, q *proto.OpenRequest) (*proto.Error, error) {
	if _, ok := r.handles.Load(q.Handle); ok {
		return nil, nil
	}
	r.opening.Lock()
	defer r.opening.Unlock()
	if _, ok := r.handles.Load(q.Handle); ok {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	reply, err := r.plugin.Open(ctx, q)
	if err != nil {
		return nil, err
	}
	if reply.Error == nil {
		r.handles.Store(q.Handle, true)
	}
	return reply.Error, nil
}

func (r *running) closeHandle(ctx context.Context, handle string) {
	if _, ok := r.handles.LoadAndDelete(handle); !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	_, _ = r.plugin.Close(ctx, &proto.CloseRequest{Handle: handle}) // it is killed in any case
}

// call is the unary call of a kind's service.
func (r *running) call(kind string) func(context.Context, *proto.CallRequest, ...grpc.CallOption) (*proto.CallReply, error) {
	switch kind {
	case component.Judger:
		return proto.NewJudgerClient(r.conn).Call
	case component.Invoker:
		return proto.NewInvokerClient(r.conn).Call
	case component.Format:
		return proto.NewFormatClient(r.conn).Call
	default:
		return proto.NewHookClient(r.conn).Call
	}
}

// stop closes what is open, within 50 ms, and ends the program.
func (r *running) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	r.handles.Range(func(handle, _ any) bool {
		r.closeHandle(ctx, handle.(string))
		return ctx.Err() == nil
	})
	r.kill()
}

// kill ends the process group at once and gives back what go-plugin holds.
func (r *running) kill() {
	r.ended.Do(func() {
		r.group.kill()
		if r.watch != nil {
			r.watch()
		}
		r.client.Kill()
		_ = r.dir.Remove()
	})
}

// bury waits for the end of a program that seems dead, so that its last words
// are known, and cleans up.
func (r *running) bury() string {
	select {
	case <-r.group.drained:
	case <-time.After(200 * time.Millisecond):
	}
	r.kill()
	return r.group.lines.tail()
}

func (r *running) gone() <-chan struct{} { return r.lost }

// exit says how the program ended.
func (r *running) exit() string { return r.group.state() }

var handshake = regexp.MustCompile(`^\d+\|\d+\|`)

// explain says why a program could not be started, and what to do.
func (g *group) explain(err error) error {
	path := g.argv[0]
	tail := g.lines.tail()
	if tail != "" {
		tail = "; it wrote: " + tail
	}
	first := g.firstLine()
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s may not be run: chmod +x %s", path, shell.Quote(path))
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s is missing, or the interpreter that it names", path)
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("%s can't run on %s/%s%s", path, runtime.GOOS, runtime.GOARCH, machine(path))
	case strings.Contains(err.Error(), "ncompatible"):
		return fmt.Errorf("it speaks plugin protocol %s, this penstock speaks %d: rebuild it with the sdk of this version", version(first), proto.Version)
	case strings.Contains(err.Error(), "nsupported plugin protocol"):
		return fmt.Errorf("it speaks %s, and penstock speaks gRPC alone: its main must be serve.Main()", protocol(first))
	case strings.HasPrefix(err.Error(), "timeout"):
		return fmt.Errorf("it did not finish the handshake within %v: its main must be serve.Main()%s", startTimeout, tail)
	case first != "" && !handshake.MatchString(first):
		return fmt.Errorf("it printed %q before the handshake: a plugin's standard output is the protocol, log to standard error", first)
	case first == "":
		return fmt.Errorf("it ended before the handshake (%s): its main must be serve.Main()%s", g.state(), tail)
	default:
		return fmt.Errorf("start: %w%s", err, tail)
	}
}

// version is the plugin's protocol in the first line of its handshake.
func version(line string) string {
	if parts := strings.Split(line, "|"); len(parts) > 1 {
		return parts[1]
	}
	return "of another kind"
}

// protocol is the last word of the handshake.
func protocol(line string) string {
	if parts := strings.Split(line, "|"); len(parts) > 4 {
		return parts[4]
	}
	return "another protocol"
}

// machine says what an executable was built for, as far as can be told.
func machine(path string) string {
	f, err := elf.Open(path)
	if err != nil {
		return ": it is no program of this system, nor a script that starts with #!"
	}
	defer f.Close()
	return fmt.Sprintf(": it was built for %v", f.Machine)
}

// firstLine is the first line of standard output, cut.
func (g *group) firstLine() string {
	s := bufio.NewScanner(strings.NewReader(g.head.String()))
	if !s.Scan() {
		return ""
	}
	line := strings.TrimSpace(s.Text())
	if len(line) > 200 {
		line = line[:200] + "..."
	}
	return line
}
