// Package pipeline is the pipeline file: it reads the YAML with positions,
// checks every key, every plugin setting and every expression before anything
// runs, and gives the engine a Pipeline in which nothing is left to guess.
//
// A file is read in two steps, because the schemas of plugins are known only
// once plugins are registered, and plugins are named in the file:
//
//	f, err := pipeline.Parse("pipeline.yaml", pipeline.ParseOptions{})
//	for _, s := range f.PluginSources() { ... register ... }
//	p, err := f.Check(catalog)
//
// Errors of both steps are Diagnostics: all that is wrong, sorted by position,
// each with the line, a caret and a way out.
//
// What never enters: starting plugins, calling models, running stages.
package pipeline
