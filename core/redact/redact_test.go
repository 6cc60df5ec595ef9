package redact

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const canary = `Canary-7f/3a+9"c\é<&` + "\t" + `0d42`

var token = "pst-" + strings.Repeat("0123456789abcdef", 4)

func fixed(parts ...string) string { return strings.Join(parts, "") } // so that no key stands in this file

func TestValuesAreFoundAsTheyAreWritten(t *testing.T) {
	r := New(Options{Values: []string{canary, "hunter22"}})
	quoted, err := json.Marshal(canary)
	require.NoError(t, err)
	twice, err := json.Marshal(string(quoted))
	require.NoError(t, err)
	cases := map[string]string{
		"clear": canary, "short": "hunter22", "json": string(quoted), "json in json": string(twice),
		"query": url.QueryEscape(canary), "path": url.PathEscape(canary), "lower percent": strings.ToLower(url.QueryEscape("hunter22/")),
		"hex": hex.EncodeToString([]byte(canary)), "upper hex": strings.ToUpper(hex.EncodeToString([]byte(canary))),
	}
	for shift := range 3 {
		for pad := range 3 {
			text := strings.Repeat("x", shift) + canary + strings.Repeat("y", pad)
			cases[fmt.Sprintf("base64 %d %d", shift, pad)] = base64.StdEncoding.EncodeToString([]byte(text))
			cases[fmt.Sprintf("base64url %d %d", shift, pad)] = base64.RawURLEncoding.EncodeToString([]byte(text))
		}
	}
	for name, text := range cases {
		for _, around := range []string{"", "a", "ab ", "some text before it: ", strings.Repeat("long ", 50)} {
			out, found := r.Text(around + text + around)
			require.Len(t, found, 1, "%s: %q", name, text)
			assert.NotContains(t, out, text)
			assert.Equal(t, Mark(found[0].Kind), out[found[0].Offset:found[0].Offset+found[0].Length])
			assert.True(t, strings.HasPrefix(out, around) && strings.HasSuffix(out, around))
		}
	}
}

func TestBase64WithLineBreaks(t *testing.T) {
	long := strings.Repeat("k3y-", 30)
	r := New(Options{Values: []string{long}})
	text := base64.StdEncoding.EncodeToString([]byte("user:" + long + "\n"))
	for _, newline := range []string{"\n", "\r\n", `\n`} {
		for width := 60; width < 80; width++ {
			var lines []string
			for rest := text; rest != ""; {
				n := min(width, len(rest))
				lines, rest = append(lines, rest[:n]), rest[n:]
			}
			out, found := r.Text("begin " + strings.Join(lines, newline) + " end")
			require.Len(t, found, 1, "width %d, %q", width, newline)
			assert.Less(t, len(out), 60)
		}
	}
}

func TestPatterns(t *testing.T) {
	digits := strings.Repeat("A1b2C3d4E5", 8)
	jwt := fixed("eyJ", "hbGciOiJIUzI1NiJ9.eyJ", "zdWIiOiIxMjM0NTY3ODkwIn0.", "dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P")
	pem := fixed("-----BEGIN RSA ", "PRIVATE KEY-----\n") + strings.Repeat(digits[:64]+"\n", 12) + "-----END RSA PRIVATE KEY-----"
	for kind, texts := range map[string][]string{
		"anthropic_key":     {fixed("sk-", "ant-api03-") + digits[:40]},
		"api_key":           {fixed("sk-") + digits[:48], fixed("sk-", "proj-") + digits[:40]},
		"aws_key":           {fixed("AK", "IA2E0A8F3B244C9986")},
		"github_token":      {fixed("gh", "p_") + digits[:36], fixed("github", "_pat_") + digits[:60]},
		"gitlab_token":      {fixed("gl", "pat-") + digits[:20]},
		"slack_token":       {fixed("xo", "xb-") + "123456789012-" + digits[:24]},
		"google_key":        {fixed("AI", "za") + digits[:35]},
		"huggingface_token": {fixed("h", "f_") + digits[:34]},
		"npm_token":         {fixed("np", "m_") + digits[:36]},
		"jwt":               {jwt},
		"private_key":       {pem, strings.ReplaceAll(pem, "\n", `\n`), pem[:400]},
		"session_token":     {token},
	} {
		for _, text := range texts {
			for _, around := range [][2]string{{"", ""}, {"key=", " ok"}, {`"`, `"`}, {"\n", "\n"}, {`\n`, `\n`}, {"x: ", ","}} {
				out, found := New(Options{}).Text(around[0] + text + around[1])
				require.Len(t, found, 1, "%s in %q", kind, around[0]+text)
				assert.Equal(t, kind, found[0].Kind)
				if kind != "private_key" {
					assert.Equal(t, around[0]+Mark(kind)+around[1], out)
				}
			}
		}
	}
	out, _ := New(Options{}).Text("curl -H 'Authorization: Bearer " + digits[:40] + "'")
	assert.Equal(t, "curl -H 'Authorization: Bearer [redacted:bearer]'", out)
}

func TestPatternsLeaveOtherTextAlone(t *testing.T) {
	r := New(Options{})
	for _, text := range []string{
		"task-some-very-long-kebab-case-name-1234567890", "sk-loading-spinner-container-wide-2", "risk-A1b2C3d4E5A1b2C3d4E5A1b2C3",
		"use Bearer authentication", "Bearer your-token-goes-here-please", "-----BEGIN PRIVATE KEY----- and -----END PRIVATE KEY-----",
		"-----BEGIN CERTIFICATE-----\n" + strings.Repeat("A1b2", 40), "AKIA", "XAKIA2E0A8F3B244C9986", "AKIA2E0A8F3B244C9986X",
		"php_ini_loaded_file", "eyJub3QuYS5qd3Q", "hf_hub_download", "a pst-mortem", "[redacted:api_key]",
	} {
		out, found := r.Text(text)
		assert.Empty(t, found, text)
		assert.Equal(t, text, out)
	}
	only := New(Options{NoPatterns: true})
	_, found := only.Text(fixed("gh", "p_") + strings.Repeat("a", 36) + " " + token)
	require.Len(t, found, 1)
	assert.Equal(t, "session_token", found[0].Kind)
}

func TestSessionTokensInBase64(t *testing.T) {
	r := New(Options{})
	for shift := range 4 {
		for _, e := range []*base64.Encoding{base64.StdEncoding, base64.RawURLEncoding} {
			text := e.EncodeToString([]byte(strings.Repeat("u", shift) + token + ":x"))
			_, found := r.Text("Basic " + text)
			require.Len(t, found, 1, "%d", shift)
		}
	}
	_, found := r.Text("cHN0L" + strings.Repeat("A", 100))
	assert.Empty(t, found)
}

func TestShortValuesAreLeftOut(t *testing.T) {
	out, found := New(Options{Values: []string{"", "12345", "  abc "}}).Text("12345 abc")
	assert.Empty(t, found)
	assert.Equal(t, "12345 abc", out)
}

func TestOverlapsBecomeOneMark(t *testing.T) {
	r := New(Options{Values: []string{"alpha-beta-gamma", "beta-gamma-delta", "beta-gamma"}})
	out, found := r.Text("<alpha-beta-gamma-delta> <beta-gamma>")
	assert.Equal(t, "<[redacted:value]> <[redacted:value]>", out)
	assert.Len(t, found, 2)
	assert.Equal(t, 1+len("[redacted:value]"), moved(found, 5))
	assert.Equal(t, 0, moved(found, 0))
	assert.Equal(t, strings.Index(out, " <"), moved(found, strings.Index("<alpha-beta-gamma-delta> <beta-gamma>", " <")))
	assert.Equal(t, len(out), moved(found, len("<alpha-beta-gamma-delta> <beta-gamma>")))
}

func TestManyLinesOfOneSecret(t *testing.T) {
	r := New(Options{Values: []string{"first-line-of-the-key-1\nsecond-line-of-the-key-2\nx\n"}})
	out, _ := r.Text("  1\tfirst-line-of-the-key-1\n  2\tsecond-line-of-the-key-2\n")
	assert.Equal(t, "  1\t[redacted:value]\n  2\t[redacted:value]\n", out)
}

func TestJSONStaysJSON(t *testing.T) {
	r := New(Options{Values: []string{canary, "nfoo1234", `ends-with\`, "123456780"}})
	quoted, err := json.Marshal(canary)
	require.NoError(t, err)
	for in, want := range map[string]string{
		`{"a": ` + string(quoted) + ` , "b":[1,2.50]}`:                          `{"a": "[redacted:value]" , "b":[1,2.50]}`,
		`{"a":"\u0043anary-7f\/3a+9\"c\\\u00e9<&\t0d42"}`:                       `{"a":"[redacted:value]"}`,
		`{` + string(quoted) + `:1}`:                                            `{"[redacted:value]":1}`,
		`["x\nfoo1234","nfoo1234"]`:                                             `["x\nfoo1234","[redacted:value]"]`,
		`["ends-with\\","ends-with\""]`:                                         `["[redacted:value]","ends-with\""]`,
		`[123456780, 1123456780, 12345678]`:                                     `["[redacted:value]", 1123456780, 12345678]`,
		` {"arguments":"{\"key\":\"nfoo1234\"}"} `:                              ` {"arguments":"{\"key\":\"[redacted:value]\"}"} `,
		`{"cut": "nfoo1234`:                                                     `{"cut": "[redacted:value]`,
		fixed(`{"text":"sk-`, `ant-0123456789abcdef0"}`):                        `{"text":"[redacted:anthropic_key]"}`,
		fixed(`{"type":"thinking","signature":"sk-`, `ant-0123456789abcdef0"}`): fixed(`{"type":"thinking","signature":"sk-`, `ant-0123456789abcdef0"}`),
		`{"type":"thinking","signature":"nfoo1234"}`:                            `{"type":"thinking","signature":"[redacted:value]"}`,
		`{"plain":"nothing \u003chere\u003e","n":null,"t":true,"e":[],"o":{}}`:  `{"plain":"nothing \u003chere\u003e","n":null,"t":true,"e":[],"o":{}}`,
		fixed(`{"a":"\nsk-`, `ant-0123456789abcdef0","b":"\u001b[1msk-x"}`):     `{"a":"\n[redacted:anthropic_key]","b":"\u001b[1msk-x"}`,
		fixed(`{"a":"\u001bsk-`, `ant-0123456789abcdef0"}`):                     `{"a":"\u001b[redacted:anthropic_key]"}`,
	} {
		out, found := r.JSON([]byte(in))
		assert.Equal(t, want, string(out))
		assert.Equal(t, json.Valid([]byte(in)), json.Valid(out))
		for _, f := range found {
			assert.Equal(t, Mark(f.Kind), string(out[f.Offset:f.Offset+f.Length]))
		}
	}
}

func TestNilAndEmptyFindNothing(t *testing.T) {
	var r *Redactor
	out, found := r.Text(token)
	assert.Equal(t, token, out)
	assert.Nil(t, found)
	raw, _ := r.JSON([]byte(`"x"`))
	assert.Equal(t, `"x"`, string(raw))
	assert.False(t, r.Has(token))
	assert.False(t, r.Header("cookie"))
	assert.True(t, New(Options{Headers: []string{"X-Mine"}}).Header("x-mine"))
	assert.True(t, New(Options{}).Header("Authorization"))
}

func TestEnvironment(t *testing.T) {
	got := Environment([]string{
		"OPENAI_API_KEY=one-secret-value", "MY_TOKEN=two-secret-value", "DB_PASSWORD=three33x", "AWS_SECRET_ACCESS_KEY=four-secret",
		"SSH_KEY=/home/me/.ssh/id_rsa", "CACHE_KEY=main", "POSTGRES_PASSWORD=postgres", "SORT_KEY=1234567890", "PATH=/usr/bin:secret",
		"DATABASE_URL=postgres://me:five5five@localhost/x", "GREETING=hello there you", "TOKEN=six-secret-value", "MONKEY=no-secret-value",
	})
	assert.Equal(t, []string{"one-secret-value", "two-secret-value", "three33x", "four-secret", "five5five", "six-secret-value"}, got)
}

func TestReferencedValues(t *testing.T) {
	got := Referenced([]string{"hunter2", "http://127.0.0.1:8000/v1", "https://me:pass@host", "https://host?key=1", "/srv/x", "32768", "0.5", "12345678901234567"})
	assert.Equal(t, []string{"hunter2", "https://me:pass@host", "https://host?key=1", "12345678901234567"}, got)
}

func TestWithKnowsMore(t *testing.T) {
	r := New(Options{Values: []string{"one-value"}})
	assert.Equal(t, "[redacted:value] [redacted:value]", r.With("two-value").String("one-value two-value"))
	assert.Equal(t, "[redacted:value] two-value", r.String("one-value two-value"))
}
