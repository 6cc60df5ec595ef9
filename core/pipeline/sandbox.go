package pipeline

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/penstock-dev/penstock/sdk/component"
)

// sandbox reads the sandbox of a stage: its own, else that of the file. That of
// the file is for the programs of agents; a judge's program may need more, so
// that it has one only where its stage says so.
func (c *check) sandbox(n *yaml.Node, s *Stage) {
	s.Sandbox = Sandbox{Use: "none"}
	_, own := lookup(n, "sandbox")
	judges := s.Kind == component.Judger && s.Descriptor.Want(component.Programs)
	if s.Kind != component.Invoker && s.Kind != KindRun && !judges {
		c.refuse(n, "only a stage that starts a program has one: an invoker, a judger that runs programs, or run", "sandbox")
		return
	}
	v := c.f.get(n, "sandbox")
	if own == nil && !judges {
		v = c.f.get(c.f.root, "sandbox")
	}
	if v != nil && !c.f.bad[v] {
		s.Sandbox = c.sandboxOf(v)
	}
	c.contained = s.Sandbox.Image != ""
}

func (c *check) sandboxOf(n *yaml.Node) Sandbox {
	f := c.f
	b := Sandbox{Use: "none"}
	at := n
	if n.Kind == yaml.MappingNode {
		b.Network = f.text(n, "network") == "host"
		b.Read, b.Write = c.paths(n, "read"), c.paths(n, "write")
		b.Image = f.text(n, "image")
		if at = f.get(n, "use"); at == nil {
			return b
		}
	}
	name := f.resolve(at, at.Value)
	if reference.MatchString(name) {
		return b // it was reported, or isn't known without the environment
	}
	if !contains(Sandboxes, name) {
		f.errorf(f.at(at), "sandbox", suggest("sandboxes: ", name, Sandboxes), "there is no sandbox '%s'", name)
		return b
	}
	b.Use = name
	switch engine := name == "docker" || name == "podman"; {
	case engine && b.Image == "":
		f.errorf(f.at(at), "sandbox", fmt.Sprintf("give it one that has the agent's program: sandbox: { use: %s, image: NAME }", name), "the sandbox '%s' runs programs in containers of an image, and none is named", name)
		return b
	case !engine && name != "auto" && b.Image != "":
		f.errorf(f.at(f.get(n, "image")), "sandbox", "leave it out, or use docker, podman or auto", "the sandbox '%s' has no image", name)
		return b
	}
	if f.opts.Sandbox != nil && !f.unseen(at) {
		if err := f.opts.Sandbox(name, b.Image); err != nil {
			f.errorf(f.at(at), "sandbox", "use auto to take the strongest that holds here; penstock doctor shows them", "%s", strings.TrimPrefix(err.Error(), "sandbox: "))
		}
	}
	return b
}

// paths are the paths of a list, absolute, all of which must be there, unless
// the file is checked apart from the machine that it is for.
func (c *check) paths(n *yaml.Node, name string) []string {
	list := c.f.get(n, name)
	if list == nil || c.f.unseen(list) {
		return nil
	}
	var out []string
	for _, item := range list.Content {
		path := c.f.abs(c.f.resolve(item, item.Value))
		if reference.MatchString(path) {
			continue // it was reported
		}
		if _, err := os.Stat(path); err != nil {
			c.f.errorf(c.f.at(item), "no-file", "a relative path starts at the folder of the pipeline file: "+filepath.Dir(c.f.path), "there is no '%s': %s", item.Value, pathCause(err))
			continue
		}
		out = append(out, path)
	}
	return out
}
