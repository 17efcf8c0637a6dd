package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"pollux/internal/editor"
)

// decide plays the user: it accepts or rejects the diff of $FILE, or changes it
// to the text of $TEXT.
func decide(what string) int {
	err := func() error {
		ctx := context.Background()
		path, err := editor.Find(ctx, self(), "", os.Getenv("FILE"))
		if err != nil {
			return err
		}
		return editor.WithClient(ctx, path, self(), func(ctx context.Context, c *editor.Client) error {
			diffs, err := c.Diffs(ctx)
			if err != nil {
				return err
			}
			for _, d := range diffs {
				if d.Path != os.Getenv("FILE") || d.State != editor.StateOpen {
					continue
				}
				switch what {
				case "edit":
					text, err := os.ReadFile(os.Getenv("TEXT"))
					if err != nil {
						return err
					}
					if err := c.Edit(ctx, d.ID, string(text)); err != nil {
						return err
					}
					_, err = c.Diffs(ctx) // the edit has arrived
					return err
				case "accept":
					_, err := c.Accept(ctx, editor.DiffAccept{ID: d.ID, Content: d.Text()})
					return err
				case "reject":
					return c.Reject(ctx, d.ID)
				}
			}
			return errors.New("there is no such diff")
		})
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func awaitFile(ts *testscript.TestScript, pattern, text string) {
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		names, _ := filepath.Glob(ts.MkAbs(os.Expand(pattern, ts.Getenv)))
		for _, name := range names {
			if data, err := os.ReadFile(name); err == nil && strings.Contains(string(data), text) {
				return
			}
		}
	}
	ts.Fatalf("%s never held %q", pattern, text)
}
