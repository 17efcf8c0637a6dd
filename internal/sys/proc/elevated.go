package proc

// Elevated reports whether this process has raised rights that the user's other processes
// do not have, as after "Run as administrator" on Windows. On other systems it returns false:
// there, such a process runs as root.
func Elevated() bool { return elevated() }
