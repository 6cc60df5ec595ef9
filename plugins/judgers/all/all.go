// Package all registers every judger that ships with penstock.
package all

import (
	_ "github.com/penstock-dev/penstock/plugins/judgers/answer"
	_ "github.com/penstock-dev/penstock/plugins/judgers/command"
	_ "github.com/penstock-dev/penstock/plugins/judgers/rubric"
	_ "github.com/penstock-dev/penstock/plugins/judgers/tooluse"
)
