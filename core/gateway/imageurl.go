package gateway

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/penstock-dev/penstock/sdk/chat"
)

// Nothing here ever fetches an image: its URL goes to the upstream as it came,
// and a format that renders here refuses it. But an engine that fetches stands in
// the network of whoever runs it, which an agent must not reach through it. So
// URLs of other kinds than http and https, files above all, are refused, and
// those whose host can only be a machine of that network. What a name stands for
// is not looked up; it may be another address by the time that it is fetched.

// checkImages refuses the URLs of images that a server must not be sent to.
func checkImages(messages []chat.Message) error {
	for i := range messages {
		for j := range messages[i].Parts {
			p := &messages[i].Parts[j]
			if err := checkImage(p); err != nil {
				return fmt.Errorf("message %d: %w", i, err)
			}
			for k := range p.Content {
				if err := checkImage(&p.Content[k]); err != nil {
					return fmt.Errorf("message %d: the result of a tool: %w", i, err)
				}
			}
		}
	}
	return nil
}

func checkImage(p *chat.Part) error {
	switch {
	case p.Type != chat.Image || p.Data != "" || strings.HasPrefix(p.URL, "data:"):
		return nil
	case p.URL == "":
		return errors.New("an image has neither data nor a URL")
	}
	u, err := url.Parse(p.URL)
	switch {
	case err != nil || u.Host == "":
		return fmt.Errorf("an image's URL %.100q is none; send the image itself in base64", p.URL)
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("an image's URL is of kind %s, not http or https; send the image itself in base64", u.Scheme)
	case !public(u.Hostname()):
		return fmt.Errorf("an image's URL names the host %q, which is not one of the internet; send the image itself in base64", u.Hostname())
	}
	return nil
}

// local are the domains that are never of the internet.
var local = []string{".localhost", ".local", ".internal", ".intranet", ".lan", ".corp", ".home", ".home.arpa", ".test", ".invalid", ".onion"}

// public reports whether a host can be one of the internet.
func public(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Zone() == "" && publicAddr(addr.Unmap())
	}
	labels := strings.Split(host, ".")
	last := labels[len(labels)-1]
	// Where the last label is a number, the whole is an address to most who read
	// it, in a form that only hides which one.
	if _, err := strconv.ParseUint(last, 0, 64); err == nil || last == "" || len(labels) < 2 {
		return false
	}
	for _, r := range host {
		if !(r == '.' || r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z') {
			return false
		}
	}
	for _, domain := range local {
		if strings.HasSuffix("."+host, domain) {
			return false
		}
	}
	return true
}

// reserved are the addresses that no host of the internet has, beside those that
// netip knows (RFC 6890), and those that stand for an address of IPv4.
var reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("64:ff9b::/96"),
	netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("100::/64"), netip.MustParsePrefix("2001::/23"),
	netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("fec0::/10"), netip.MustParsePrefix("::/96"),
}

func publicAddr(a netip.Addr) bool {
	if !a.IsGlobalUnicast() || a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() {
		return false
	}
	for _, p := range reserved {
		if p.Contains(a) {
			return false
		}
	}
	return true
}
