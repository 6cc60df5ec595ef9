package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// askTimeout bounds a question to a container engine, which takes a while to
// answer where it is asleep.
const askTimeout = 30 * time.Second

// container runs programs in containers of an image, by the client of docker
// or of podman.
type container struct {
	engine, client string // the name, and the program's path
	image, id      string // as asked for, and what that was at the start
	user           string // whom the engine takes for this user
}

// ErrNoImage says that the engine may be there, but no image was named to try
// it with.
var ErrNoImage = errors.New("no image is named")

// gets says how to get a client.
var gets = map[string]string{
	Docker: "install Docker Engine (Debian: apt install docker.io), or use podman",
	Podman: "install it (Debian: apt install podman)",
}

func newContainer(ctx context.Context, engine, image string) (Sandbox, error) {
	client, err := exec.LookPath(engine)
	if err != nil {
		return nil, fmt.Errorf("sandbox %s: no program %s in PATH; %s", engine, engine, gets[engine])
	}
	if image == "" {
		return nil, fmt.Errorf("sandbox %s: %w; give it one: { use: %s, image: NAME }", engine, ErrNoImage, engine)
	}
	if strings.HasPrefix(image, "-") {
		return nil, fmt.Errorf("sandbox %s: %q is no name of an image", engine, image)
	}
	c := &container{engine: engine, client: client, image: image}
	if c.id, err = c.ask(ctx, "image", "inspect", "--format", "{{.Id}}", image); err != nil {
		return nil, fmt.Errorf("sandbox %s: look for the image %s: %w; start the engine if it does not run, and get the image with: %s pull %s", engine, image, err, engine, image)
	}
	c.user = strconv.Itoa(os.Getuid()) + ":" + strconv.Itoa(os.Getgid())
	if engine == Docker {
		options, err := c.ask(ctx, "info", "--format", "{{json .SecurityOptions}}")
		if err != nil {
			return nil, fmt.Errorf("sandbox %s: ask the engine about itself: %w", engine, err)
		}
		var list []string
		if err := json.Unmarshal([]byte(options), &list); err != nil {
			return nil, fmt.Errorf("sandbox %s: ask the engine about itself: %w", engine, err)
		}
		if slices.Contains(list, "name=rootless") { // this user is root in its containers
			c.user = "0:0"
		}
	}
	return c, nil
}

// ask has the client answer a question, in one line.
func (c *container) ask(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.client, args...)
	cmd.Env = ClientEnv(os.Environ())
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && len(exit.Stderr) > 0 {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return strings.TrimSpace(string(out)), err
}

func (c *container) Name() string { return c.engine }

func (c *container) Limits() string {
	id := strings.TrimPrefix(c.id, "sha256:")
	return fmt.Sprintf("%s %s (%s): files, TCP, UDP, signals", c.engine, c.image, id[:min(len(id), 12)])
}

// Command has the engine run the program as process 1 of a container that sees
// the image, the program and what the policy names, at the same paths as
// outside, and nothing of the network unless the policy leaves that as it is.
// Dir is for the program itself to enter.
func (c *container) Command(p Policy, _, path string, argv []string) (Command, error) {
	if err := p.check(); err != nil {
		return Command{}, err
	}
	args := []string{
		c.engine, "run", "--rm", "--interactive", "--init=false", "--pull=never", "--log-driver=none", "--hostname=penstock", "--workdir=/",
		"--cap-drop=ALL", "--security-opt=no-new-privileges", "--security-opt=label=disable", "--user=" + c.user, "--entrypoint=" + path,
	}
	if c.engine == Podman && os.Getuid() != 0 {
		args = append(args, "--userns=keep-id")
	}
	network := "none"
	if p.Network {
		network = "host"
	}
	args = append(args, "--network="+network)
	for _, read := range outermost(append(slices.Clone(p.Read), path)) {
		if !within(p.Write, read) {
			args = append(args, "--mount=type=bind,source="+read+",target="+read+",readonly")
		}
	}
	for _, write := range outermost(p.Write) {
		args = append(args, "--mount=type=bind,source="+write+",target="+write)
	}
	for _, shown := range slices.Concat(p.Read, p.Write, []string{path}) {
		if strings.ContainsAny(shown, ",\"\n") {
			return Command{}, fmt.Errorf("sandbox %s: a path with a comma, a quote or a new line can't be shown in a container: %q", c.engine, shown)
		}
	}
	return Command{Path: c.client, Argv: append(append(args, c.id), argv[1:]...)}, nil
}

// within tells whether path is one of the others or below it.
func within(others []string, path string) bool {
	return slices.ContainsFunc(others, func(o string) bool {
		return path == o || strings.HasPrefix(path, strings.TrimSuffix(o, "/")+"/")
	})
}

// Contains tells whether a sandbox is a container: its programs are those of
// an image, and what runs in it is not of this machine's processes.
func Contains(s Sandbox) bool {
	_, ok := s.(*container)
	return ok
}

// ClientEnv are the variables that the client of a container engine goes by.
// It gets no other, since some can be told to hand all on to the containers.
func ClientEnv(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		if slices.Contains([]string{"PATH", "HOME", "TMPDIR", "USER", "LOGNAME", "DBUS_SESSION_BUS_ADDRESS"}, name) {
			return false
		}
		return !slices.ContainsFunc([]string{"XDG_", "DOCKER_", "CONTAINER_", "CONTAINERS_"}, func(p string) bool { return strings.HasPrefix(name, p) })
	})
}
