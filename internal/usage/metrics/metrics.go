// Package metrics sends metrics about calls to an OpenTelemetry collector, if the
// user's environment names one. The metrics follow the semantic conventions for
// generative AI:
// https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/gen-ai-metrics.md
//
// OpenTelemetry's SDK counts and sends. This package checks the settings, and keeps their
// secrets out of logs.
package metrics

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"

	"pollux/internal/agent"
)

// closeTimeout limits how long Close waits for the collector.
const closeTimeout = time.Second

// The conventions define the bucket boundaries.
var (
	durationBuckets = []float64{
		0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
	}
	tokenBuckets = []float64{
		1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864,
	}
)

// Options describe whose calls are measured.
type Options struct {
	// Version is the version of Pollux.
	Version string
	Log     *slog.Logger
}

// A Meter measures calls and sends the metrics at intervals. Its methods may be
// called from several goroutines. A nil Meter does nothing.
type Meter struct {
	provider *sdk.MeterProvider
	failures *failures
	duration metric.Float64Histogram
	tokens   metric.Int64Histogram
	notAsked metric.Float64Histogram // the durations of calls that no agent was asked for

	closeTimeout time.Duration
}

// Open returns a meter with the settings of the environment. It returns nil, and
// starts nothing, if the environment names no collector or turns metrics off. The
// error describes a setting that is invalid.
func Open(getenv func(string) string, o Options) (*Meter, error) {
	s, err := readSettings(getenv)
	if err != nil || s == nil {
		return nil, err
	}
	// The exporter reads the variables, too, and logs those that it cannot read.
	otel.SetLogger(logr.Discard())
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = s.tls
	e, err := newExporter(s, transport)
	if err != nil {
		return nil, err
	}
	m, err := newMeter(o, describe(o), sdk.NewPeriodicReader(e))
	if err != nil {
		return nil, err
	}
	otel.SetErrorHandler(m.failures)
	otel.SetLogger(logr.FromSlogHandler(o.Log.Handler()))
	return m, nil
}

// describe returns the attributes of this process. The user's variables override
// them.
func describe(o Options) *resource.Resource {
	// WithService adds a random ID, which separates the sums of processes that run at the same
	// time.
	r, err := resource.New(context.Background(), resource.WithService(), resource.WithAttributes(
		attribute.String("service.name", "pollux"),
		attribute.String("service.version", o.Version),
	), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil { // the resource lacks only the attributes that are invalid
		o.Log.Debug("OTEL_RESOURCE_ATTRIBUTES is invalid", "err", err)
	}
	return r
}

// newMeter returns a meter whose metrics the reader reads.
func newMeter(o Options, about *resource.Resource, reader sdk.Reader) (*Meter, error) {
	m := &Meter{
		failures: &failures{log: o.Log}, closeTimeout: closeTimeout,
		provider: sdk.NewMeterProvider(sdk.WithResource(about), sdk.WithReader(reader)),
	}
	meter := m.provider.Meter("pollux", metric.WithInstrumentationVersion(o.Version))
	var err, err2, err3 error
	m.duration, err = meter.Float64Histogram("gen_ai.client.operation.duration", metric.WithUnit("s"),
		metric.WithDescription("GenAI operation duration."),
		metric.WithExplicitBucketBoundaries(durationBuckets...))
	m.tokens, err2 = meter.Int64Histogram("gen_ai.client.token.usage", metric.WithUnit("{token}"),
		metric.WithDescription("Number of input and output tokens used."),
		metric.WithExplicitBucketBoundaries(tokenBuckets...))
	m.notAsked, err3 = meter.Float64Histogram("pollux.not_asked.duration", metric.WithUnit("s"),
		metric.WithDescription("Duration of calls that failed before an agent had the prompt."),
		metric.WithExplicitBucketBoundaries(durationBuckets...))
	if err = errors.Join(err, err2, err3); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// Record measures a call. It does not wait for the collector.
func (m *Meter) Record(c agent.Usage) {
	if m == nil {
		return
	}
	ctx := context.Background()
	provider := attribute.String("gen_ai.provider.name", c.Provider)
	kind := attribute.String("error.type", strings.ReplaceAll(c.Error, " ", "_"))
	if c.NotAsked {
		m.notAsked.Record(ctx, c.Duration.Seconds(), metric.WithAttributes(provider, kind))
		return
	}
	attrs := []attribute.KeyValue{attribute.String("gen_ai.operation.name", "chat"), provider}
	if c.Requested != "" {
		attrs = append(attrs, attribute.String("gen_ai.request.model", c.Requested))
	}
	if c.Error != "" {
		m.duration.Record(ctx, (c.Duration - c.Queued).Seconds(), metric.WithAttributes(attrs...), metric.WithAttributes(kind))
	} else {
		if c.Model != "" {
			attrs = append(attrs, attribute.String("gen_ai.response.model", c.Model))
		}
		m.duration.Record(ctx, (c.Duration - c.Queued).Seconds(), metric.WithAttributes(attrs...))
	}
	for kind, n := range map[string]int{"input": c.Tokens.Input, "output": c.Tokens.Output} {
		if n > 0 {
			m.tokens.Record(ctx, int64(n), metric.WithAttributes(attrs...),
				metric.WithAttributes(attribute.String("gen_ai.token.type", kind)))
		}
	}
}

// Close sends what has not been sent. It stops waiting for a collector that does
// not answer.
func (m *Meter) Close() {
	if m == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), m.closeTimeout)
	defer cancel()
	if err := m.provider.Shutdown(ctx); err != nil {
		m.failures.Handle(err)
	}
}

// failures handles errors of the SDK and the exporter. It warns once, since a
// collector that does not answer now may not answer for hours.
type failures struct {
	log     *slog.Logger
	warning sync.Once
}

// Handle implements [otel.ErrorHandler].
func (f *failures) Handle(err error) {
	f.log.Debug("cannot send metrics", "err", err)
	f.warning.Do(func() {
		f.log.Warn("cannot send metrics to the OpenTelemetry collector: check OTEL_EXPORTER_OTLP_ENDPOINT", "err", err)
	})
}
