//go:build !wasip1

// Package serve runs the components that a program registers as a plugin
// process:
//
//	func init() { judger.Register("exact", New) }
//	func main() { serve.Main() }
//
// The same file builds as a WASM module, where Main does nothing: a module's
// main never runs, and the package of each kind exports its functions.
package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/proto"
)

// watchTimeout is how long a plugin waits for its host to open Watch.
const watchTimeout = 30 * time.Second

// Main serves every registered component until the host is gone. It does not
// return. Logs go to standard error as JSON through slog's default logger.
func Main() {
	if len(os.Args) == 2 && os.Args[1] == "--describe" {
		os.Exit(describe(os.Stdout))
	}
	if os.Getenv(proto.CookieKey) != proto.CookieValue {
		usage(os.Stderr)
		os.Exit(2)
	}
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})))
	s := newServer(component.Registered(), endProcess)
	s.expectWatch(watchTimeout)
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: goplugin.HandshakeConfig{
			ProtocolVersion: proto.Version, MagicCookieKey: proto.CookieKey, MagicCookieValue: proto.CookieValue,
		},
		VersionedPlugins: map[int]goplugin.PluginSet{proto.Version: {proto.Name: glue{server: s}}},
		GRPCServer: func(o []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(o, grpc.MaxRecvMsgSize(proto.MaxMessage), grpc.MaxSendMsgSize(proto.MaxMessage))...)
		},
		Logger: hclog.New(&hclog.LoggerOptions{Name: "serve", Level: hclog.Error, Output: os.Stderr}),
	})
}

// Descriptions returns what the registered components say of themselves, as
// every transport carries it: {"components": [...]}.
func Descriptions(components []component.Component) ([]byte, error) {
	all := make([]component.Descriptor, 0, len(components))
	for _, c := range components {
		all = append(all, c.Descriptor)
	}
	return json.Marshal(struct {
		Components []component.Descriptor `json:"components"`
	}{all})
}

func describe(w io.Writer) int {
	text, err := Descriptions(component.Registered())
	if err == nil {
		_, err = fmt.Fprintf(w, "%s\n", text)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func usage(w io.Writer) {
	fmt.Fprintf(w, "This program is a penstock plugin, which penstock starts by itself. It holds:\n\n")
	components := component.Registered()
	for _, c := range components {
		fmt.Fprintf(w, "  %-24s %s\n", c.ID(), c.Summary)
	}
	name := "judger/NAME"
	if len(components) > 0 {
		name = components[0].ID()
	}
	fmt.Fprintf(w, "\nUse it in a pipeline file:\n\n  plugins:\n    %s: { process: %s }\n\n"+
		"Run it with --describe to see its schemas as JSON.\n", name, os.Args[0])
}

// glue is the plugin's side of the one entry of the plugin set.
type glue struct {
	goplugin.NetRPCUnsupportedPlugin
	server *server
}

func (g glue) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	g.server.register(s)
	return nil
}

func (glue) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, fmt.Errorf("this is the plugin's side")
}

// ending makes sure that a process ends once.
type ending struct {
	once sync.Once
	end  func()
}

func (e *ending) now() { e.once.Do(e.end) }
