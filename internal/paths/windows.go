package paths

import (
	"net/url"
	"slices"
	"strings"
)

// FromURL returns the path in a file's URL. ok is false for the URL of something else,
// and for one of another machine. On Windows, the host of the URL is the server of a
// shared folder.
func FromURL(text string) (path string, ok bool) { return local.fromURL(text) }

// ToURL returns the URL of a file, given its absolute path.
func ToURL(path string) string { return local.toURL(path) }

// Special returns why no file may have the path, or "". On Windows some names stand for a
// device or for a part of a file, and a dot or a space at the end of a name is lost, so
// that the path would lead to a different file.
func Special(path string) string { return local.special(path) }

// OnOtherServer reports whether a path is on a network share of Windows that holds none of
// the roots. It does not read the disk: a look at such a file sends the user's credentials
// to the server that the path names.
func OnOtherServer(roots []string, path string) bool { return local.onOtherServer(roots, path) }

func (s style) onOtherServer(roots []string, path string) bool {
	share := s.share(path)
	return share != "" && !slices.ContainsFunc(roots, func(root string) bool { return s.key(s.share(root)) == s.key(share) })
}

// share returns the server and the share of a path, or "" for a path on a drive. A device
// is treated as a share.
func (s style) share(path string) string {
	if !s.windows() {
		return ""
	}
	path = strings.ReplaceAll(path, "/", `\`)
	for _, prefix := range []string{`\??\`, `\\.\`} { // other names of the same
		if rest, ok := strings.CutPrefix(path, prefix); ok {
			path = `\\?\` + rest
		}
	}
	rest, ok := strings.CutPrefix(plain(path), `\\`)
	names := strings.SplitN(rest, `\`, 3)
	if !ok || len(names) < 2 {
		return ""
	}
	return names[0] + `\` + names[1]
}

func (s style) windows() bool { return s.separator == `\` }

func (s style) fromURL(text string) (path string, ok bool) {
	const scheme = "file://"
	if len(text) >= len(scheme) && strings.EqualFold(text[:len(scheme)], scheme) {
		rest := text[len(scheme):]
		if s.windows() && hasDrive(rest) { // not valid, but some programs write it
			text = scheme + "/" + rest
		} else if host, below, ok := strings.Cut(rest, "/"); ok && s.windows() {
			// The library decodes no %24 in a host, such as that of \\wsl$\Ubuntu.
			if name, err := url.PathUnescape(host); err == nil && !strings.ContainsAny(name, `/\%?#@:`) {
				text = scheme + name + "/" + below
			}
		}
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "file" || u.Path == "" {
		return "", false
	}
	path, host := u.Path, u.Host
	if strings.EqualFold(host, "localhost") {
		host = ""
	}
	if !s.windows() {
		return path, host == ""
	}
	path = strings.ReplaceAll(path, "/", `\`)
	switch {
	case host != "":
		return `\\` + host + path, true
	case hasDrive(path[1:]):
		if len(path) == len(`\C:`) { // which is not the root, but the working directory there
			path += `\`
		}
		return strings.ToUpper(path[1:2]) + path[2:], true
	case strings.HasPrefix(path, `\\`): // file:////server/share
		return path, true
	}
	return "", false
}

func (s style) toURL(path string) string {
	u := url.URL{Scheme: "file", Path: path}
	if s.windows() {
		u.Path = strings.ReplaceAll(plain(path), `\`, "/")
		if unc, ok := strings.CutPrefix(u.Path, "//"); ok {
			u.Host, u.Path, _ = strings.Cut(unc, "/")
			u.Path = "/" + u.Path
		} else if hasDrive(u.Path) {
			u.Path = "/" + u.Path
		}
	}
	return u.String()
}

// hasDrive reports whether a path starts with a drive.
func hasDrive(path string) bool {
	return len(path) > 1 && path[1] == ':' && 'a' <= path[0]|0x20 && path[0]|0x20 <= 'z'
}

// plain returns a path of Windows without the prefix \\?\, which lifts limits of the
// system and changes nothing about where the path leads.
func plain(path string) string {
	rest, ok := strings.CutPrefix(path, `\\?\`)
	if !ok {
		return path
	}
	const unc = `UNC\`
	if len(rest) > len(unc) && strings.EqualFold(rest[:len(unc)], unc) {
		return `\\` + rest[len(unc):]
	}
	if hasDrive(rest) {
		return rest
	}
	return path
}

func (s style) special(path string) string {
	if !s.windows() {
		return ""
	}
	path = plain(path)
	if hasDrive(path) {
		path = path[2:]
	}
	for _, name := range strings.FieldsFunc(path, func(r rune) bool { return r == '\\' || r == '/' }) {
		switch {
		case name == "." || name == "..":
		case strings.Contains(name, ":"):
			return name + " stands for a part of a file"
		case strings.TrimRight(name, ". ") != name:
			return "Windows drops the dot or space at the end of " + name
		case device(name):
			return name + " stands for a device"
		}
	}
	return ""
}

// device reports whether Windows treats a name as the name of a device, regardless
// of its extension.
func device(name string) bool {
	name, _, _ = strings.Cut(name, ".")
	name = strings.ToUpper(strings.TrimRight(name, " "))
	switch name {
	case "CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$":
		return true
	}
	for _, port := range []string{"COM", "LPT"} {
		if number, ok := strings.CutPrefix(name, port); ok && len([]rune(number)) == 1 {
			return strings.Contains("0123456789\u00b9\u00b2\u00b3", number)
		}
	}
	return false
}
