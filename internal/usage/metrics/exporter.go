package metrics

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// retryDelay is the time before the first retry. It doubles with each one.
const retryDelay = time.Second

// An exporter sends metrics by OTLP over HTTP:
// https://opentelemetry.io/docs/specs/otlp/#otlphttp
//
// The SDK calls it from one goroutine at a time.
type exporter struct {
	*settings
	client *http.Client
}

func newExporter(s *settings) *exporter {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = s.tls
	return &exporter{s, &http.Client{
		Transport: transport,
		// The headers of the user are for the collector alone.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Temporality implements [sdk.Exporter].
func (e *exporter) Temporality(k sdk.InstrumentKind) metricdata.Temporality { return e.temporality(k) }

// Aggregation implements [sdk.Exporter].
func (e *exporter) Aggregation(k sdk.InstrumentKind) sdk.Aggregation {
	return sdk.DefaultAggregationSelector(k)
}

// ForceFlush implements [sdk.Exporter]. Export leaves nothing behind.
func (e *exporter) ForceFlush(ctx context.Context) error { return ctx.Err() }

// Shutdown implements [sdk.Exporter].
func (e *exporter) Shutdown(context.Context) error {
	e.client.CloseIdleConnections()
	return nil
}

// Export implements [sdk.Exporter]. It retries if the collector asks for it and time
// is left.
func (e *exporter) Export(ctx context.Context, metrics *metricdata.ResourceMetrics) error {
	body := encode(metrics)
	if body == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	for delay := retryDelay; ; delay *= 2 {
		err := e.post(ctx, body)
		var busy *busyError
		if !errors.As(err, &busy) {
			return err
		}
		wait := max(delay, busy.wait)
		if deadline, _ := ctx.Deadline(); time.Until(deadline) <= wait {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return err
		}
	}
}

// A busyError reports a collector that asks for another attempt.
type busyError struct {
	status int
	wait   time.Duration
}

func (e *busyError) Error() string { return statusError(e.status).Error() }

func statusError(status int) error {
	return fmt.Errorf("the collector answered %d %s", status, http.StatusText(status))
}

// post sends metrics once. Its errors contain neither the URL nor anything that
// the collector wrote, since both may contain secrets.
func (e *exporter) post(ctx context.Context, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, nil)
	if err != nil {
		return errors.New("the collector's URL is invalid")
	}
	req.Header = e.header.Clone()
	req.Header.Set("Content-Type", "application/x-protobuf")
	if e.gzip {
		req.Header.Set("Content-Encoding", "gzip")
		body = compress(body)
	}
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	resp, err := e.client.Do(req)
	if err != nil {
		var withURL *url.Error
		if errors.As(err, &withURL) {
			err = withURL.Err
		}
		return err
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return &busyError{resp.StatusCode, min(time.Duration(seconds)*time.Second, e.timeout)}
	}
	if resp.StatusCode/100 != 2 {
		return statusError(resp.StatusCode)
	}
	return nil
}

func compress(data []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write(data)
	w.Close()
	return b.Bytes()
}
