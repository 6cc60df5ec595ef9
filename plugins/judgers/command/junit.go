package command

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// readJUnit reads JUnit XML, with one suite or several at its root.
func readJUnit(text string, out *report) error {
	d := xml.NewDecoder(strings.NewReader(text))
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

func isSuite(e xml.StartElement) bool {
	return e.Name.Local == "testsuites" || e.Name.Local == "testsuite"
}

// readSuite reads a suite and those in it, and counts the failures and errors
// that it shows. A suite may fail apart from its tests, and may say that more
// failed than it shows; test cases stand directly in it and nowhere else.
func readSuite(d *xml.Decoder, suite xml.StartElement, out *report, depth int) (shown int, err error) {
	if depth > 100 {
		return 0, errors.New("its suites are too deep in each other")
	}
	for {
		t, err := d.Token()
		if err != nil {
			return shown, err
		}
		switch e := t.(type) {
		case xml.StartElement:
			n := 0
			switch {
			case isSuite(e):
				n, err = readSuite(d, e, out, depth+1)
			case e.Name.Local == "testcase":
				n, err = readCase(d, e, out)
			case e.Name.Local == "failure" || e.Name.Local == "error":
				n, err = 1, d.Skip()
				out.broken = append(out.broken, strings.TrimSpace("suite "+attribute(suite, "name"))+" failed apart from its tests")
			default:
				err = d.Skip()
			}
			if err != nil {
				return shown, err
			}
			shown += n
		case xml.EndElement:
			said := min(number(suite, "failures")+number(suite, "errors"), mostUnseen)
			if said > shown {
				name := strings.TrimSpace("suite " + attribute(suite, "name"))
				out.unseen = append(out.unseen, unseen{said - shown, fmt.Sprintf("%s counts %d failures and shows %d", name, said, shown)})
			}
			return max(said, shown), nil
		}
	}
}

// readCase reads a test case and counts its failures and errors.
func readCase(d *xml.Decoder, start xml.StartElement, out *report) (shown int, err error) {
	var c struct {
		Name    string     `xml:"name,attr"`
		Class   string     `xml:"classname,attr"`
		Status  string     `xml:"status,attr"`
		Failure []struct{} `xml:"failure"`
		Error   []struct{} `xml:"error"`
		Skipped []struct{} `xml:"skipped"`
	}
	if err := d.DecodeElement(&c, &start); err != nil {
		return 0, err
	}
	shown = len(c.Failure) + len(c.Error)
	found := test{c.Class, c.Name, passed}
	switch status := strings.ToLower(c.Status); {
	case shown > 0:
		found.outcome = failed
	case len(c.Skipped) > 0 || slices.Contains([]string{"notrun", "skipped", "disabled", "ignored", "pending"}, status):
		found.outcome = skipped
	case !slices.Contains(passing, status):
		found.outcome, shown = failed, 1
	}
	out.tests = append(out.tests, found)
	return shown, nil
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
