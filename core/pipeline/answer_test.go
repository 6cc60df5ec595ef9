package pipeline

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestAnswersThatCantBeRead: it is said where.
func TestAnswersThatCantBeRead(t *testing.T) {
	for given, want := range map[string]string{
		`{bad`:                "the answer is no JSON: at character 2: ",
		`{"é": bad}`:          "the answer is no JSON: at character 7: ",
		``:                    "it ends too early, at character 0",
		`{"a": 1`:             "it ends too early, at character 7",
		`{"a": 1} x`:          "something follows its end",
		`{"a":1,"a":2}`:       "the answer has a name twice, at /a (character 8)",
		`{"b":{"a":1,"a":2}}`: "the answer has a name twice, at /b/a",
		`[1]`:                 "an answer is a JSON object",
	} {
		_, err := (&Stage{ID: "s"}).Answer([]byte(given))
		assert.ErrorContains(t, err, want, given)
	}
}
