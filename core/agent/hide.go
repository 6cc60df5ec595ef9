package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/penstock-dev/penstock/core/agent/sandbox"
)

// view is what is hidden from a program and what is kept of it, as real paths,
// so that no link is left for the shim to follow.
type view struct{ hide, keep, view []string }

// hidden resolves what the spec hides; it is nothing where that can't be done.
func (p *run) hidden(r *Runner) (view, error) {
	s := p.spec
	if len(s.Hide) == 0 {
		return view{}, nil
	}
	if sandbox.Contains(s.Sandbox) {
		return view{}, p.shown(r)
	}
	if !r.Hides() {
		p.log.Debug("agent sees folders that should be hidden", "reason", "no namespaces")
		return view{}, p.shown(r)
	}
	keep := s.Keep
	if p.temp != nil {
		keep = append(slices.Clone(keep), p.temp.Path)
	}
	v, err := newView(s.Hide, keep, s.View)
	if err != nil {
		return view{}, fmt.Errorf("hide folders: %w", err)
	}
	return v, v.check(s, p.path)
}

// shown refuses a sandbox that would show what can't be hidden: bwrap may have
// namespaces where the shim has none, and a container is out of its reach.
func (p *run) shown(r *Runner) error {
	s := p.spec
	if s.Sandbox == nil || s.Sandbox.Name() != sandbox.Bwrap && !sandbox.Contains(s.Sandbox) {
		return nil
	}
	policy := p.policy(r)
	for _, dir := range s.Hide {
		real, err := resolve(dir)
		if err != nil {
			return fmt.Errorf("hide folders: %w", err)
		}
		for _, path := range slices.Concat(policy.Read, policy.Write) {
			if named, err := resolve(path); err == nil && below(named, real) {
				return fmt.Errorf("hide folders: %s is in %s, which the sandbox shows, and can't be hidden in it: name narrower folders", dir, path)
			}
		}
	}
	return nil
}

func newView(hide, keep, readOnly []string) (v view, err error) {
	for _, dir := range hide {
		real, err := resolve(dir)
		if err != nil {
			return v, err
		}
		if info, err := os.Stat(real); err != nil || !info.IsDir() {
			return v, errors.Join(fmt.Errorf("%s is no folder", dir), err)
		}
		if i := slices.IndexFunc(v.hide, func(d string) bool { return below(d, real) || below(real, d) }); i >= 0 || real == "/" {
			return v, fmt.Errorf("%s is the root or one in the other with another that is hidden", dir)
		}
		v.hide = append(v.hide, real)
	}
	if v.keep, err = v.kept(keep); err == nil {
		v.view, err = v.kept(readOnly)
	}
	return v, err
}

// kept are the paths that are below a hidden folder.
func (v *view) kept(paths []string) (list []string, err error) {
	for _, path := range paths {
		real, err := resolve(path)
		if err != nil {
			return nil, err
		}
		if slices.Contains(v.hide, real) {
			return nil, fmt.Errorf("%s can't be both hidden and kept", path)
		}
		if !v.covers(real) {
			continue
		}
		for _, other := range slices.Concat(v.keep, list) {
			if below(other, real) || below(real, other) {
				return nil, fmt.Errorf("of what is kept, %s and %s are one in the other", path, other)
			}
		}
		list = append(list, real)
	}
	return list, nil
}

// check refuses a program that would not find its folder or itself.
func (v *view) check(s *Spec, program string) error {
	for _, path := range []string{s.Dir, program} {
		real, err := resolve(path)
		if err != nil {
			return fmt.Errorf("hide folders: %w", err)
		}
		if v.covers(real) && !slices.ContainsFunc(slices.Concat(v.keep, v.view), func(k string) bool { return below(k, real) }) {
			return &StartError{
				Argv0: s.Argv[0], Path: program, Reason: Failed, Err: fmt.Errorf("%s is hidden from it", path),
			}
		}
	}
	return nil
}

func (v *view) covers(path string) bool {
	return slices.ContainsFunc(v.hide, func(dir string) bool { return below(dir, path) })
}

// below tells whether path is dir or in it.
func below(dir, path string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

func resolve(path string) (string, error) {
	if !filepath.IsAbs(path) || strings.IndexByte(path, 0) >= 0 {
		return "", fmt.Errorf("%q is no absolute path", path)
	}
	return filepath.EvalSymlinks(path)
}
