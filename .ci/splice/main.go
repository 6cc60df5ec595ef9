// Command splice FILE NAME TEXT puts the file TEXT between the lines
// <!-- NAME --> and <!-- /NAME --> of FILE.
package main

import (
	"fmt"
	"os"
	"strings"
)

func main() {
	if err := splice(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "splice:", err)
		os.Exit(1)
	}
}

func splice(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("want FILE NAME TEXT, got %d arguments", len(args))
	}
	file, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	text, err := os.ReadFile(args[2])
	if err != nil {
		return err
	}
	begin, end := "<!-- "+args[1]+" -->\n", "<!-- /"+args[1]+" -->\n"
	before, rest, ok := strings.Cut(string(file), begin)
	_, after, found := strings.Cut(rest, end)
	if !ok || !found {
		return fmt.Errorf("%s has no lines %q and %q", args[0], strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return os.WriteFile(args[0], []byte(before+begin+string(text)+end+after), 0o644)
}
