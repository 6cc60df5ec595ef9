package trace

import (
	"strconv"
)

// relabel names what could not be told when a call arrived, the calls of a
// session being in order:
//
//   - a call whose reply the client threw away, and asked again for in the
//     same words, is a retry: of repeats in one lineage the one that is
//     continued stays, else the last one
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
		retry := earlier
		if continued[earlier.ID] {
			retry = c
		} else {
			last[k] = c
		}
		if !continued[retry.ID] {
			retry.Lineage, retry.Kind = session+"/"+string(Retry)+strconv.Itoa(retries), Retry
			retries++
		}
	}
}
