package answer

import (
	"encoding/json"
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/doc"
	"github.com/penstock-dev/penstock/sdk/judger"
	"github.com/penstock-dev/penstock/sdk/schema"
)

// judge opens the judger with a config in JSON, as a pipeline gives it, and
// judges a final text.
func judge(t *testing.T, config, expect, text string) (judger.Verdict, error) {
	t.Helper()
	var c Config
	require.NoError(t, schema.Decode([]byte(config), &c))
	j, err := New(c)
	require.NoError(t, err)
	final, err := json.Marshal(text)
	require.NoError(t, err)
	v, err := j.Judge(t.Context(), judger.NewRequest(doc.Bytes(`{"input":{"expect":`+expect+`},"task":{},"rollout":{"final_text":`+string(final)+`}}`)))
	if err == nil {
		require.NoError(t, v.Check())
	}
	return v, err
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name, config, expect, text string
		want                       float64
	}{
		{"exact", ``, `"Paris"`, "Paris", 1},
		{"trimmed by default", ``, `"Paris"`, " Paris\n", 1},
		{"case counts", ``, `"Paris"`, "paris", 0},
		{"no normalising at all", `{"normalize":[]}`, `"Paris"`, "Paris ", 0},
		{"lower", `{"normalize":["trim","lower"]}`, `"Paris"`, "PARIS", 1},
		{"lower, not ASCII", `{"normalize":["lower"]}`, `"ÉTÉ"`, "été", 1},
		{"spaces", `{"normalize":["spaces"]}`, `"a b"`, "a \n\t b ", 1},
		{"punctuation", `{"normalize":["punctuation","trim"]}`, `"yes"`, "Yes!", 0},
		{"punctuation and case", `{"normalize":["lower","punctuation","trim"]}`, `"its fine"`, "It's fine.", 1},
		{"articles", `{"normalize":["lower","articles"]}`, `"eiffel tower"`, "The Eiffel  Tower", 1},
		{"more than the answer", ``, `"42"`, "It is 42", 0},
		{"empty answer", ``, `"42"`, "", 0},
		{"boolean", ``, `true`, "true", 1},
		{"any of a list", ``, `["UK","United Kingdom"]`, "United Kingdom", 1},
		{"none of a list", ``, `["UK","United Kingdom"]`, "France", 0},
		{"a list of both kinds", ``, `["forty-two",42]`, "42.0", 1},

		{"a number in JSON compares as one", ``, `42`, "42.00", 1},
		{"a string does not", ``, `"42"`, "42.00", 0},
		{"number", `{"normalize":["trim","number"]}`, `"42"`, "42.00", 1},
		{"other number", `{"normalize":["trim","number"]}`, `"42"`, "43", 0},
		{"thousands", `{"normalize":["number"]}`, `"1234567.5"`, "1,234,567.50", 1},
		{"not thousands", `{"normalize":["number"]}`, `"12"`, "1,2", 0},
		{"currency", `{"normalize":["number"]}`, `"1200"`, "$1,200.", 1},
		{"negative currency", `{"normalize":["number"]}`, `"-5"`, "-$5", 1},
		{"minus of print", `{"normalize":["number"]}`, `"-5"`, "−5", 1},
		{"plus", `{"normalize":["number"]}`, `"5"`, "+5", 1},
		{"fraction", `{"normalize":["number"]}`, `"0.5"`, "1/2", 1},
		{"fraction in TeX", `{"normalize":["number"]}`, `"-3/4"`, `$-\frac{3}{4}$`, 1},
		{"dfrac", `{"normalize":["number"]}`, `0.75`, `\dfrac{3}{4}`, 1},
		{"exponent", `{"normalize":["number"]}`, `"1500"`, "1.5e3", 1},
		{"big integers are exact", `{"normalize":["number"]}`, `"9007199254740993"`, "9007199254740992", 0},
		{"tenths are exact", `{"normalize":["number"]}`, `"0.3"`, "0.30000000000000004", 0},
		{"a unit is no number", `{"normalize":["number"]}`, `"5"`, "5 km", 0},
		{"percent is no number", `{"normalize":["number"]}`, `"50"`, "50%", 0},
		{"NaN is text", `{"normalize":["number"]}`, `"NaN"`, "nan", 0},
		{"infinity is text", `{"normalize":["number"]}`, `"Infinity"`, "inf", 0},
		{"division by zero is text", `{"normalize":["number"]}`, `"0"`, "1/0", 0},
		{"hexadecimal is text", `{"normalize":["number"]}`, `"16"`, "0x10", 0},
		{"a huge exponent is text", `{"normalize":["number"]}`, `"1"`, "1e999999999", 0},

		{"within abs", `{"tolerance":{"abs":0.01}}`, `3.14`, "3.1499", 1},
		{"at abs", `{"tolerance":{"abs":0.5}}`, `3`, "3.5", 1},
		{"outside abs", `{"tolerance":{"abs":0.01}}`, `3.14`, "3.16", 0},
		{"within rel", `{"tolerance":{"rel":0.1}}`, `"1,000"`, "1,099", 1},
		{"outside rel", `{"tolerance":{"rel":0.1}}`, `1000`, "1101", 0},
		{"rel of a negative", `{"tolerance":{"rel":0.1}}`, `-1000`, "-1050", 1},
		{"the larger counts", `{"tolerance":{"abs":5,"rel":0.001}}`, `100`, "104", 1},
		{"tolerance zero", `{"tolerance":{}}`, `0.5`, "1/2", 1},
		{"no number with tolerance", `{"tolerance":{"abs":1}}`, `1`, "one", 0},
		{"NaN with tolerance", `{"tolerance":{"abs":1}}`, `1`, "NaN", 0},
		{"Inf with tolerance", `{"tolerance":{"rel":1}}`, `1`, "+Inf", 0},

		{"includes", `{"mode":"includes"}`, `"Paris"`, "The capital is Paris.", 1},
		{"includes not", `{"mode":"includes"}`, `"Paris"`, "The capital is Rome.", 0},
		{"includes, normalised", `{"mode":"includes","normalize":["lower"]}`, `"PARIS"`, "it is paris", 1},
		{"includes sees all the text", `{"mode":"includes"}`, `"why"`, `this is why: \boxed{1}`, 1},

		{"regex", `{"mode":"regex"}`, `"^4\\d$"`, "42", 1},
		{"regex not", `{"mode":"regex"}`, `"^4\\d$"`, "421", 0},
		{"regex anywhere", `{"mode":"regex"}`, `"(?i)PARIS|rome"`, "it is paris.", 1},

		{"boxed", ``, `"42"`, `So the answer is \boxed{42}.`, 1},
		{"boxed, the last", ``, `"42"`, `\boxed{41} no, \boxed{42}`, 1},
		{"boxed, nested", ``, `"\\frac{1}{2}"`, `thus \boxed{\frac{1}{2}}`, 1},
		{"boxed and number", `{"normalize":["number"]}`, `0.5`, `thus \boxed{\frac{1}{2}}`, 1},
		{"boxed with a space", ``, `"x"`, `\boxed {x}`, 1},
		{"boxed, escaped brace", ``, `"\\{1, 2\\}"`, `\boxed{\{1, 2\}}`, 1},
		{"boxed, unbalanced last", ``, `"1"`, `\boxed{1} and \boxed{2`, 1},
		{"fbox", ``, `"7"`, `\fbox{7}`, 1},
		{"boxed wins over a tag", ``, `"1"`, `<answer>2</answer> \boxed{1}`, 1},
		{"tag", ``, `"42"`, "<think>41</think><Answer> 42\n</ANSWER>", 1},
		{"tag, the last", ``, `"2"`, "<answer>1</answer> <answer>2</answer>", 1},
		{"tag, not closed", ``, `"2"`, "<answer>2", 0},
		{"tag after odd bytes", ``, `"é"`, "İİİ <answer>é</answer>", 1},
		{"final answer", ``, `"42"`, "Work…\nFinal Answer: 42", 1},
		{"final answer, bold", ``, `"42"`, "**Final answer:** 42.", 1},
		{"final answer, bold all", ``, `"blue"`, "**Final answer: blue**", 1},
		{"final answer is", ``, `"42"`, "The final answer is 42. I hope it is correct.", 1},
		{"final answer, next line", ``, `"42"`, "Final answer:\n\n42\n", 1},
		{"final answer, the last", ``, `"2"`, "final answer: 1\nfinal answer: 2", 1},
		{"hashes", ``, `"42"`, "2 * 21 = 42\n#### 42", 1},
		{"hashes, the last", ``, `"42"`, "#### 41\ntext\n#### 42\nmore", 1},
		{"five hashes are a heading", ``, `"x"`, "##### x", 0},
		{"last number, asked for", `{"extract":["last_number"]}`, `"42"`, "First 7, then 42 apples.", 1},
		{"last number, negative", `{"extract":["last_number"]}`, `"-5"`, "it is -5", 1},
		{"last number, a difference", `{"extract":["last_number"]}`, `"5"`, "it is 7-5", 1},
		{"last number, thousands", `{"extract":["last_number"],"normalize":["number"]}`, `"1234.5"`, "total: $1,234.50.", 1},
		{"last number, none", `{"extract":["last_number"]}`, `"5"`, "five", 0},
		{"only the tag", `{"extract":["answer"]}`, `"5"`, "5", 0},
		{"an order of one's own", `{"extract":["hashes","boxed"]}`, `"1"`, "\\boxed{2}\n#### 1", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, err := judge(t, c.config, c.expect, c.text)
			require.NoError(t, err)
			require.NotNil(t, v.Reward)
			assert.Equal(t, c.want, *v.Reward, v.Explanation)
			assert.Equal(t, judger.Scored, v.Status)
		})
	}
}

// What is wrong with the question is an error, hence no reward, never 0.
func TestErrors(t *testing.T) {
	for name, c := range map[string]struct{ config, expect, want string }{
		"null":                {``, `null`, "expect is missing"},
		"empty":               {``, `" "`, "expect is empty"},
		"empty list":          {``, `[]`, "empty list"},
		"list of lists":       {``, `[["a"]]`, "list of lists"},
		"object":              {``, `{"a":1}`, "is an object"},
		"bad pattern":         {`{"mode":"regex"}`, `"("`, "no pattern"},
		"tolerance of a word": {`{"tolerance":{"abs":1}}`, `"one"`, "is no number"},
		"nothing left":        {`{"mode":"includes","normalize":["punctuation"]}`, `"!!"`, "nothing is left"},
		"null within a list":  {``, `["a",null]`, "expect is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := judge(t, c.config, c.expect, "x")
			require.ErrorContains(t, err, c.want)
			assert.Nil(t, v.Reward)
		})
	}
}

func TestBadConfig(t *testing.T) {
	for want, c := range map[string]Config{
		`mode is "fuzzy"`:                     {Mode: "fuzzy"},
		`normalize: there is no "upper"`:      {Normalize: &[]string{"upper"}},
		`extract: there is no "json"`:         {Extract: &[]string{"json"}},
		`extract is an empty list`:            {Extract: &[]string{}},
		`abs and rel are finite`:              {Tolerance: &Tolerance{Abs: -1}},
		`tolerance: abs`:                      {Tolerance: &Tolerance{Rel: math.NaN()}},
		`tolerance goes with mode exact only`: {Mode: "regex", Tolerance: &Tolerance{}},
	} {
		_, err := New(c)
		assert.ErrorContains(t, err, want)
	}
}

func TestExplanation(t *testing.T) {
	v, err := judge(t, ``, `"42"`, `\boxed{`+strings.Repeat("é", 500)+`}`)
	require.NoError(t, err)
	assert.Equal(t, "wrong", v.Label)
	assert.Less(t, len(v.Explanation), 300)
	assert.Contains(t, v.Explanation, "(by boxed)")

	v, err = judge(t, `{"extract":["boxed","hashes"]}`, `"42"`, `42`)
	require.NoError(t, err)
	assert.Equal(t, "no_answer", v.Label)
	assert.Equal(t, "no answer found by boxed, hashes", v.Explanation)

	v, err = judge(t, ``, `"42"`, `42`)
	require.NoError(t, err)
	assert.Equal(t, "correct", v.Label)
}

// The judger is registered under its name, with config and input apart.
func TestRegistered(t *testing.T) {
	for _, c := range component.Registered() {
		if c.ID() != "judger/answer" {
			continue
		}
		assert.Contains(t, string(c.Config), `"tolerance"`)
		assert.Contains(t, string(c.Input), `"expect"`)
		_, err := c.Open(t.Context(), json.RawMessage(`{"modus":"exact"}`))
		assert.ErrorContains(t, err, "/modus: unknown field")
		return
	}
	t.Fatal("judger/answer is not registered")
}

func FuzzExtract(f *testing.F) {
	f.Add(`\boxed{\{}} <answer>a</answer> final answer: 3 #### 7`)
	f.Fuzz(func(t *testing.T, text string) {
		for name, extract := range extractors {
			if got, ok := extract(text); ok {
				assert.LessOrEqual(t, len(got), len(text)+2, name)
			}
		}
		if v, ok := number(text); ok {
			again, ok := number(plainNumber(text))
			assert.True(t, ok)
			assert.Zero(t, v.Cmp(again))
		}
	})
}

func TestNumber(t *testing.T) {
	v, ok := number(`-\frac{1}{3}`)
	require.True(t, ok)
	assert.Zero(t, v.Cmp(big.NewRat(-1, 3)))
}
