package bridge

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"pollux/internal/agent"
	"pollux/internal/mcp"
)

const (
	// maxJobs limits the jobs, including ended ones.
	maxJobs = 50
	// jobWaitTimeout is how long wait-job waits by default. It is shorter than
	// the timeouts of all known clients.
	jobWaitTimeout, maxJobWaitTimeout = 45 * time.Second, 10 * time.Minute
)

// endedJobs says how long the results of jobs are kept.
var endedJobs = expiry{after: 30 * time.Minute, items: maxJobs}

// errJobCancelled is the cause of the end of a job's context when its client
// cancels the job.
var errJobCancelled = errors.New("cancelled by cancel-job")

// A job is a call whose result is fetched later, for clients that cannot wait
// long enough.
type job struct {
	id      string
	tool    string
	about   string
	started time.Time
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed when result is set

	mu       sync.Mutex
	progress string
	news     chan struct{} // closed at the next report
	result   *mcp.Result   // nil while the job is running
	ended    time.Time
	stopped  bool // cancel-job ended it
}

// report sets the progress of the job and wakes its waiters.
func (j *job) report(message string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.progress = message
	close(j.news)
	j.news = make(chan struct{})
}

// jobs are the jobs of one client.
type jobs struct {
	life context.Context // ends with the bridge or with the client's connection
	end  context.CancelFunc
	work sync.WaitGroup

	mu   sync.Mutex // also orders work.Go before work.Wait
	byID map[string]*job
}

// newJobs returns jobs that end with ctx.
func newJobs(ctx context.Context) *jobs {
	js := &jobs{byID: make(map[string]*job)}
	js.life, js.end = context.WithCancel(ctx)
	return js
}

// start adds a job and runs it, unless too many jobs are running.
func (js *jobs) start(j *job, run func()) error {
	js.mu.Lock()
	defer js.mu.Unlock()
	if js.life.Err() != nil {
		return agent.ErrClosed
	}
	js.byID[j.id] = j
	js.pruneLocked()
	if len(js.byID) > maxJobs {
		delete(js.byID, j.id)
		return fmt.Errorf("%d jobs are running, which is the limit: wait for one, or cancel one", maxJobs)
	}
	js.work.Go(run)
	return nil
}

// close cancels all jobs and waits for them.
func (js *jobs) close() {
	js.mu.Lock()
	js.end()
	js.mu.Unlock()
	js.work.Wait()
}

// pruneLocked removes the oldest results.
func (js *jobs) pruneLocked() {
	prune(js.byID, endedJobs, func(j *job) keptState {
		j.mu.Lock()
		defer j.mu.Unlock()
		return keptState{used: j.ended, inUse: j.result == nil}
	})
}

// get returns the job with an ID.
func (js *jobs) get(id string) (*job, error) {
	js.mu.Lock()
	defer js.mu.Unlock()
	js.pruneLocked()
	if j := js.byID[id]; j != nil {
		return j, nil
	}
	return nil, fmt.Errorf("there is no job %q: list-jobs returns the existing ones; results are kept for %d minutes",
		agent.Shorten(id, 60), int(endedJobs.after.Minutes()))
}

// A jobState describes a job in a list.
type jobState struct {
	ID      string `json:"jobId"`
	Tool    string `json:"tool"`
	About   string `json:"about"`
	State   string `json:"state"` // running, done, failed or cancelled
	Seconds int    `json:"seconds"`
	Doing   string `json:"doing,omitempty"`
}

// state describes the job.
func (j *job) state() jobState {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := jobState{ID: j.id, Tool: j.tool, About: j.about, State: "running", Doing: j.progress}
	end := time.Now()
	if j.result != nil {
		s.State, s.Doing, end = "done", "", j.ended
		switch {
		case j.stopped:
			s.State = "cancelled"
		case j.result.IsError:
			s.State = "failed"
		}
	}
	s.Seconds = int(end.Sub(j.started).Seconds())
	return s
}

// list describes all jobs, the newest first.
func (js *jobs) list() []jobState {
	js.mu.Lock()
	defer js.mu.Unlock()
	js.pruneLocked()
	all := slices.SortedFunc(maps.Values(js.byID), func(a, b *job) int { return b.started.Compare(a.started) })
	states := []jobState{}
	for _, j := range all {
		states = append(states, j.state())
	}
	return states
}

// jobKey is the context key of a job.
type jobKey struct{}

// The names of tools that others refer to. startJob starts those in jobTools as jobs.
const (
	queryTool, changeTool, searchTool, structuredTool = "query", "change", "search", "structured"

	startJob = "start-job"
)

// jobTools lists the tools that ask an agent. They can run as jobs.
var jobTools = []string{queryTool, changeTool, searchTool, structuredTool}

type startInput struct {
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
}

func (s *Server) startJob(ctx context.Context, c *mcp.Call, args startInput) (*mcp.Result, error) {
	if !slices.Contains(jobTools, args.Tool) {
		return nil, fmt.Errorf("tool is %q: it must be one of %s", agent.Shorten(args.Tool, 60), strings.Join(jobTools, ", "))
	}
	in, err := s.question(ctx, c, args.Tool, args.Arguments)
	if err != nil {
		return unread(err)
	}
	if err := s.checkJob(in); err != nil {
		return nil, err
	}
	j := &job{
		id: rand.Text(), tool: args.Tool, about: summary(in.question()),
		started: time.Now(), done: make(chan struct{}), news: make(chan struct{}),
	}
	// The job outlives this call.
	run, cancel := context.WithCancelCause(context.WithValue(s.jobs.life, jobKey{}, j))
	j.cancel = cancel
	err = s.jobs.start(j, func() {
		defer cancel(nil)
		result := s.answer(run, c, in)
		j.mu.Lock()
		j.result, j.ended = result, time.Now()
		j.stopped = result.IsError && context.Cause(run) == errJobCancelled
		j.mu.Unlock()
		close(j.done)
	})
	if err != nil {
		cancel(nil)
		return nil, err
	}
	r := notice(fmt.Sprintf(`Job %s has started. For its result, call wait-job {"jobId":"%s"}`, j.id, j.id))
	r.Meta["jobId"] = j.id
	return r, nil
}

// checkJob returns the error of a job whose input is not valid.
func (s *Server) checkJob(in Input) error {
	_, err := s.b.check(in)
	if q, ok := in.(*QueryInput); ok && err == nil && len(q.Agents) > 0 {
		err = s.b.CheckPanel(*q)
	}
	return err
}

type waitInput struct {
	JobID   string   `json:"jobId"`
	Timeout *Integer `json:"timeout"`
}

func (s *Server) waitJob(ctx context.Context, c *mcp.Call, in waitInput) (*mcp.Result, error) {
	wait := jobWaitTimeout
	if in.Timeout != nil {
		wait = time.Duration(*in.Timeout) * time.Millisecond
		if wait < 0 || wait > maxJobWaitTimeout {
			return nil, fmt.Errorf("timeout is %d: give milliseconds from 0 to %d",
				*in.Timeout, maxJobWaitTimeout.Milliseconds())
		}
	}
	j, err := s.jobs.get(in.JobID)
	if err != nil {
		return nil, err
	}
	report := reporter(ctx, c)
	over := time.NewTimer(wait)
	defer over.Stop()
	beat := time.NewTicker(progressInterval)
	defer beat.Stop()
	for {
		j.mu.Lock()
		news, progress, result := j.news, j.progress, j.result
		j.mu.Unlock()
		if result != nil {
			return result, nil
		}
		if report != nil && progress != "" {
			report(progress)
		}
		select {
		case <-j.done:
		case <-news:
		case <-beat.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-over.C:
			state := j.state()
			r := notice(fmt.Sprintf("The job is still running, after %d seconds (%s): call wait-job again.",
				state.Seconds, state.Doing))
			r.Meta["jobId"] = j.id
			r.Meta["running"] = true
			return r, nil
		}
	}
}

type cancelInput struct {
	JobID string `json:"jobId"`
}

func (s *Server) cancelJob(ctx context.Context, _ *mcp.Call, in cancelInput) (*mcp.Result, error) {
	j, err := s.jobs.get(in.JobID)
	if err != nil {
		return nil, err
	}
	ended := notice("The job has already ended: call wait-job for its result.")
	select {
	case <-j.done:
		return ended, nil
	default:
	}
	j.cancel(errJobCancelled)
	select {
	case <-j.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if !j.stopped { // it ended before the cancellation
		return ended, nil
	}
	return notice("cancelled"), nil
}

func (s *Server) listJobs(context.Context, *mcp.Call, struct{}) (*mcp.Result, error) {
	return listed("jobs", s.jobs.list())
}
