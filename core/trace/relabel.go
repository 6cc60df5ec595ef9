package trace

import (
	"strconv"
)

// relabel names what could not be told when a call arrived, the calls of a
// session being in order:
//
//   - a call whose reply the client never got whole, and asked again for in
//     the same words, is a retry: of such repeats in one lineage the one that
//     is continued stays, else the last one. Repeats of a reply that was
//     delivered are votes, and stay
//   - a side conversation that the main one turns out to continue is main
//   - without a main lineage, the first one that is no probe is main
func relabel(session string, all []*restored) {
	markRetries(session, all)
	rename := map[string]bool{}
	byID := map[string]*Call{}
	main := false
	for _, v := range all {
		c := v.call
		byID[c.ID] = c
		main = main || c.Kind == Main
		if p := byID[c.Parent]; p != nil && c.Kind == Main && p.Kind == Side {
			rename[p.Lineage] = true
		}
	}
	for _, v := range all {
		c := v.call
		if !main && c.Lineage != "" && c.Kind != Probe && c.Kind != Retry {
			main, rename[c.Lineage] = true, true
		}
		if rename[c.Lineage] {
			c.Lineage, c.Kind = session+"/"+string(Main)+"0", Main
		}
	}
}

// markRetries finds answered calls that repeat each other within a lineage.
func markRetries(session string, all []*restored) {
	continued := map[string]bool{}
	for _, v := range all {
		continued[v.call.Parent] = true
	}
	retries := 0
	last := map[key]*Call{} // of each request, the call that stays so far
	for _, v := range all {
		c := v.call
		if c.Status != CallOK || c.Lineage == "" || len(v.chat) == 0 {
			continue
		}
		k := key{}
		for _, m := range v.chat {
			k = chain(k, m)
		}
		k = chain(k, sumString(c.Lineage+" "+c.Parent))
		earlier := last[k]
		if earlier == nil {
			last[k] = c
			continue
		}
		retry := c
		if thrownAway(earlier, continued) {
			retry, last[k] = earlier, c
		} else if !thrownAway(c, continued) {
			continue // both were wanted, as votes are
		}
		retry.Lineage, retry.Kind = session+"/"+string(Retry)+strconv.Itoa(retries), Retry
		retries++
	}
}

// thrownAway reports whether the client never got the end of a reply and never
// went on from it.
func thrownAway(c *Call, continued map[string]bool) bool {
	return !c.Delivered && !continued[c.ID]
}
