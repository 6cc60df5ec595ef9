package sandbox

import (
	"errors"
	"fmt"
	"slices"

	"github.com/penstock-dev/penstock/core/agent/landlock"
)

type byLandlock struct{ version int }

func newLandlock() (Sandbox, error) {
	switch v := landlock.ABI(); {
	case v == 0:
		return nil, errors.New("sandbox landlock: this kernel has none, or it is switched off (lsm=)")
	case v < landlock.ABITruncate:
		return nil, fmt.Errorf("sandbox landlock: version %d of this kernel's can't keep files from being truncated; 3 is needed (Linux 6.2)", v)
	default:
		return &byLandlock{version: v}, nil
	}
}

func (l *byLandlock) Name() string { return Landlock }

func (l *byLandlock) Limits() string {
	text := fmt.Sprintf("landlock %d: files", l.version)
	if l.version >= landlock.ABITCP {
		text += ", TCP"
	}
	if l.version >= landlock.ABIScopes {
		text += ", signals"
	}
	return text
}

func (l *byLandlock) Command(p Policy, _, path string, argv []string) (Command, error) {
	if err := p.check(); err != nil {
		return Command{}, err
	}
	return Command{Path: path, Argv: argv, Rules: &landlock.Rules{
		Files: true,
		Read:  slices.Concat(existing(systemRead), existing([]string{"/proc", "/sys"}), p.Read),
		Write: slices.Concat(existing(devices), p.Write),
		TCP:   !p.Network && l.version >= landlock.ABITCP,
		Ports: p.Ports,
	}}, nil
}
