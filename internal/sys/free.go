package sys

import "runtime/debug"

// FreeMemory returns memory to the system that this process does not need now: free
// memory of the heap and, on Linux, the pages of the program file. The system maps a page
// of the file again when the process uses it. Most pages are needed only at the start.
func FreeMemory() {
	debug.FreeOSMemory()
	freeProgram()
}
