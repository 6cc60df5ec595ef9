package command

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/text/encoding/charmap"
)

// readJUnit reads JUnit XML, with one suite or several at its root.
func readJUnit(r io.Reader, out *report) error {
	text, utf16 := decoded(r)
	d := xml.NewDecoder(text)
	d.CharsetReader = func(name string, in io.Reader) (io.Reader, error) { return charset(name, in, utf16) }
	root := false
	for {
		t, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("it is no XML: %w", err)
		}
		start, ok := t.(xml.StartElement)
		if !ok {
			continue
		}
		if !isSuite(start) {
			return fmt.Errorf("it is no JUnit XML: its root is <%s>", start.Name.Local)
		}
		root = true
		if _, err := readSuite(d, start, out, 0); err != nil {
			return fmt.Errorf("it is no JUnit XML: %w", err)
		}
	}
	if !root {
		return errors.New("it is empty")
	}
	return nil
}

// charset decodes what the declaration of the XML names. A name that isn't known
// is not the program's fault.
func charset(name string, in io.Reader, utf16 bool) (io.Reader, error) {
	switch strings.ToLower(name) {
	case "utf-16", "utf-16le", "utf-16be", "ucs-2":
		if utf16 {
			return in, nil // is decoded already
		}
		return nil, fmt.Errorf("it is not in %s, as it says", name)
	case "us-ascii", "ascii":
		return in, nil
	case "iso-8859-1", "iso8859-1", "iso_8859-1", "latin1", "latin-1":
		return charmap.ISO8859_1.NewDecoder().Reader(in), nil
	case "iso-8859-15", "iso8859-15", "latin-9":
		return charmap.ISO8859_15.NewDecoder().Reader(in), nil
	case "windows-1252", "cp1252":
		return charmap.Windows1252.NewDecoder().Reader(in), nil
	}
	return nil, &limit{fmt.Sprintf("it is in the encoding %s, which is not known here; write it in UTF-8", name)}
}

func isSuite(e xml.StartElement) bool {
	return e.Name.Local == "testsuites" || e.Name.Local == "testsuite"
}

// shown are the failures and errors of a suite, its tests, and those of them that
// were skipped.
type shown struct{ failures, tests, skipped int }

func (s *shown) add(o shown) {
	s.failures += o.failures
	s.tests += o.tests
	s.skipped += o.skipped
}

// readSuite reads a suite and those in it, and counts what it shows. A suite may
// fail apart from its tests, and may say that it had more tests, or that more
// failed, than it shows; test cases stand directly in it and nowhere else.
func readSuite(d *xml.Decoder, suite xml.StartElement, out *report, depth int) (all shown, err error) {
	if depth > 100 {
		return all, errors.New("its suites are too deep in each other")
	}
	for {
		t, err := d.Token()
		if err != nil {
			return all, err
		}
		switch e := t.(type) {
		case xml.StartElement:
			var n shown
			switch {
			case isSuite(e):
				n, err = readSuite(d, e, out, depth+1)
			case e.Name.Local == "testcase":
				n, err = readCase(d, e, out)
			case e.Name.Local == "failure" || e.Name.Local == "error":
				n.failures, err = 1, d.Skip()
				out.broken = append(out.broken, strings.TrimSpace("suite "+attribute(suite, "name"))+" failed apart from its tests")
			default:
				err = d.Skip()
			}
			if err != nil {
				return all, err
			}
			all.add(n)
		case xml.EndElement:
			return hidden(suite, all, out), nil
		}
	}
}

// hidden notes what a suite counts and doesn't show, and returns all that is
// known of by now. Tests that were skipped may be left out of a report.
func hidden(suite xml.StartElement, all shown, out *report) shown {
	name := strings.TrimSpace("suite " + attribute(suite, "name"))
	failing := min(number(suite, "failures")+number(suite, "errors"), mostUnseen) - all.failures
	if failing > 0 {
		out.unseen = append(out.unseen, unseen{failing, fmt.Sprintf("%s counts %d failures and shows %d", name, failing+all.failures, all.failures)})
		all.failures += failing
	}
	left := max(number(suite, "skipped")+number(suite, "disabled")-all.skipped, 0)
	if more := number(suite, "tests") - all.tests; more > 0 {
		if lost := more - left - max(failing, 0); lost > 0 {
			out.unseen = append(out.unseen, unseen{lost, fmt.Sprintf("%s counts %d tests and shows %d", name, more+all.tests, all.tests)})
		}
		all.tests, all.skipped = all.tests+more, all.skipped+left
	}
	return all
}

// readCase reads a test case and counts its failures and errors.
func readCase(d *xml.Decoder, start xml.StartElement, out *report) (n shown, err error) {
	var c struct {
		Name    string     `xml:"name,attr"`
		Class   string     `xml:"classname,attr"`
		Status  string     `xml:"status,attr"`
		Failure []struct{} `xml:"failure"`
		Error   []struct{} `xml:"error"`
		Skipped []struct{} `xml:"skipped"`
	}
	if err := d.DecodeElement(&c, &start); err != nil {
		return n, err
	}
	n = shown{failures: len(c.Failure) + len(c.Error), tests: 1}
	found := test{c.Class, c.Name, passed}
	switch status := strings.ToLower(c.Status); {
	case n.failures > 0:
		found.outcome = failed
	case len(c.Skipped) > 0 || slices.Contains([]string{"notrun", "skipped", "disabled", "ignored", "pending"}, status):
		found.outcome, n.skipped = skipped, 1
	case !slices.Contains(passing, status):
		found.outcome, n.failures = failed, 1
	}
	return n, out.add(found)
}

// passing are the words for the status of a test case that ran and passed, in
// the reports that have one.
var passing = []string{"", "run", "ran", "passed", "pass", "success", "successful", "ok", "complete", "completed", "executed", "finished", "expected"}

func attribute(e xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// number is the count that an attribute gives; what is none counts nothing.
func number(e xml.StartElement, name string) int {
	n, err := strconv.Atoi(strings.TrimSpace(attribute(e, name)))
	if err != nil || n < 0 {
		return 0
	}
	return min(n, mostUnseen)
}
