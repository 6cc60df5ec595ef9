// Package exchange is one HTTP exchange with a model server: a request out,
// and a body or server-sent events back, with bounds on every wait. It says of
// each failure whether the request can have run, keeps the server's key out of
// every message, and never takes a cut stream for a whole one.
//
// What never enters: what any server's JSON means, and trying again.
package exchange
