package copilotide

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"pollux/internal/ide/blocking"
	"pollux/internal/sys/disk"
)

// A Lock is a lock file, which leads agents to a server. Its name is UUID.lock.
type Lock struct {
	// SocketPath is the path of a unix socket, with the Scheme "unix", or the name of a
	// pipe, with "pipe".
	SocketPath string `json:"socketPath"`
	Scheme     string `json:"scheme"`
	// Headers are sent with each request.
	Headers map[string]string `json:"headers"`
	// PID is the server's process. The agent skips the lock of a process that is not
	// running.
	PID     int    `json:"pid"`
	IDEName string `json:"ideName"`
	// Timestamp is in milliseconds since the Unix epoch.
	Timestamp int64 `json:"timestamp"`
	// WorkspaceFolders are real paths. The agent connects automatically only if its
	// folder is one of them.
	WorkspaceFolders []string `json:"workspaceFolders"`
	// IsTrusted makes the agent trust its folder without a question. So it is set only
	// if the user has told the editor that the folder is trusted.
	IsTrusted bool `json:"isTrusted,omitempty"`
	// Pollux marks a companion's lock; nil in the locks of other programs.
	Pollux *blocking.Mark `json:"pollux,omitempty"`
}

// EnvHome names the variable with the agent's directory. If it is set, the agent reads
// the locks there only.
const EnvHome = "COPILOT_HOME"

// Home returns the directory of the agent's settings and lock files.
func Home() (string, error) {
	if home := os.Getenv(EnvHome); home != "" {
		return filepath.Abs(home)
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".copilot"), err
}

// Dir returns the directory of the lock files.
func Dir() (string, error) {
	home, err := Home()
	if err != nil {
		return "", fmt.Errorf("cannot find the directory of Copilot CLI's lock files: %w", err)
	}
	return filepath.Join(home, "ide"), nil
}

// A Found is a lock file in a directory.
type Found struct {
	Lock
	Path string
	// Skipped is why the agent does not use the file, or nil.
	Skipped error
}

// required are the fields without any of which the agent skips a lock.
var required = []string{"socketPath", "scheme", "headers", "pid", "ideName", "timestamp"}

// Find returns the lock files in a directory, by name.
func Find(dir string) (found []Found) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if filepath.Ext(e.Name()) != blocking.Ext {
			continue
		}
		f := Found{Path: filepath.Join(dir, e.Name())}
		data, err := disk.ReadFile(f.Path, blocking.MaxLock)
		var fields map[string]json.RawMessage
		if err == nil {
			err = errors.Join(json.Unmarshal(data, &fields), json.Unmarshal(data, &f.Lock))
		}
		for _, key := range required {
			if fields[key] == nil && err == nil {
				err = fmt.Errorf("it has no %s", key)
			}
		}
		f.Skipped = err
		found = append(found, f)
	}
	return found
}

// newUUID returns a random UUID, of version 4.
func newUUID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
