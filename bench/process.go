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

// A footprint is the memory of processes, in MB.
type footprint struct {
	// resident is all memory of the processes. Pages of files, such as the program itself,
	// are part of it, although the system can drop them and shares them between processes.
	resident float64
	// private is the memory that belongs to no file (Anonymous): heaps, stacks and changed
	// data. The system cannot drop it. Private_Clean and Private_Dirty would also count pages
	// of the program's file: clean ones while no other process maps them, and dirty ones
	// while the disk does not have the new program yet.
	private float64
	// proportional counts a page that n processes share as 1/n in each.
	proportional float64
}

// memoryOf returns the memory of processes.
func memoryOf(pids []int) (sum footprint, err error) {
	for _, pid := range pids {
		f, err := fields(pid, "smaps_rollup", "Rss", "Anonymous", "Pss")
		if err != nil {
			return sum, err
		}
		sum.resident += f[0]
		sum.private += f[1]
		sum.proportional += f[2]
	}
	return sum, nil
}

// fields returns the values of some lines of a file in /proc/PID, in MB.
func fields(pid int, file string, names ...string) (values []float64, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		_, rest, _ := strings.Cut(string(data), "\n"+name+":")
		words := strings.Fields(rest)
		if len(words) == 0 {
			return nil, fmt.Errorf("process %d has exited", pid)
		}
		kb, err := strconv.ParseFloat(words[0], 64)
		if err != nil {
			return nil, err
		}
		values = append(values, kb/1024)
	}
	return values, nil
}

// watchPeak starts to record the most resident memory that processes have. The function
// that it returns returns how many MB that was above what they had at first.
func watchPeak(pids []int) (growth func() (float64, error), err error) {
	sum := func(name string) (mb float64, err error) {
		for _, pid := range pids {
			f, err := fields(pid, "status", name)
			if err != nil {
				return 0, err
			}
			mb += f[0]
		}
		return mb, nil
	}
	const resetPeak = "5" // see proc_pid_clear_refs(5)
	for _, pid := range pids {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte(resetPeak), 0); err != nil {
			return nil, err
		}
	}
	before, err := sum("VmRSS")
	return func() (float64, error) {
		peak, err := sum("VmHWM")
		return peak - before, err
	}, err
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
