package pipeline

import (
	"path/filepath"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// maxText bounds a file that stands for a text, in bytes.
const maxText = 4 << 20

// textFile is the text that stands for `{ file: PATH }` where a component takes
// text: the file's content, in which ${{ }} means what it means in the pipeline
// file, so that findings point into it. A line end at its very end, which
// editors put there, is left out. It is nil where n is no such object, or after
// an error, which is reported.
func (b *builder) textFile(n *yaml.Node, want *Type) (text *yaml.Node, isFile bool) {
	if want == nil || want.base != tString || n.Kind != yaml.MappingNode || len(n.Content) != 2 || n.Content[0].Value != "file" {
		return nil, false
	}
	f, v := b.c.f, n.Content[1]
	if !isText(v) || v.Value == "" {
		f.errorf(f.at(v), "wrong-kind", "file: prompt.md", "'file' is the path of a text")
		return nil, true
	}
	if strings.Contains(v.Value, opening) {
		f.errorf(f.at(v), "no-file", "choose between texts inside the file, or with 'if' between two stages", "the file is read once, at the start: its path takes no ${{ }}")
		return nil, true
	}
	path := f.abs(f.resolve(v, v.Value))
	raw, err := readAtMost(path, maxText)
	if err != nil {
		f.errorf(f.at(v), "no-file", "a relative path starts at the folder of the pipeline file: "+filepath.Dir(f.path),
			"the file '%s' can't be read: %s", v.Value, pathCause(err))
		return nil, true
	}
	content := strings.ReplaceAll(string(raw), "\r\n", "\n")
	if !utf8.ValidString(content) {
		f.errorf(f.at(v), "encoding", "save it as UTF-8", "the file '%s' is no UTF-8", v.Value)
		return nil, true
	}
	b.c.p.Hashes[path] = hash(raw)
	shown := v.Value
	if !filepath.IsAbs(shown) {
		shown = filepath.Join(filepath.Dir(f.path), shown)
	}
	text = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: strings.TrimSuffix(content, "\n"), Line: 1, Column: 1}
	f.origin[text] = &source{name: shown, text: content, whole: true}
	return text, true
}
