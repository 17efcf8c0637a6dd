package metrics

import (
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"pollux/internal/agent"
	"pollux/internal/sys/systest"
)

func TestMain(m *testing.M) { systest.VerifyTestMain(m) }

// A receiver is a collector that keeps what it receives.
type receiver struct {
	*httptest.Server
	// answers are the status codes of the first answers. All others are 200.
	answers []int

	mu       sync.Mutex
	requests []*http.Request
	bodies   [][]byte
}

func newReceiver(t *testing.T, answers ...int) *receiver {
	r := &receiver{answers: answers}
	r.Server = httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) serve(w http.ResponseWriter, req *http.Request) {
	var body io.Reader = req.Body
	if req.Header.Get("Content-Encoding") == "gzip" {
		zip, err := gzip.NewReader(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = zip
	}
	data, err := io.ReadAll(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests, r.bodies = append(r.requests, req), append(r.bodies, data)
	if n := len(r.requests) - 1; n < len(r.answers) {
		w.Header().Set("Retry-After", "3600") // a busy one: longer than any time limit
		http.Error(w, "secret words of the collector", r.answers[n])
	}
}

// reset forgets the requests so far.
func (r *receiver) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests, r.bodies = nil, nil
}

// received returns the requests and their bodies, unpacked.
func (r *receiver) received() ([]*http.Request, [][]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests, r.bodies
}

// open opens a meter with those variables and returns its log.
func open(t *testing.T, env map[string]string) (*Meter, *bytes.Buffer, error) {
	t.Helper()
	var log bytes.Buffer
	m, err := Open(func(name string) string { return env[name] }, Options{
		Version: "1.2.3", Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	return m, &log, err
}

// must opens a meter that sends to a receiver. It waits for the receiver's answer as long
// as a busy machine may take.
func must(t *testing.T, env map[string]string) (*Meter, *bytes.Buffer) {
	t.Helper()
	const long = 5 * time.Minute
	env["OTEL_EXPORTER_OTLP_TIMEOUT"] = strconv.FormatInt(long.Milliseconds(), 10)
	m, log, err := open(t, env)
	if err != nil || m == nil {
		t.Fatalf("no meter: %v", err)
	}
	m.closeTimeout = long
	return m, log
}

// words returns attributes as "name=value", sorted and separated by spaces.
func words(attributes attribute.Set) string {
	var all []string
	for _, a := range attributes.ToSlice() {
		all = append(all, string(a.Key)+"="+a.Value.AsString())
	}
	return strings.Join(all, " ")
}

// collect returns the metrics of a reader.
func collect(t *testing.T, reader sdk.Reader) *metricdata.ResourceMetrics {
	t.Helper()
	var metrics metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &metrics); err != nil {
		t.Fatal(err)
	}
	return &metrics
}

// A point is a histogram of the calls with the same attributes.
type point struct {
	count   uint64
	sum     float64
	buckets []uint64
}

// points adds the points of a histogram to got, by the metric's name, unit and attributes.
func points[N int64 | float64](t *testing.T, got map[string]point, m metricdata.Metrics, h metricdata.Histogram[N]) {
	if h.Temporality != metricdata.CumulativeTemporality {
		t.Errorf("%s is not cumulative", m.Name)
	}
	for _, p := range h.DataPoints {
		got[m.Name+"{"+m.Unit+"} "+words(p.Attributes)] = point{p.Count, float64(p.Sum), p.BucketCounts}
	}
}

func TestMetrics(t *testing.T) {
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "team=a%20b,service.version=9")
	o := Options{Version: "1.2.3", Log: slog.New(slog.DiscardHandler)}
	reader := sdk.NewManualReader()
	m, err := newMeter(o, describe(o), reader)
	if err != nil {
		t.Fatal(err)
	}
	call := agent.Usage{
		Start: time.Now(), Duration: 3 * time.Second, Queued: 500 * time.Millisecond,
		Provider: "gcp.gen_ai", Model: "gemini-2.5-pro", Tokens: agent.Tokens{Input: 1000, Output: 20, Cached: 900},
	}
	m.Record(call)
	m.Record(call)
	fallback := call
	fallback.Requested, fallback.Model, fallback.Fallback = "gemini-2.5-pro", "gemini-2.5-flash", true
	m.Record(fallback)
	failed := call
	failed.Requested, failed.Model, failed.Error, failed.Tokens = "gemini-2.5-pro", "gemini-2.5-pro", "quota per day", agent.Tokens{}
	m.Record(failed)
	m.Record(agent.Usage{Start: time.Now(), Duration: 3 * time.Second, Provider: "gcp.gen_ai", Requested: "gemini-2.5-pro", Error: "not installed", NotAsked: true})
	metrics := collect(t, reader)
	m.Close()

	about := words(*metrics.Resource.Set())
	for _, want := range []string{"service.name=pollux", "service.version=9", "service.instance.id=", "team=a b", "telemetry.sdk.language=go"} {
		if !strings.Contains(about, want) {
			t.Errorf("no %s in the resource: %s", want, about)
		}
	}
	// Nothing else is in it: no path, and no name of the user or the machine.
	var keys []string
	for _, a := range metrics.Resource.Attributes() {
		keys = append(keys, string(a.Key))
	}
	if want := []string{"service.instance.id", "service.name", "service.version", "team",
		"telemetry.sdk.language", "telemetry.sdk.name", "telemetry.sdk.version"}; !slices.Equal(keys, want) {
		t.Errorf("the resource has the attributes %q, want %q", keys, want)
	}
	got := make(map[string]point)
	for _, m := range metrics.ScopeMetrics[0].Metrics {
		switch h := m.Data.(type) {
		case metricdata.Histogram[int64]:
			points(t, got, m, h)
		case metricdata.Histogram[float64]:
			points(t, got, m, h)
		}
	}
	const common = "gen_ai.operation.name=chat gen_ai.provider.name=gcp.gen_ai "
	want := map[string]struct {
		count  uint64
		sum    float64
		bucket int // of all calls
	}{
		"gen_ai.client.operation.duration{s} " + common + "gen_ai.response.model=gemini-2.5-pro":                                                               {2, 5, 8},
		"gen_ai.client.operation.duration{s} " + common + "gen_ai.request.model=gemini-2.5-pro gen_ai.response.model=gemini-2.5-flash":                         {1, 2.5, 8},
		"gen_ai.client.operation.duration{s} error.type=quota_per_day " + common + "gen_ai.request.model=gemini-2.5-pro":                                       {1, 2.5, 8},
		"gen_ai.client.token.usage{{token}} " + common + "gen_ai.response.model=gemini-2.5-pro gen_ai.token.type=input":                                        {2, 2000, 5},
		"gen_ai.client.token.usage{{token}} " + common + "gen_ai.response.model=gemini-2.5-pro gen_ai.token.type=output":                                       {2, 40, 3},
		"gen_ai.client.token.usage{{token}} " + common + "gen_ai.request.model=gemini-2.5-pro gen_ai.response.model=gemini-2.5-flash gen_ai.token.type=input":  {1, 1000, 5},
		"gen_ai.client.token.usage{{token}} " + common + "gen_ai.request.model=gemini-2.5-pro gen_ai.response.model=gemini-2.5-flash gen_ai.token.type=output": {1, 20, 3},
		"pollux.not_asked.duration{s} error.type=not_installed gen_ai.provider.name=gcp.gen_ai":                                                                {1, 3, 9},
	}
	if !slices.Equal(slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want))) {
		t.Errorf("the metrics are\n%s\nwant\n%s", strings.Join(slices.Sorted(maps.Keys(got)), "\n"),
			strings.Join(slices.Sorted(maps.Keys(want)), "\n"))
	}
	for name, w := range want {
		if p := got[name]; p.count != w.count || p.sum != w.sum || len(p.buckets) != 15 || p.buckets[w.bucket] != w.count {
			t.Errorf("%s is %v, want %v", name, p, w)
		}
	}
}

// The metrics go to the user's collector, with the user's headers.
func TestRequest(t *testing.T) {
	r := newReceiver(t)
	m, log := must(t, map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": r.URL + "/base/",
		"OTEL_EXPORTER_OTLP_HEADERS":  "api-key=s%3Decret, x-tenant = 7",
	})
	m.Record(agent.Usage{Model: "gemini-2.5-pro"})
	m.Record(agent.Usage{Model: "gemini-2.5-pro"})
	m.Close()
	if log.Len() > 0 {
		t.Errorf("logged %s", log)
	}
	requests, bodies := r.received()
	if len(requests) != 1 {
		t.Fatalf("%d requests, want 1", len(requests))
	}
	if req := requests[0]; req.URL.Path != "/base/v1/metrics" || req.Method != http.MethodPost ||
		req.Header.Get("Content-Type") != "application/x-protobuf" ||
		req.Header.Get("api-key") != "s=ecret" || req.Header.Get("X-Tenant") != "7" {
		t.Errorf("the request is %s %s %v", req.Method, req.URL, req.Header)
	}
	if !bytes.Contains(bodies[0], []byte("gemini-2.5-pro")) {
		t.Errorf("the body is %q", bodies[0])
	}
}

// TestEncoding checks that the settings change nothing else in what the exporter sends.
func TestEncoding(t *testing.T) {
	ours, official := newReceiver(t), newReceiver(t)
	reference, err := otlpmetrichttp.New(t.Context(), otlpmetrichttp.WithEndpointURL(official.URL+"/v1/metrics"))
	if err != nil {
		t.Fatal(err)
	}
	for _, temporality := range []string{"cumulative", "delta", "lowmemory"} {
		s, err := readSettings(func(name string) string {
			return map[string]string{
				"OTEL_EXPORTER_OTLP_ENDPOINT":                       ours.URL,
				"OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": temporality,
				"OTEL_EXPORTER_OTLP_COMPRESSION":                    "gzip",
			}[name]
		})
		if err != nil {
			t.Fatal(err)
		}
		transport := http.DefaultTransport.(*http.Transport).Clone()
		e, err := newExporter(s, transport)
		if err != nil {
			t.Fatal(err)
		}
		o := Options{Version: "1", Log: slog.New(slog.DiscardHandler)}
		reader := sdk.NewManualReader(sdk.WithTemporalitySelector(e.Temporality))
		m, err := newMeter(o, describe(o), reader)
		if err != nil {
			t.Fatal(err)
		}
		export := func() {
			metrics := collect(t, reader)
			for _, exporter := range []sdk.Exporter{e, reference} {
				if err := exporter.Export(t.Context(), metrics); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, model := range []string{"", "gemini-2.5-pro", "schön\x00"} {
			m.Record(agent.Usage{Model: model, Duration: time.Hour, Tokens: agent.Tokens{Input: 1 << 40, Output: 1}})
			m.Record(agent.Usage{Model: model, Requested: "x", Error: "timeout"})
			export()
		}
		m.Close()
		e.Shutdown(t.Context())
	}
	if err := reference.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, got := ours.received()
	_, want := official.received()
	if len(got) != 9 || len(want) != 9 {
		t.Fatalf("%d and %d requests, want 9", len(got), len(want))
	}
	for i := range got {
		if !bytes.Equal(got[i], want[i]) {
			t.Errorf("sent\n%q\nthe official exporter sends\n%q", got[i], want[i])
		}
	}
}

// TestOff checks that nothing starts unless the user's variables ask for it.
func TestOff(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	for _, env := range []map[string]string{
		{},
		{endpoint: " "},
		{"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
		{endpoint: "http://localhost:4318", "OTEL_SDK_DISABLED": "True"},
		{endpoint: "http://localhost:4318", "OTEL_METRICS_EXPORTER": "none"},
		{endpoint: "http://localhost:4318", "OTEL_METRICS_EXPORTER": "prometheus"},
	} {
		m, log, err := open(t, env)
		if m != nil || err != nil || log.Len() > 0 {
			t.Errorf("%v: got a meter: %v, error %v, log %s", env, m != nil, err, log)
		}
		m.Record(agent.Usage{})
		m.Close()
	}
}

func TestSettings(t *testing.T) {
	for _, tt := range []struct {
		name  string
		env   string // separated by spaces, without their prefix
		url   string
		error string
	}{
		{"base", "ENDPOINT=http://h:4318", "http://h:4318/v1/metrics", ""},
		{"base with a path", "ENDPOINT=https://h/otlp/", "https://h/otlp/v1/metrics", ""},
		{"metrics", "ENDPOINT=http://other METRICS_ENDPOINT=http://h/exactly", "http://h/exactly", ""},
		{"metrics without a path", "METRICS_ENDPOINT=http://h", "http://h", ""},
		{"query", "METRICS_ENDPOINT=http://h/x?key=1", "http://h/x?key=1", ""},
		{"protocol", "ENDPOINT=http://h PROTOCOL=http/protobuf", "http://h/v1/metrics", ""},
		{"grpc", "ENDPOINT=http://h PROTOCOL=grpc", "", "METRICS_PROTOCOL to http/protobuf"},
		{"grpc for others", "ENDPOINT=http://h PROTOCOL=grpc METRICS_PROTOCOL=http/protobuf", "http://h/v1/metrics", ""},
		{"json", "ENDPOINT=http://h METRICS_PROTOCOL=http/json", "", "http/protobuf only"},
		{"no scheme", "ENDPOINT=user:passw0rd@localhost:4318", "", "such as http://localhost:4318"},
		{"no host", "ENDPOINT=http://", "", "such as http://localhost:4318"},
		{"headers", "ENDPOINT=http://h HEADERS=passw0rd", "", "write name=value"},
		{"header name", "ENDPOINT=http://h HEADERS=a:b=passw0rd", "", "write name=value"},
		{"header value", "ENDPOINT=http://h HEADERS=a=passw0rd%0a", "", "write name=value"},
		{"header escape", "ENDPOINT=http://h HEADERS=a=passw0rd%zz", "", "write name=value"},
		{"timeout", "ENDPOINT=http://h TIMEOUT=soon", "", "milliseconds"},
		{"compression", "ENDPOINT=http://h COMPRESSION=zstd", "", "gzip or none"},
		{"temporality", "ENDPOINT=http://h METRICS_TEMPORALITY_PREFERENCE=x", "", "cumulative, delta or lowmemory"},
		{"certificate", "ENDPOINT=https://h CERTIFICATE=/nowhere", "", "correct its path"},
		{"client", "ENDPOINT=https://h CLIENT_CERTIFICATE=/nowhere", "", "correct their paths"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			env := make(map[string]string)
			for pair := range strings.FieldsSeq(tt.env) {
				name, value, _ := strings.Cut(pair, "=")
				env["OTEL_EXPORTER_OTLP_"+name] = value
			}
			s, err := readSettings(func(name string) string { return env[name] })
			if tt.error == "" {
				if err != nil || s.url.String() != tt.url {
					t.Errorf("got %+v, %v; want %s", s, err, tt.url)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.error) || strings.Contains(err.Error(), "passw0rd") {
				t.Errorf("the error is %v, want one with %q and without secrets", err, tt.error)
			}
		})
	}
}

// TestTLS checks that the collector's certificate is verified.
func TestTLS(t *testing.T) {
	r := newReceiver(t)
	secure := httptest.NewUnstartedServer(http.HandlerFunc(r.serve))
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	authority := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	systest.WriteFile(t, authority, string(block))
	for file, want := range map[string]struct {
		requests int
		says     string
	}{"": {0, "x509: "}, authority: {1, ""}} {
		m, log := must(t, map[string]string{
			"OTEL_EXPORTER_OTLP_ENDPOINT": secure.URL, "OTEL_EXPORTER_OTLP_CERTIFICATE": file,
		})
		m.Record(agent.Usage{})
		m.Close()
		requests, _ := r.received()
		r.reset()
		if len(requests) != want.requests || (log.Len() > 0) != (want.says != "") || !strings.Contains(log.String(), want.says) {
			t.Errorf("certificate %q: %d requests, want %d; logged %q, want %q", file, len(requests), want.requests, log, want.says)
		}
	}
}

// TestRefused checks what happens when the collector does not take the metrics: there is
// one warning, and secrets stay out of the log.
func TestRefused(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // it never answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	elsewhere := newReceiver(t)
	moved := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	defer moved.Close()
	for name, tt := range map[string]struct{ url, says string }{
		"silent":   {"http://" + silent.Addr().String(), "deadline exceeded"},
		"closed":   {fmt.Sprintf("http://127.0.0.1:%d", systest.FreePort(t)), "refused"},
		"unknown":  {"http://collector.invalid", ""},
		"moved":    {moved.URL, "307 Temporary Redirect"},
		"denied":   {newReceiver(t, 401).URL, "401 Unauthorized"},
		"too busy": {newReceiver(t, 503, 503, 503).URL, "503 Service Unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			m, log := must(t, map[string]string{
				"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": strings.Replace(tt.url, "http://", "http://me:passw0rd@", 1) + "?key=passw0rd",
				"OTEL_EXPORTER_OTLP_HEADERS":          "api-key=passw0rd",
			})
			if name == "silent" {
				m.closeTimeout = closeTimeout
			}
			m.Record(agent.Usage{})
			m.Close()
			text := log.String()
			if strings.Count(text, "\n") != 1 || !strings.Contains(text, "level=WARN") || !strings.Contains(text, tt.says) {
				t.Errorf("logged %q, want one warning with %q", text, tt.says)
			}
			if strings.Contains(text, "passw0rd") || strings.Contains(text, "secret words") {
				t.Errorf("a secret is in the log: %s", text)
			}
		})
	}
	if requests, _ := elsewhere.received(); len(requests) > 0 {
		t.Error("the headers went to another server")
	}
}

// TestRetry checks that a busy collector gets the metrics later, and that the
// warning of a failure that lasts is not repeated.
func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var asked []time.Duration
		e := exporterOf(t, 20*time.Second, roundTrip(func(*http.Request) (*http.Response, error) {
			status := 500
			if n := len(asked); n < 4 {
				status = []int{503, 503, 503, 200}[n]
			}
			asked = append(asked, time.Since(start))
			return &http.Response{StatusCode: status, Header: http.Header{"Retry-After": {"5"}}, Body: http.NoBody}, nil
		}))
		var log bytes.Buffer
		o := Options{Log: slog.New(slog.NewTextHandler(&log, nil))}
		m, err := newMeter(o, describe(o), sdk.NewPeriodicReader(e, sdk.WithInterval(time.Minute)))
		if err != nil {
			t.Fatal(err)
		}
		otel.SetErrorHandler(m.failures)
		m.Record(agent.Usage{})
		time.Sleep(10 * time.Minute)
		m.Close()
		// Each wait is the longer one of Retry-After and a random delay, below 4 s.
		want := []time.Duration{60 * time.Second, 65 * time.Second, 70 * time.Second, 75 * time.Second}
		if len(asked) < 10 || !slices.Equal(asked[:4], want) {
			t.Errorf("the requests came after %v, want %v and one each minute", asked, want)
		}
		if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "500 Internal Server Error") {
			t.Errorf("logged %s, want one line", &log)
		}
	})
}

// A collector that does not answer delays no call, and the end by a second.
func TestSilentCollector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := exporterOf(t, 10*time.Second, roundTrip(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}))
		o := Options{Log: slog.New(slog.DiscardHandler)}
		m, err := newMeter(o, describe(o), sdk.NewPeriodicReader(e))
		if err != nil {
			t.Fatal(err)
		}
		otel.SetErrorHandler(m.failures)
		start := time.Now()
		m.Record(agent.Usage{})
		recorded := time.Since(start)
		m.Close()
		if total := time.Since(start); recorded > 0 || total != time.Second {
			t.Errorf("a call took %s, and all %s", recorded, total)
		}
	})
}

// exporterOf returns an exporter that sends by a transport.
func exporterOf(t *testing.T, timeout time.Duration, transport http.RoundTripper) *exporter {
	e, err := newExporter(&settings{url: &url.URL{Scheme: "http", Host: "collector"}, timeout: timeout,
		temporality: sdk.CumulativeTemporalitySelector}, transport)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// A roundTrip is an [http.RoundTripper].
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
