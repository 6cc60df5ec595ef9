// Package plugin is the one registry of components, whatever carries them:
// compiled in, a process (hashicorp/go-plugin, gRPC), a WASM module (wazero)
// or a program that speaks JSON-RPC on its standard streams.
//
//	r := plugin.New(plugin.Options{CacheDir: dir, Log: log, Builtin: component.Registered()})
//	defer r.Close(ctx)
//	err := r.Add(ctx, plugin.Source{Key: "judger/exact42", ProcessGo: "/home/me/exact42"})
//	j, err := r.Judger(ctx, "exact42", nil)
//	verdict, err := j.Judge(ctx, request)
//
// A plugin that is loaded is built, hashed, copied under its hash and
// described once; what was hashed is what runs. Nothing above this package
// knows which transport a component came over: every one is called with the
// one JSON form of its kind.
//
// What never enters: what a judger, a hook or a format does, and the pipeline
// file.
package plugin
