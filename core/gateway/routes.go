package gateway

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/penstock-dev/penstock/core/wire"
)

// maxRetryAfter is in seconds: clients give up at once on more.
const maxRetryAfter = 60

// SessionHeader carries a session's token for clients whose own key must stay
// what it is.
const SessionHeader = "X-Penstock-Session"

// inbound is one HTTP request, after its route was found.
type inbound struct {
	w       http.ResponseWriter
	r       *http.Request
	id      string   // of this request, for the client's logs
	path    string   // without the session's token
	tokens  []string // all that may be a session's token, best first
	dialect *Dialect // in which errors are answered
	target  Target
	own     bool      // the path is one of the dialect's own
	sent    *incoming // the body
}

// ServeHTTP implements http.Handler.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	in := g.inbound(w, r)
	defer g.recover(in)
	switch {
	case !g.hosts[strings.ToLower(r.Host)]:
		in.fail(g.foreign(in, "host"))
	case in.path == "/livez":
		in.status(http.StatusOK, `{"status":"ok"}`)
	case in.path == "/readyz":
		g.readyz(in)
	case r.Method == http.MethodOptions && foreignOrigin(r, g.origins):
		in.fail(wire.Errorf(wire.Forbidden, "requests of other origins are refused"))
	case isControl(in.r):
		g.serveControl(in)
	case isProbe(r.Method, in.path):
		in.status(http.StatusOK, "")
	case in.own && r.Header.Get("Upgrade") != "":
		in.refuseUpgrade()
	case in.own && in.target.Count:
		g.serveCount(in)
	case in.own:
		g.serveGeneration(in)
	default:
		g.serveOther(in)
	}
	in.linger()
}

// inbound reads the route and the credentials of a request.
func (g *Gateway) inbound(w http.ResponseWriter, r *http.Request) *inbound {
	in := &inbound{w: w, r: r, id: requestID(), sent: &incoming{ReadCloser: r.Body}}
	in.path, in.tokens = credentials(r)
	in.target, in.dialect = g.route(in.path)
	if in.own = in.dialect != nil; !in.own {
		in.dialect = g.guess(in)
	}
	query := r.URL.Query()
	if name := in.dialect.KeyParam; name != "" && query.Get(name) != "" && !isControl(r) {
		in.tokens = append(in.tokens, query.Get(name))
	}
	if d := in.dialect; d.Unframed != nil && in.target.Stream && query.Get("alt") != "sse" {
		unframed := *d
		unframed.Dialect, in.dialect = d.Unframed, &unframed
	}
	h := w.Header()
	h.Set("Request-Id", in.id)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	return in
}

// credentials splits a path into the route and the token in front of it, and
// collects what else may be a token.
func credentials(r *http.Request) (path string, tokens []string) {
	path = r.URL.Path
	if rest, ok := strings.CutPrefix(path, "/s/"); ok {
		token, route, _ := strings.Cut(rest, "/")
		path, tokens = "/"+route, append(tokens, token)
	}
	for strings.HasPrefix(path, "//") { // a base URL that ends in a slash
		path = path[1:]
	}
	for _, name := range []string{SessionHeader, "X-Api-Key", "X-Goog-Api-Key", "Api-Key"} {
		if key := r.Header.Get(name); key != "" {
			tokens = append(tokens, key)
		}
	}
	if scheme, key, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		tokens = append(tokens, strings.TrimSpace(key))
	}
	return path, tokens
}

// authorize finds the session of a request. Of several tokens, the first
// that belongs to a session counts. No token says 401, and a foreign origin
// 403 even with a good one, as does one whose session's time is over.
func (g *Gateway) authorize(in *inbound) (*Session, *wire.Error) {
	s := g.find(in.tokens)
	if s == nil {
		return nil, g.unknown(in.tokens)
	}
	if foreignOrigin(in.r, g.origins) {
		return nil, wire.Errorf(wire.Forbidden, "requests of other origins are refused")
	}
	return s, nil
}

func (g *Gateway) find(tokens []string) *Session {
	for _, t := range tokens {
		hash := sha256.Sum256([]byte(t))
		g.mu.Lock()
		s := g.sessions[hash]
		g.mu.Unlock()
		if s != nil && subtle.ConstantTimeCompare(hash[:], s.hash[:]) == 1 && s.ctx.Err() == nil {
			return s
		}
	}
	return nil
}

// unknown says why no token is that of an open session.
func (g *Gateway) unknown(tokens []string) *wire.Error {
	for _, t := range tokens {
		hash := sha256.Sum256([]byte(t))
		g.mu.Lock()
		s := g.sessions[hash]
		_, late := g.late[hash]
		g.mu.Unlock()
		if late || s != nil && s.overdue() {
			return overtime()
		}
	}
	return wire.Errorf(wire.Unauthorized, "no open session has this key")
}

// isOperator reports whether a request carries the operator's token.
func (g *Gateway) isOperator(in *inbound) bool {
	var none [sha256.Size]byte
	ok := 0
	for _, t := range in.tokens {
		hash := sha256.Sum256([]byte(t))
		ok |= subtle.ConstantTimeCompare(hash[:], g.operator[:])
	}
	return ok == 1 && g.operator != none
}

// foreign is the refusal of a request that came under another name.
func (g *Gateway) foreign(in *inbound, what string) *wire.Error {
	if strings.HasPrefix(in.path, "/v1/") && g.find(in.tokens) == nil {
		return wire.Errorf(wire.Unauthorized, "no open session has this key")
	}
	return wire.Errorf(wire.Forbidden, "requests under another %s are refused", what)
}

// foreignOrigin says that a web page of another origin is behind a request.
func foreignOrigin(r *http.Request, own map[string]bool) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
	default:
		return true
	}
	for _, origin := range r.Header.Values("Origin") {
		host, ok := strings.CutPrefix(strings.ToLower(origin), "http://")
		if !ok || !own[host] {
			return true
		}
	}
	return false
}

// isProbe reports requests with which clients only see whether somebody is
// there.
func isProbe(method, path string) bool {
	switch path {
	case "/", "/api/hello":
		return method == http.MethodHead || method == http.MethodGet
	}
	return false
}

func (g *Gateway) readyz(in *inbound) {
	if g.closing.Load() {
		in.status(http.StatusServiceUnavailable, `{"ready":false,"reason":"closing"}`)
		return
	}
	in.status(http.StatusOK, `{"ready":true}`)
}

// serveModels lists the session's models, or shows the one of a name.
func (g *Gateway) serveModels(in *inbound, name string) {
	s, refused := g.authorize(in)
	if refused != nil {
		in.fail(refused)
		return
	}
	if in.r.Method != http.MethodGet && in.r.Method != http.MethodHead {
		in.wrongMethod(http.MethodGet, http.MethodHead)
		return
	}
	s.touch()
	m := s.spec.Model
	if name == "" {
		in.body(http.StatusOK, in.dialect.Models(m.names()))
	} else if ok, _ := m.accept(name); ok {
		in.body(http.StatusOK, in.dialect.Model(name))
	} else {
		in.fail(wire.Errorf(wire.NotFound, "model: %s (this session serves %s)", name, m.served()))
	}
}

// serveOther answers what is no generation, count, probe or control: the list
// of models, one model, or that there is no such thing.
func (g *Gateway) serveOther(in *inbound) {
	if name, ok := modelPath(in.path); ok {
		g.serveModels(in, name)
		return
	}
	if strings.HasPrefix(in.path, "/v1/responses/") {
		in.fail(wire.Errorf(wire.NoRoute, "no route %s %s: responses aren't stored here", in.r.Method, printable(in.path)))
		return
	}
	in.fail(wire.Errorf(wire.NoRoute, "no route %s %s", in.r.Method, printable(in.path)))
}

// modelPath reads /v1/models and /v1/models/NAME, and the same of Google's
// versions. A name may have slashes and colons of its own.
func modelPath(path string) (name string, ok bool) {
	for _, prefix := range []string{"/v1", "/v1beta", "/v1alpha"} {
		rest, found := strings.CutPrefix(path, prefix+"/models")
		if found && (rest == "" || rest[0] == '/') && !isGeminiMethod(path) {
			return strings.TrimPrefix(rest, "/"), true
		}
	}
	return "", false
}

// fail answers an error in the dialect's shape and returns its status.
func (in *inbound) fail(e *wire.Error) int {
	if e.Kind == wire.RateLimited || e.RetryAfter > 0 {
		after := min(max(e.RetryAfter, 1), maxRetryAfter)
		in.w.Header().Set("Retry-After", strconv.Itoa(after))
	}
	e.RequestID = in.id
	status, body := in.dialect.Error(e)
	in.body(status, body)
	return status
}

func (in *inbound) status(status int, body string) { in.body(status, []byte(body)) }

func (in *inbound) body(status int, body []byte) error {
	h := in.w.Header()
	if len(body) > 0 {
		h.Set("Content-Type", "application/json")
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	in.w.WriteHeader(status)
	_, err := in.w.Write(body)
	return err
}

// refuseUpgrade answers an attempt at a WebSocket with the status on which
// clients go on over HTTP at once; others cost them seconds of retries.
func (in *inbound) refuseUpgrade() {
	_, body := in.dialect.Error(wire.Errorf(wire.Invalid, "this gateway speaks HTTP only"))
	in.w.Header().Set("Upgrade", "HTTP/1.1")
	in.body(http.StatusUpgradeRequired, body)
}

// recover answers a panic outside of a call; calls record their own.
func (g *Gateway) recover(in *inbound) {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler {
		panic(p)
	}
	g.log.Error("panic in the gateway", "request", in.id, "panic", p, "stack", string(debug.Stack()))
	in.fail(wire.Errorf(wire.Internal, "penstock failed; its log says more under %s", in.id))
}

func requestID() string { return "req_" + randomHex(12) }

// printable quotes a path for an error's words.
func printable(path string) string {
	if len(path) > 200 {
		path = path[:200] + "..."
	}
	return strconv.Quote(path)
}

// wrongMethod answers what has none of the methods that are served there.
func (in *inbound) wrongMethod(allowed ...string) {
	in.w.Header().Set("Allow", strings.Join(allowed, ", "))
	in.fail(wire.Errorf(wire.WrongMethod, "%s is asked with %s, not %s", printable(in.path), allowed[0], in.r.Method))
}
