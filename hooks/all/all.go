// Package all registers every hook that ships with penstock.
package all

import _ "github.com/penstock-dev/penstock/hooks/sanitizetools"
