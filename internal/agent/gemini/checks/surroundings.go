package checks

import (
	"context"
	"net"
	"net/url"
	"os"
	"slices"
	"time"

	"pollux/internal/agent/gemini/settings"
	"pollux/internal/doctor"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/shell"
)

// Terminal checks whether Gemini CLI can ask questions here.
func (g *CLI) Terminal(_ context.Context, c *doctor.Checker) {
	for _, key := range []string{"CI", "GITHUB_ACTIONS"} {
		if os.Getenv(key) == "true" {
			c.Fail("terminal", shell.UnsetCommand(key),
				"%s=true makes Gemini CLI run without asking: no changes can be reviewed", key)
			return
		}
	}
	term := os.Getenv("TERM")
	if term == "dumb" {
		c.Warn("terminal", "use a full terminal, such as Emacs's M-x term or vterm",
			"TERM=dumb: Gemini CLI cannot draw its questions here")
		return
	}
	c.OK("terminal", "Gemini CLI can ask questions here (TERM=%s)", doctor.Short(term))
}

const proxyTimeout = 2 * time.Second

// Proxy checks the proxies through which Gemini CLI reaches its model.
func (g *CLI) Proxy(ctx context.Context, c *doctor.Checker) {
	var seen []string
	for _, key := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"} {
		value := os.Getenv(key)
		if value == "" || slices.Contains(seen, value) {
			continue
		}
		seen = append(seen, value)
		u, err := url.Parse(value)
		if err != nil || u.Host == "" {
			c.Fail("proxy", shell.UnsetCommand(key)+", or set it to http://HOST:PORT", "%s is not the URL of a proxy", key)
			continue
		}
		host := u.Host
		if u.Port() == "" {
			host = net.JoinHostPort(u.Hostname(), map[bool]string{true: "443", false: "80"}[u.Scheme == "https"])
		}
		ctx, cancel := context.WithTimeout(ctx, proxyTimeout)
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", host)
		cancel()
		if err != nil {
			c.Warn("proxy", "start the proxy, or "+shell.UnsetCommand(key),
				"the proxy in %s (%s) does not answer: Gemini CLI cannot reach its model; the companion does not need it",
				key, doctor.Short(host))
			continue
		}
		conn.Close()
		c.OK("proxy", "the proxy in %s answers; Gemini CLI reaches the companion without it", key)
	}
	if path := os.Getenv("NODE_EXTRA_CA_CERTS"); path != "" {
		if _, err := disk.ReadFile(path, 16<<20); err != nil {
			c.Warn("proxy", shell.UnsetCommand("NODE_EXTRA_CA_CERTS")+", or correct it",
				"the file in NODE_EXTRA_CA_CERTS cannot be read: %v", doctor.Reason(err))
		}
	}
}

// Disk checks for free space wherever Pollux and Gemini CLI write files.
func (g *CLI) Disk(_ context.Context, c *doctor.Checker) {
	var own []doctor.Directory
	if home, err := settings.Home(nil); err == nil {
		own = append(own, doctor.Directory{Holds: "Gemini CLI's own files", Path: home})
	}
	doctor.Disk(c, own...)
}
