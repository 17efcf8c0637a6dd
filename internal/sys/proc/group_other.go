//go:build !linux

package proc

import "syscall"

func groupOf(int) Group { return Group{} }

func (Group) signal(string, syscall.Signal, map[int]bool) bool { return false }
