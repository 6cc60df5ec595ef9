//go:build !linux && !darwin

package plugin

import "errors"

func reserve(uint64) ([]byte, error) { return nil, errors.ErrUnsupported }

func commit([]byte, int, int) error { return errors.ErrUnsupported }

func unreserve([]byte) {}
