// Package component is what all kinds of plugin share: how one describes
// itself, the register that holds those of this program, and the one form,
// method and JSON document in and JSON out, in which every kind is called
// over every transport. Authors use the package of their kind (sdk/judger and
// so on), which calls this one.
package component

import (
	"context"
	"encoding/json"
	"fmt"
	"sort"
	"sync"

	"github.com/penstock-dev/penstock/sdk/doc"
)

// Protocol is the major version of the plugin contract.
const Protocol = 1

// The kinds of component.
const (
	Invoker   = "invoker"
	Judger    = "judger"
	Format    = "format"
	Hook      = "hook"
	Converter = "converter"
)

// Kinds lists every kind, in the order in which they are shown.
var Kinds = []string{Invoker, Judger, Format, Hook, Converter}

// Descriptor is what a component says of itself, without being opened. The
// schemas are JSON Schemas of an object; no property of Config is also one of
// Input.
type Descriptor struct {
	Kind     string          `json:"kind"`
	Name     string          `json:"name"`
	Version  string          `json:"version,omitempty"`
	Summary  string          `json:"summary,omitempty"`
	Protocol int             `json:"protocol"`
	Config   json.RawMessage `json:"config,omitempty"`
	Input    json.RawMessage `json:"input,omitempty"`
	Output   json.RawMessage `json:"output,omitempty"`
	// Wants lists what the component needs of its host beyond the contract:
	// grants of a WASM module, "ids" of a converter that can't work without
	// token ids, "model" of an invoker whose program always calls a model,
	// "no_model" of one whose program never does through the gateway, Programs
	// of a judger.
	Wants []string `json:"wants,omitempty"`
	// Observes and Changes are hook points; see sdk/hook.
	Observes []string `json:"observes,omitempty"`
	Changes  []string `json:"changes,omitempty"`
	// Methods are the calls that an instance answers, such as judge_group.
	Methods []string `json:"methods,omitempty"`
	// Programs are what an invoker knows to start, for `penstock doctor`.
	Programs []Program `json:"programs,omitempty"`
	// ModeKey names the setting of an invoker that says how it reaches a model,
	// and Modes what its values mean where that isn't any model of the file
	// through the gateway.
	ModeKey string          `json:"mode_key,omitempty"`
	Modes   map[string]Mode `json:"modes,omitempty"`
}

// Mode is a way to reach a model.
type Mode struct {
	// Direct is by the component's own credentials and past the gateway: the
	// stage names no model, and nothing is recorded.
	Direct bool `json:"direct,omitempty"`
	// Family is the model's family where the mode is direct.
	Family string `json:"family,omitempty"`
	// Upstream is the kind that the model's upstream has to be of.
	Upstream string `json:"upstream,omitempty"`
	// Settings are those that this mode alone reads. Where the file names another
	// mode they may stay: what they refer to isn't read then.
	Settings []string `json:"settings,omitempty"`
	// Estimates are settings that bound money by what the component itself
	// reckons, and nobody is billed.
	Estimates []string `json:"estimates,omitempty"`
	// WithSchema are the least values of settings where the stage's output has a
	// schema.
	WithSchema map[string]int `json:"with_schema,omitempty"`
}

// Programs is what a judger wants that runs programs in the workspace: its stage
// may have a sandbox for them.
const Programs = "programs"

// Program is an agent program that an invoker starts when it is given With as
// its config. Dialect is the gateway's that it speaks, Version what the program
// calls the version that was last seen to work, on Date.
type Program struct {
	Name    string          `json:"name"`
	Program string          `json:"program"`
	Dialect string          `json:"dialect,omitempty"`
	With    json.RawMessage `json:"with,omitempty"`
	Install string          `json:"install,omitempty"`
	Version string          `json:"version,omitempty"`
	Date    string          `json:"date,omitempty"`
	Quirks  []string        `json:"quirks,omitempty"`
}

// Want reports whether the component asks for something by this name.
func (d Descriptor) Want(name string) bool {
	for _, w := range d.Wants {
		if w == name {
			return true
		}
	}
	return false
}

// ID is the name under which a pipeline uses the component: kind/name.
func (d Descriptor) ID() string { return d.Kind + "/" + d.Name }

// Component is a descriptor with the way to open and to call it.
type Component struct {
	Descriptor
	// Open makes an instance, a value that implements the interface of its
	// kind. Config is a JSON object that the schema allows, or nil. An error
	// about one field is a *schema.Error.
	Open func(ctx context.Context, config json.RawMessage) (any, error)
	// Call calls one method of an instance with a request document and
	// returns the reply as JSON. It is how transports serve a component.
	Call func(ctx context.Context, instance any, method string, in doc.Doc) ([]byte, error)
}

// Close closes an instance if it can be closed.
func Close(instance any) error {
	if c, ok := instance.(interface{ Close() error }); ok {
		return c.Close()
	}
	return nil
}

// Error is a failure of a call that crosses a transport. Retryable says that
// the same call may succeed on another try.
type Error struct {
	Code      string `json:"code,omitempty"`
	Message   string `json:"message"`
	Retryable bool   `json:"retryable,omitempty"`
}

func (e *Error) Error() string { return e.Message }

var register struct {
	sync.Mutex
	all map[string]Component
}

// Register adds a component to this program. It is called from init and
// panics on a name that is taken, as two plugins of one name are a mistake of
// the program's author.
func Register(c Component) {
	register.Lock()
	defer register.Unlock()
	if c.Protocol == 0 {
		c.Protocol = Protocol
	}
	if register.all == nil {
		register.all = map[string]Component{}
	}
	if _, taken := register.all[c.ID()]; taken {
		panic(fmt.Sprintf("component %s is registered twice", c.ID()))
	}
	register.all[c.ID()] = c
}

// Registered returns the components of this program, sorted by id.
func Registered() []Component {
	register.Lock()
	defer register.Unlock()
	out := make([]Component, 0, len(register.all))
	for _, c := range register.all {
		out = append(out, c)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].ID() < out[j].ID() })
	return out
}
