package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/protobuf/proto"

	"pollux/internal/agent"
	"pollux/internal/fakemodel"
	"pollux/internal/sys/systest"
)

// A collector is an OpenTelemetry collector. It keeps the latest request.
type collector struct {
	*httptest.Server
	mu   sync.Mutex
	last []byte
}

func newCollector(t *testing.T) *collector {
	c := new(collector)
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != "/v1/metrics" {
			http.Error(w, "bad request", http.StatusBadRequest)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.last = data
	}))
	t.Cleanup(c.Close)
	return c
}

// sums returns the count and the sum of each point, by the values of its
// attributes that are listed.
func (c *collector) sums(t *testing.T, metric string, attributes ...string) map[string][2]float64 {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	// The fields are those of the collector's request type.
	var m metrics.MetricsData
	if err := proto.Unmarshal(c.last, &m); err != nil || len(m.ResourceMetrics) != 1 {
		t.Fatalf("the collector received %v, %v", &m, err)
	}
	sums := make(map[string][2]float64)
	for _, one := range m.ResourceMetrics[0].ScopeMetrics[0].Metrics {
		if one.Name != metric {
			continue
		}
		for _, p := range one.GetHistogram().DataPoints {
			values := make([]string, len(attributes))
			for _, a := range p.Attributes {
				for i, name := range attributes {
					if a.Key == name {
						values[i] = a.Value.GetStringValue()
					}
				}
			}
			sum := sums[strings.Join(values, " ")]
			sums[strings.Join(values, " ")] = [2]float64{sum[0] + float64(p.Count), sum[1] + p.GetSum()}
		}
	}
	return sums
}

// The report of `pollux usage` and that of the collector are correct. They contain no
// word of the questions and answers, and no path.
func TestUsage(t *testing.T) {
	w := newFakeWorld(t, func(r fakemodel.Request) fakemodel.Reply {
		switch {
		case strings.Contains(r.Prompt, "unauthorized"):
			return fakemodel.Reply{Status: 401, Message: "API key not valid. Please pass a valid API key."}
		case r.Model == "gemini-2.5-pro":
			return fakemodel.Reply{Status: 429, PerDay: true, Message: "You exceeded your current quota."}
		}
		return fakemodel.Say("a pineapple")
	})
	w.file("hello.txt", "durian")
	otel := newCollector(t)
	c := w.bridge("OTEL_EXPORTER_OTLP_ENDPOINT=" + otel.URL)
	var tokens agent.Tokens
	var ms, queued float64
	call := func(tool string, args map[string]any) outcome {
		o := c.call(tool, args)
		if t, ok := o.Meta["tokens"].(map[string]any); ok {
			tokens.Input += int(t["input"].(float64))
			tokens.Output += int(t["output"].(float64))
			tokens.Cached += int(t["cached"].(float64))
		}
		ms += o.Meta["durationMs"].(float64)
		queued += o.Meta["queuedMs"].(float64)
		return o
	}
	call("query", map[string]any{"prompt": "what is a mangosteen?", "files": []string{"hello.txt"}}).want(t, false, "pineapple")
	call("query", map[string]any{"prompt": "and a rambutan?"}).want(t, false, "pineapple")
	call("query", map[string]any{"prompt": "and a lychee?", "model": "gemini-2.5-pro"}).want(t, false, "answered by gemini-2.5-flash")
	call("query", map[string]any{"prompt": "unauthorized"}).want(t, true, "")
	call("structured", map[string]any{"prompt": "a guava", "schema": map[string]any{"type": "object"}}).want(t, true, "not valid")
	c.call("ping", nil)
	w.wantNothingLeft(c)
	if tokens.Input == 0 || tokens.Output == 0 {
		t.Fatalf("the answers had %+v", tokens)
	}

	var got struct {
		Rows []struct {
			Agent, Model string
			Calls        int
			Errors       map[string]int
			Fallbacks    int
		}
		Total struct {
			Calls, Fallbacks                        int
			Errors                                  map[string]int
			InputTokens, CachedTokens, OutputTokens int
			DurationMs, QueuedMs                    float64
		}
		SkippedLines int
	}
	if err := json.Unmarshal([]byte(w.pollux("usage", "--json")), &got); err != nil {
		t.Fatal(err)
	}
	if total := got.Total; total.Calls != 5 || total.Fallbacks != 1 || got.SkippedLines != 0 ||
		!reflect.DeepEqual(total.Errors, map[string]int{"auth": 1, "other": 1}) ||
		total.InputTokens != tokens.Input || total.CachedTokens != tokens.Cached || total.OutputTokens != tokens.Output ||
		total.DurationMs < ms || total.DurationMs > ms+100 || total.QueuedMs != queued {
		t.Errorf("the usage is %+v, want %+v, %v ms, %v ms in the queue", got, tokens, ms, queued)
	}
	calls := 0
	for _, r := range got.Rows {
		if r.Model == "gemini-2.5-flash" {
			calls += r.Calls
			if r.Fallbacks != 1 {
				t.Errorf("%+v has no fallback", r)
			}
		}
	}
	if calls < 4 { // the failed call may not know its model
		t.Errorf("the rows are %+v", got.Rows)
	}

	ended := make(map[string]float64)
	for kind, sum := range otel.sums(t, "gen_ai.client.operation.duration", "error.type") {
		ended[kind] = sum[0]
	}
	if !reflect.DeepEqual(ended, map[string]float64{"": 3, "auth": 1, "other": 1}) {
		t.Errorf("the collector has the calls %v", ended)
	}
	for kind, sum := range otel.sums(t, "gen_ai.client.token.usage", "gen_ai.token.type") {
		if want := map[string]int{"input": tokens.Input, "output": tokens.Output}[kind]; sum[1] != float64(want) {
			t.Errorf("the collector has %v tokens of %s, want %d", sum[1], kind, want)
		}
	}
	const asked = "gen_ai.request.model"
	models := otel.sums(t, "gen_ai.client.operation.duration", asked, "gen_ai.response.model")
	if models["gemini-2.5-pro gemini-2.5-flash"][0] != 1 {
		t.Errorf("the collector has the models %v", models)
	}

	files, err := filepath.Glob(filepath.Join(w.home, ".local", "state", "pollux", "usage", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files of usage: %v", err)
	}
	for _, file := range files {
		data := systest.ReadFile(t, file)
		for _, word := range []string{"mangosteen", "rambutan", "lychee", "guava", "pineapple", "durian", "hello", "unauthorized", w.project} {
			if strings.Contains(data, word) || strings.Contains(string(otel.last), word) {
				t.Errorf("%q is in %s, or the collector has it", word, data)
			}
		}
	}
}
