package bedrock

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/tidwall/gjson"

	"github.com/penstock-dev/penstock/core/upstream/exchange"
)

// version is what Bedrock has in place of the header Anthropic-Version.
var version = []byte(`"bedrock-2023-05-31"`)

// The actions of a model, which are the last part of a path.
const (
	invoke = "invoke"
	stream = "invoke-with-response-stream"
	count  = "count-tokens"
)

// carrier is an http.RoundTripper that takes requests of the Messages API and
// gives its replies.
type carrier struct {
	o      Options
	inner  http.RoundTripper
	signer *v4.Signer
}

func newCarrier(o Options, inner http.RoundTripper) *carrier {
	return &carrier{o: o, inner: inner, signer: v4.NewSigner()}
}

// CloseIdleConnections is what an http.Client looks for.
func (c *carrier) CloseIdleConnections() {
	if i, ok := c.inner.(interface{ CloseIdleConnections() }); ok {
		i.CloseIdleConnections()
	}
}

// RoundTrip implements http.RoundTripper.
func (c *carrier) RoundTrip(r *http.Request) (*http.Response, error) {
	defer r.Body.Close() // it is in memory
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	out, action, err := c.carried(r, body)
	if err != nil {
		return nil, err
	}
	response, err := c.inner.RoundTrip(out)
	if err != nil || response.StatusCode != http.StatusOK {
		return response, err
	}
	switch action {
	case stream:
		return unframed(response)
	case count:
		return counted(response)
	}
	return response, nil
}

// carried is a request of the Messages API as Bedrock takes it, signed.
func (c *carrier) carried(r *http.Request, body []byte) (out *http.Request, action string, err error) {
	asked := gjson.ParseBytes(body)
	model := asked.Get("model").String()
	switch {
	case strings.HasSuffix(r.URL.Path, "/count_tokens"):
		action = count
	case asked.Get("stream").Bool():
		action = stream
	default:
		action = invoke
	}
	if body, err = inside(body, r.Header.Values("Anthropic-Beta")); err != nil {
		return nil, "", err
	}
	if action == count {
		body = base64.StdEncoding.AppendEncode([]byte(`{"input":{"invokeModel":{"body":"`), body)
		body = append(body, `"}}}`...)
	}
	out = r.Clone(r.Context())
	root, _, _ := strings.Cut(r.URL.Path, "/v1/messages")
	out.URL.Path = root + "/model/" + model + "/" + action
	out.URL.RawPath = root + "/model/" + escape(model) + "/" + action
	out.URL.RawQuery = ""
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	out.Header.Del("Anthropic-Beta")
	out.Header.Del("Anthropic-Version")
	return out, action, c.sign(out, body)
}

// inside is a body without what Bedrock has in the path, and with what it has
// nowhere else.
func inside(body []byte, betas []string) ([]byte, error) {
	set := []exchange.Field{{Name: "model"}, {Name: "stream"}, {Name: "anthropic_version", Value: version}}
	var list []string
	for _, line := range betas {
		for name := range strings.SplitSeq(line, ",") {
			if name = strings.TrimSpace(name); name != "" {
				list = append(list, name)
			}
		}
	}
	if len(list) > 0 {
		b, err := json.Marshal(list)
		if err != nil {
			return nil, err
		}
		set = append(set, exchange.Field{Name: "anthropic_beta", Value: b})
	}
	return exchange.Splice(body, set)
}

// escape is a model's id as one part of a path: its colons, and the slashes of
// an ARN, are no separators.
func escape(id string) string {
	var b strings.Builder
	for i := range len(id) {
		switch c := id[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("-_.~", c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func (c *carrier) sign(r *http.Request, body []byte) error {
	if c.o.APIKey != "" {
		r.Header.Set("Authorization", "Bearer "+c.o.APIKey)
		return nil
	}
	sum := sha256.Sum256(body)
	err := c.signer.SignHTTP(r.Context(), c.o.aws(), r, hex.EncodeToString(sum[:]), Kind, c.o.Region, c.o.Now())
	if err != nil {
		return fmt.Errorf("sign the request: %w", err)
	}
	return nil
}

// counted is a count of Bedrock as one of the Messages API.
func counted(r *http.Response) (*http.Response, error) {
	const most = 1 << 20
	b, err := io.ReadAll(io.LimitReader(r.Body, most))
	if e := r.Body.Close(); err == nil {
		err = e
	}
	if err != nil {
		return nil, fmt.Errorf("read the count: %w", err)
	}
	if n := gjson.GetBytes(b, "inputTokens"); n.Type == gjson.Number {
		b = fmt.Appendf(nil, `{"input_tokens":%d}`, n.Int())
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
	return r, nil
}
