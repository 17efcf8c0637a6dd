package codexide

import (
	"errors"
	"fmt"
	"net"
	"time"
)

// ErrOtherFolder reports that a program has no files of the folder.
var ErrOtherFolder = errors.New("it has no files of this folder")

// askTimeout limits the wait for an answer, as Codex CLI does.
const askTimeout = 6 * time.Second

// Ask asks the program at the other end for the context of a folder, as Codex CLI does. It
// ignores the context, which is the user's.
func Ask(conn net.Conn, dir string) error {
	if err := conn.SetDeadline(time.Now().Add(askTimeout)); err != nil {
		return err
	}
	res, err := call(conn, request{
		Type: typeRequest, RequestID: doctor, Source: doctor, Method: methodContext, Params: params{WorkspaceRoot: dir},
	})
	switch {
	case err != nil:
		return err
	case res.ResultType == typeSuccess:
		return nil
	case res.Error == errNoClient:
		return ErrOtherFolder
	}
	return fmt.Errorf("its answer is %.100q", res.Error)
}
