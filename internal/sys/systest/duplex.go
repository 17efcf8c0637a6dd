package systest

import "io"

// A Duplex is one end of a connection in memory. [Duplex.Close] closes it in both directions, and
// CloseWrite only in that to the other end.
type Duplex struct {
	*io.PipeReader
	out *io.PipeWriter
}

// Pipes returns both ends of a connection. A Write waits for the Read of all of its bytes.
func Pipes() (*Duplex, *Duplex) {
	r1, w1 := io.Pipe()
	r2, w2 := io.Pipe()
	return &Duplex{r1, w2}, &Duplex{r2, w1}
}

func (d *Duplex) Write(p []byte) (int, error) { return d.out.Write(p) }

func (d *Duplex) CloseWrite() error { return d.out.Close() }

func (d *Duplex) Close() error {
	d.out.Close()
	return d.PipeReader.Close()
}
