//go:build !unix && !wasip1

package serve

import "os"

func endProcess() { os.Exit(0) }
