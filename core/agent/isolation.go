package agent

import (
	"bufio"
	"os"
	"slices"
	"time"

	"github.com/penstock-dev/penstock/core/agent/shim"
)

// probeIsolation has a shim try, and start nothing.
func (r *Runner) probeIsolation() (isolation string, hides bool) {
	isolation = IsolationWalk
	if r.walk || len(r.shim) == 0 {
		return isolation, false
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return isolation, false
	}
	defer null.Close()
	orders, mine, err := os.Pipe()
	if err != nil {
		return isolation, false
	}
	defer mine.Close()
	defer orders.Close()
	reports, theirs, err := os.Pipe()
	if err != nil {
		return isolation, false
	}
	defer reports.Close()
	cmd := shimCommand(r.shim[0], append(slices.Clone(r.shim[1:]), shim.ArgProbe), []*os.File{null, null, null, orders, theirs})
	if err := cmd.Start(); err != nil {
		theirs.Close()
		return isolation, false
	}
	theirs.Close()
	_ = reports.SetReadDeadline(time.Now().Add(patience))
	lines := bufio.NewScanner(reports)
	for lines.Scan() {
		switch got, err := shim.ParseReport(lines.Text()); {
		case err != nil:
		case got.Kind == shim.Isolated:
			isolation = got.Text
		case got.Kind == shim.Hides:
			hides = true
		case got.Kind == shim.Noted:
			r.log.Debug("tried the isolation of agents", "reason", got.Text)
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return isolation, hides
}
