// Package agent starts agent programs and ends them: every process that a
// program started is dead before Run returns, however it tried to get away.
//
// A program runs under a shim, which is this same binary (see package shim). The
// shim holds a pipe from the host: when the host dies, even by kill -9, all is
// killed at once. Where the machine allows it a second shim is process 1 of
// new process and mount namespaces, so that the kernel itself keeps the
// promise; elsewhere the shim is a child subreaper that walks its descendants.
//
// In these namespaces folders can be hidden from a program, too, so that one
// that works in a run folder sees nothing of it but its own workspace. Root
// there has lost the capabilities to undo that; it has the others.
//
// What an invoker plans, what its output means, and what a run was worth
// never enter here.
package agent
