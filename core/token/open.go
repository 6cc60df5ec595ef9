package token

import "fmt"

// Bytes is the name of the tokenizer of NewBytes in a pipeline file.
const Bytes = "bytes"

// Open opens the tokenizer that a pipeline file names; nil where it names none.
// The markers are those of the model's format.
func Open(name string, markers []string) (Tokenizer, error) {
	switch name {
	case "":
		return nil, nil
	case Bytes:
		return NewBytes(markers), nil
	}
	return nil, fmt.Errorf("tokenizer %q is not built yet; there is: %s", name, Bytes)
}
