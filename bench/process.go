package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The memory of processes, as lines of /proc/PID/smaps_rollup.
const (
	// anonymous belongs to no file: heaps, stacks and changed data. One process
	// alone costs this much. The system shares the pages of the program's file, and can drop them.
	anonymous = "Anonymous"
	// proportional is for several processes: a page that n of them share counts as 1/n.
	proportional = "Pss"
)

// memoryOf returns the memory of processes, in MB.
func memoryOf(pids []int, kind string) (sum float64, err error) {
	for _, pid := range pids {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			return 0, err
		}
		_, rest, _ := strings.Cut(string(data), "\n"+kind+":")
		words := strings.Fields(rest)
		if len(words) == 0 {
			return 0, fmt.Errorf("process %d has exited", pid)
		}
		kb, err := strconv.ParseFloat(words[0], 64)
		if err != nil {
			return 0, err
		}
		sum += kb / 1024
	}
	return sum, nil
}

// cpuOf returns the processor time that processes have used, in seconds.
func cpuOf(pids []int) (seconds float64, err error) {
	const ticks = 100 // per second, on all systems
	for _, pid := range pids {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, err
		}
		words := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
		user, err1 := strconv.ParseFloat(words[11], 64)
		system, err2 := strconv.ParseFloat(words[12], 64)
		if err := errors.Join(err1, err2); err != nil {
			return 0, err
		}
		seconds += (user + system) / ticks
	}
	return seconds, nil
}

// family returns a process and its descendants.
func family(pid int) []int {
	all := []int{pid}
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		data, _ := os.ReadFile(list)
		for f := range strings.FieldsSeq(string(data)) {
			if child, err := strconv.Atoi(f); err == nil {
				all = append(all, family(child)...)
			}
		}
	}
	return all
}
