// Package all registers every hook that ships with penstock.
package all

import (
	_ "github.com/penstock-dev/penstock/hooks/redact"
	_ "github.com/penstock-dev/penstock/hooks/sanitizetools"
	_ "github.com/penstock-dev/penstock/hooks/stripvolatile"
	_ "github.com/penstock-dev/penstock/hooks/toolguard"
)
