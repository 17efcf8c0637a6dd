package metrics

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// retryDelay is the time before the first retry. It grows with each one.
const retryDelay = time.Second

// An exporter is OpenTelemetry's, with a time limit for all attempts together. It makes no
// request while there are no metrics.
type exporter struct {
	sdk.Exporter
	timeout   time.Duration
	transport http.RoundTripper
}

// newExporter returns an exporter that sends by a transport.
func newExporter(s *settings, transport http.RoundTripper) (*exporter, error) {
	compression := otlpmetrichttp.NoCompression
	if s.gzip {
		compression = otlpmetrichttp.GzipCompression
	}
	official, err := otlpmetrichttp.New(context.Background(),
		// OpenTelemetry's exporter drops a query and a password from the URL, so the route
		// has it.
		otlpmetrichttp.WithEndpointURL("https://collector"),
		otlpmetrichttp.WithHTTPClient(&http.Client{
			Transport: route{s, transport},
			// The headers of the user are for the collector alone.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}),
		otlpmetrichttp.WithCompression(compression),
		otlpmetrichttp.WithTemporalitySelector(s.temporality),
		otlpmetrichttp.WithRetry(otlpmetrichttp.RetryConfig{
			Enabled: true, InitialInterval: retryDelay, MaxInterval: s.timeout, MaxElapsedTime: s.timeout,
		}))
	return &exporter{official, s.timeout, transport}, err
}

// Export implements [sdk.Exporter]. It retries if the collector asks for it and time is left.
func (e *exporter) Export(ctx context.Context, metrics *metricdata.ResourceMetrics) error {
	if len(metrics.ScopeMetrics) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	return e.Exporter.Export(ctx, metrics)
}

// Shutdown implements [sdk.Exporter].
func (e *exporter) Shutdown(ctx context.Context) error {
	defer (&http.Client{Transport: e.transport}).CloseIdleConnections()
	return e.Exporter.Shutdown(ctx)
}

// A route is the transport to the user's collector. Errors contain neither its URL nor
// anything that it wrote, since both may contain secrets.
type route struct {
	*settings
	transport http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (to route) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL, r.Host = to.url, to.url.Host
	if user := to.url.User; user != nil {
		password, _ := user.Password()
		r.SetBasicAuth(user.Username(), password)
	}
	maps.Copy(r.Header, to.header)
	resp, err := to.transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
	resp.Body.Close()
	resp.Body = http.NoBody
	if resp.StatusCode/100 != 2 {
		resp.Status = fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
		resp.Body = io.NopCloser(strings.NewReader("the collector answered " + resp.Status))
	}
	return resp, nil
}
