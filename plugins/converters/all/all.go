// Package all registers every converter that ships with penstock.
package all

import (
	_ "github.com/penstock-dev/penstock/plugins/converters/rows"
	_ "github.com/penstock-dev/penstock/plugins/converters/xtuner"
)
