//go:build !linux

package sys

func freeProgram() {}
