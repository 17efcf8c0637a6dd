package metrics

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/metric"

	"pollux/internal/lazy"
)

// settings are the settings of an exporter.
type settings struct {
	url         *url.URL    // may contain secrets
	header      http.Header // contains secrets
	timeout     time.Duration
	gzip        bool
	tls         *tls.Config
	temporality sdk.TemporalitySelector
}

// defaultTimeout is the specification's.
const defaultTimeout = 10 * time.Second

// readSettings reads OpenTelemetry's variables. It returns nil if nothing must be
// sent. Errors never contain the value of a header.
func readSettings(getenv func(string) string) (*settings, error) {
	// value returns the variable for metrics or, without one, that for all signals.
	value := func(name string) string {
		return strings.TrimSpace(cmp.Or(getenv("OTEL_EXPORTER_OTLP_METRICS_"+name), getenv("OTEL_EXPORTER_OTLP_"+name)))
	}
	exporter := strings.ToLower(strings.TrimSpace(getenv("OTEL_METRICS_EXPORTER")))
	if value("ENDPOINT") == "" || strings.EqualFold(strings.TrimSpace(getenv("OTEL_SDK_DISABLED")), "true") ||
		exporter != "" && exporter != "otlp" {
		return nil, nil
	}
	if p := value("PROTOCOL"); p != "" && p != "http/protobuf" {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL is %q, and Pollux sends metrics by http/protobuf only: "+
			"set OTEL_EXPORTER_OTLP_METRICS_PROTOCOL to http/protobuf, and OTEL_EXPORTER_OTLP_METRICS_ENDPOINT "+
			"to the collector's URL for it, such as http://localhost:4318/v1/metrics", p)
	}
	s := &settings{timeout: defaultTimeout}
	var err error
	if s.url, err = endpoint(getenv); err != nil {
		return nil, err
	}
	if s.header, err = headers(value("HEADERS")); err != nil {
		return nil, err
	}
	if t := value("TIMEOUT"); t != "" {
		ms, err := strconv.Atoi(t)
		if err != nil || ms <= 0 {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_TIMEOUT is %q: set it to a number of milliseconds from 1", t)
		}
		s.timeout = time.Duration(ms) * time.Millisecond
	}
	switch c := value("COMPRESSION"); c {
	case "", "none":
	case "gzip":
		s.gzip = true
	default:
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_COMPRESSION is %q: set it to gzip or none", c)
	}
	switch t := value("TEMPORALITY_PREFERENCE"); strings.ToLower(t) {
	case "", "cumulative":
		s.temporality = sdk.CumulativeTemporalitySelector
	case "delta":
		s.temporality = sdk.DeltaTemporalitySelector
	case "lowmemory":
		s.temporality = sdk.LowMemoryTemporalitySelector
	default:
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE is %q: "+
			"set it to cumulative, delta or lowmemory", t)
	}
	s.tls, err = certificates(value("CERTIFICATE"), value("CLIENT_CERTIFICATE"), value("CLIENT_KEY"))
	return s, err
}

// endpoint returns the URL for metrics. The variable for metrics holds the entire
// URL, the one for all signals its beginning.
func endpoint(getenv func(string) string) (*url.URL, error) {
	name, path := "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", ""
	text := strings.TrimSpace(getenv(name))
	if text == "" {
		name, path = "OTEL_EXPORTER_OTLP_ENDPOINT", "v1/metrics"
		text = strings.TrimSpace(getenv(name))
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		// The URL may contain a password.
		return nil, fmt.Errorf("%s is not an http or https URL: set it to the collector's, such as http://localhost:4318", name)
	}
	if path != "" {
		u.Path = cmp.Or(u.Path, "/")
		u = u.JoinPath(path)
	}
	return u, nil
}

var (
	headerName  = lazy.Regexp("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
	headerValue = lazy.Regexp(`^[^[:cntrl:]]*$`)
)

// headers reads a list such as "name=value,name=value". Values are escaped as in
// URLs.
func headers(list string) (http.Header, error) {
	h := make(http.Header)
	for pair := range strings.SplitSeq(list, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, text, found := strings.Cut(pair, "=")
		name = strings.TrimSpace(name)
		text, err := url.PathUnescape(strings.TrimSpace(text))
		if !found || err != nil || !headerName().MatchString(name) || !headerValue().MatchString(text) {
			return nil, errors.New("OTEL_EXPORTER_OTLP_HEADERS is invalid: " +
				"write name=value, separated by commas, and escape special characters in values as in a URL")
		}
		h.Set(name, text)
	}
	return h, nil
}

// certificates returns the TLS settings for a file with the collector's
// certificate authority, and for files with the client's certificate and key. It
// returns nil if none is set.
func certificates(authority, certificate, key string) (*tls.Config, error) {
	if authority == "" && certificate == "" && key == "" {
		return nil, nil
	}
	cfg := new(tls.Config)
	if authority != "" {
		pem, err := os.ReadFile(authority)
		cfg.RootCAs = x509.NewCertPool()
		if err != nil || !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("OTEL_EXPORTER_OTLP_CERTIFICATE is not a readable file with certificates in PEM format: correct its path")
		}
	}
	if certificate != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(certificate, key)
		if err != nil {
			return nil, errors.New("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and OTEL_EXPORTER_OTLP_CLIENT_KEY " +
				"are not the files of a certificate and its key: correct their paths")
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}
