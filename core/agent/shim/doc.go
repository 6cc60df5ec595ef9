// Package shim is the process between the host and an agent program: it starts
// the program, ends all that the program started, and tells the host so. It is
// the same binary as the host, and links in as little as it can: see init.
//
// What the program is, where its output goes and how long it may run is the
// host's affair and never enters here.
package shim
