// Package proto is the gRPC contract of plugins that run as a process:
// plugin.proto, the code generated from it, and the handshake. Authors use
// sdk/serve; other languages generate from plugin.proto. It never enters a WASM
// guest, as sdk/serve imports it only where it builds a process.
package proto

// Generating needs protoc, protoc-gen-go v1.36.12 and protoc-gen-go-grpc v1.6.0.
//
//go:generate protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative plugin.proto

// Version is the major version of the contract, sent in the handshake.
const Version = 1

// CookieKey and CookieValue are the environment variable by which a plugin
// knows that a host started it. It is no secret.
const (
	CookieKey   = "PENSTOCK_PLUGIN"
	CookieValue = "8c9f5d1e-penstock-plugin"
)

// Name is the one entry of the plugin set; Describe says what is behind it.
const Name = "plugin"

// MaxMessage is the largest message in bytes, in either direction.
const MaxMessage = 64 << 20

// MaxInline is the size in bytes over which a document or a row comes as a
// file, to a plugin with the capability CapabilityFiles.
const MaxInline = 8 << 20

// CapabilityFiles says that a plugin reads large documents from files.
const CapabilityFiles = "files"
