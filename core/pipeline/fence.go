package pipeline

import (
	"fmt"
	"strings"

	"github.com/expr-lang/expr"
)

// fenceName is the function with which a prompt holds text of others.
const fenceName = "fence"

var fenceFunction = expr.Function(fenceName, func(params ...any) (any, error) {
	text, ok := params[0].(string)
	if !ok {
		return nil, fmt.Errorf("fence() takes a text, this is %T", params[0])
	}
	return fence(text), nil
})

// fence puts text between two lines of backticks, more of them than stand
// together anywhere in it, so that nothing in it can end the block.
func fence(text string) string {
	longest, run := 2, 0
	for _, r := range text {
		if run++; r != '`' {
			run = 0
		}
		longest = max(longest, run)
	}
	marks := strings.Repeat("`", longest+1)
	return marks + "\n" + text + "\n" + marks
}
