// Package agent is a small reference agent, `penstock dev agent`: a client of
// the Anthropic Messages API that streams, with tools from MCP servers on
// standard input and output and, if asked, a shell. It behaves as agent
// programs do on the wire and prints what Claude Code prints with
// --output-format stream-json, so that the demo needs no network and what
// works with the one works with the other.
//
// What never enters: the gateway's side of anything. It is a program like any
// other agent, and knows the engine by its address and key alone.
package agent
