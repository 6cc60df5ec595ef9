package command

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// tapReader is what is known of a report so far.
type tapReader struct {
	out        *report
	plan, last int // tests of the plan, or -1; the number of the last test
	seen       map[int]bool
}

// readTAP reads the Test Anything Protocol, its subtests left to their parent.
// A plan has to be there, and to be kept: without one a program that ended
// early looks like one that passed.
func readTAP(r io.Reader, out *report) error {
	t := &tapReader{out: out, plan: -1, seen: map[int]bool{}}
	text, _ := decoded(r)
	var err error
	for l := range lines(text, &err) {
		if err := t.line(l.text); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	if t.plan < 0 {
		return errors.New("it is no TAP: there is no plan, such as 1..3")
	}
	for n := range t.seen {
		if n > t.plan {
			out.broken = append(out.broken, fmt.Sprintf("%d tests of a plan of %d", len(t.seen), t.plan))
			return nil
		}
	}
	if n := len(t.seen); n < t.plan {
		out.unseen = append(out.unseen, unseen{min(t.plan-n, mostUnseen), fmt.Sprintf("%d tests of a plan of %d", n, t.plan)})
	}
	return nil
}

func (t *tapReader) line(text string) error {
	if n, ok := strings.CutPrefix(text, "1.."); ok {
		n, _, _ = strings.Cut(n, " ")
		if count, err := strconv.Atoi(n); err == nil {
			if t.plan >= 0 {
				t.out.broken = append(t.out.broken, "there is a second plan: "+text)
			}
			t.plan = count
		}
		return nil
	}
	if why, ok := strings.CutPrefix(text, "Bail out!"); ok {
		t.out.broken = append(t.out.broken, "Bail out!"+why)
		return nil
	}
	rest, bad := strings.CutPrefix(text, "not ok")
	if !bad {
		var ok bool
		if rest, ok = strings.CutPrefix(text, "ok"); !ok {
			return nil
		}
	}
	if rest != "" && rest[0] != ' ' {
		return nil // a word that begins so
	}
	return t.test(rest, bad)
}

// test takes what stands behind ok or not ok.
func (t *tapReader) test(rest string, bad bool) error {
	rest, directive, _ := strings.Cut(rest, " # ")
	number, name := description(rest)
	if t.last++; number >= 0 {
		t.last = number
	}
	if t.seen[t.last] {
		t.out.broken = append(t.out.broken, fmt.Sprintf("test %d is there twice", t.last))
	}
	t.seen[t.last] = true
	found := test{name: name, outcome: passed}
	if name == "" {
		found.name = fmt.Sprintf("test %d", t.last)
	}
	if bad {
		found.outcome = failed
	}
	if d := strings.ToUpper(directive); strings.HasPrefix(d, "SKIP") || bad && strings.HasPrefix(d, "TODO") {
		found.outcome = skipped
	}
	return t.out.add(found)
}

// description is the number of a test, or -1, and what stands behind it.
func description(text string) (number int, name string) {
	text, number = strings.TrimSpace(text), -1
	if first, rest, _ := strings.Cut(text, " "); first != "" && strings.Trim(first, "0123456789") == "" {
		if n, err := strconv.Atoi(first); err == nil {
			number = n
		}
		text = strings.TrimSpace(rest)
	}
	return number, strings.TrimSpace(strings.TrimPrefix(text, "- "))
}
