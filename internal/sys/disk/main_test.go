package disk

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"pollux/internal/sys/systest"
)

func TestMain(m *testing.M) {
	systest.Main(m, map[string]func() error{
		// Replaces $SYS_TEST_FILE, and stops before the new file has content.
		"replace": func() error {
			path := os.Getenv("SYS_TEST_FILE")
			root, err := os.OpenRoot(filepath.Dir(path))
			if err != nil {
				return err
			}
			return replaceIn(root, filepath.Base(path), "new", func(temp string) error {
				fmt.Println(temp)
				io.Copy(io.Discard, os.Stdin)
				return nil
			})
		},
	})
}
