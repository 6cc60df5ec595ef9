package pipeline

import (
	"net/url"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// upstreamKeys are those of an upstream that have a field of their own; the
// others are in With.
var upstreamKeys = []string{"kind", "url", "api_key", "file"}

func (c *check) upstream(model *yaml.Node) Upstream {
	f := c.f
	n := f.get(model, "upstream")
	if n == nil {
		return Upstream{}
	}
	u := Upstream{Kind: f.text(n, "kind"), URL: f.text(n, "url"), APIKey: f.text(n, "api_key")}
	if file := f.get(n, "file"); file != nil {
		u.File = f.abs(f.resolve(file, file.Value))
		if f.exists(file, u.File, false) {
			c.hashFile(file, u.File)
		}
	}
	c.server(n, u.Kind)
	if u.Kind == "script" {
		c.scriptKeys(n)
		return u
	}
	if list := f.get(n, "fallback"); list != nil {
		for _, item := range list.Content {
			if !f.bad[item] {
				c.server(item, f.text(item, "kind"))
			}
		}
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if slices.Contains(upstreamKeys, k.Value) || f.bad[v] {
			continue
		}
		raw, err := f.toJSON(v, func(leaf *yaml.Node) []byte { return quoted(f.resolve(leaf, leaf.Value)) })
		if err != nil {
			c.jsonError(err)
			continue
		}
		value, err := decode(raw)
		if err != nil {
			f.errorf(f.at(v), "wrong-kind", "", "'%s': %s", k.Value, err)
			continue
		}
		if u.With == nil {
			u.With = map[string]any{}
		}
		u.With[k.Value] = value
	}
	return u
}

// server checks what an upstream, or one that stands in for it, says of itself.
func (c *check) server(n *yaml.Node, kind string) {
	f := c.f
	if key := f.get(n, "api_key"); key != nil {
		c.key(key, "a key")
	}
	for _, name := range []string{"access_key_id", "secret_access_key", "session_token"} {
		if v := f.get(n, name); v != nil {
			c.secret(v, "a credential")
		}
	}
	if headers := f.get(n, "headers"); headers != nil {
		for i := 0; i+1 < len(headers.Content); i += 2 {
			if secretHeader(headers.Content[i].Value) {
				c.key(headers.Content[i+1], "a secret header")
			}
		}
	}
	if kind == "" || kind == "script" {
		return
	}
	if k, _ := lookup(n, "file"); k != nil {
		f.errorf(f.at(k), "unknown-key", "remove it", "an upstream of kind %s has no 'file'", kind)
	}
	one, at := lookup(n, "url")
	urls, list := lookup(n, "urls")
	if one != nil {
		c.address(at)
	}
	if urls != nil && list.Kind == yaml.SequenceNode {
		for _, at := range list.Content {
			c.address(at)
		}
	}
	nowhere := one == nil && (urls == nil || !f.bad[list] && len(list.Content) == 0)
	switch {
	case kind == "bedrock" || !nowhere:
	case kind != "anthropic":
		f.errorf(f.at(n), "missing-key", "url: http://HOST:PORT", "an upstream of kind %s needs a 'url', or 'urls'", kind)
	case !c.hasKey(n):
		f.errorf(f.at(n), "missing-key", "api_key: ${env:ANTHROPIC_API_KEY}", "Anthropic's API needs an 'api_key', and none is taken from the environment unless the file names it")
	}
	for _, own := range ownKeys {
		if k, _ := lookup(n, own.key); k != nil && !slices.Contains(own.kinds, kind) {
			f.errorf(f.at(k), "unknown-key", "remove it", "an upstream of kind %s has no '%s', only %s has", kind, own.key, strings.Join(own.kinds, " and "))
		}
	}
}

// ownKeys are the keys that only some kinds of server have.
var ownKeys = []struct {
	key   string
	kinds []string
}{
	{"bearer", []string{"anthropic"}},
	{"thinking_budget", []string{"anthropic", "bedrock"}},
	{"region", []string{"bedrock"}},
	{"access_key_id", []string{"bedrock"}},
	{"secret_access_key", []string{"bedrock"}},
	{"session_token", []string{"bedrock"}},
}

// address holds a server's address to what can be dialled.
func (c *check) address(n *yaml.Node) {
	f := c.f
	if f.bad[n] {
		return
	}
	value := f.resolve(n, n.Value)
	if value == "" || reference.MatchString(value) {
		return // it is not known without the environment, or was reported
	}
	u, err := url.Parse(strings.TrimSpace(value))
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		f.errorf(f.at(n), "wrong-value", "for example http://127.0.0.1:8000/v1", "'%s' is no address of a server: it begins with http:// or https:// and a host", n.Value)
	case u.User != nil || u.RawQuery != "":
		f.errorf(f.at(n), "wrong-value", "use 'api_key' or 'headers'", "the address of a server holds no credentials and no query")
	}
}

// hasKey says whether a server is sent a key, or a header that holds one.
func (c *check) hasKey(n *yaml.Node) bool {
	if k, _ := lookup(n, "api_key"); k != nil {
		return true
	}
	headers := c.f.get(n, "headers")
	for i := 0; headers != nil && i+1 < len(headers.Content); i += 2 {
		if secretHeader(headers.Content[i].Value) {
			return true
		}
	}
	return false
}

// secret holds a value to come from elsewhere.
func (c *check) secret(v *yaml.Node, what string) {
	if !wholeReference(v.Value) {
		c.f.errorf(c.f.at(v), "secret", "write ${env:NAME} or ${file:PATH}", "%s doesn't belong in the file: it would be stored with each run", what)
	}
}

// key holds a value to come from elsewhere, and to be something.
func (c *check) key(v *yaml.Node, what string) {
	c.secret(v, what)
	f, ref := c.f, reference.FindStringSubmatch(v.Value)
	if ref == nil {
		return
	}
	if value, _, err := f.referenced(ref[1], ref[2]); err == nil && strings.TrimSpace(value) == "" && !f.unseen(v) {
		f.errorf(f.at(v), "unset", "set it, or leave the setting out", "%s is empty: %s holds nothing", what, v.Value)
	}
}

// secretHeader says whether a header holds a secret, by its name.
func secretHeader(name string) bool {
	name = strings.ToLower(name)
	for _, word := range []string{"auth", "key", "token", "secret", "cookie"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}

// scriptKeys holds kind script to what it reads.
func (c *check) scriptKeys(n *yaml.Node) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if k := n.Content[i]; k.Value != "kind" && k.Value != "file" && !c.f.bad[n.Content[i+1]] {
			c.f.errorf(c.f.at(k), "unknown-key", suggest("it takes: ", k.Value, []string{"kind", "file"}), "an upstream of kind script has no '%s'", k.Value)
		}
	}
	if k, _ := lookup(n, "file"); k == nil {
		c.f.errorf(c.f.at(n), "missing-key", "file: model.yaml", "an upstream of kind script needs 'file', its rules")
	}
}

func wholeReference(s string) bool {
	m := reference.FindString(s)
	return m != "" && m == s
}

// provider holds a model to what its kind of upstream can do.
func (c *check) provider(key, n *yaml.Node, m *Model) {
	at := func(name string) *yaml.Node {
		if v := c.f.get(n, name); v != nil {
			return v
		}
		return key
	}
	if m.Format == "auto" && c.f.enabled["format: auto"] && c.f.get(n, "template") == nil {
		c.f.errorf(c.f.at(at("format")), "format", "give it a 'template', a .jinja file or a tokenizer_config.json, or name the format", "'format: auto' needs the model's chat template to pick a format by")
	}
	if m.Upstream.Kind == "script" || m.Upstream.Kind == "" || m.Format == "" {
		return
	}
	if m.Upstream.Kind == "anthropic" && m.Format != "upstream" {
		c.f.errorf(c.f.at(at("format")), "format", "write 'format: upstream'", "an upstream of kind anthropic renders and parses by itself")
	}
	if m.Upstream.Kind == "anthropic" && m.Capture == "reported" {
		c.f.errorf(c.f.at(at("capture")), "capture", "use 'capture: text'", "an upstream of kind anthropic gives no token ids")
	}
}
