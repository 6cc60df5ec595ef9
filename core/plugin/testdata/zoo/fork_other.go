//go:build !unix

package zoo

import "errors"

func fork() (string, error) { return "", errors.New("no processes here") }
