package metrics

import (
	"encoding/binary"
	"math"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// A message is an encoded protobuf message of opentelemetry/proto. The numbers in
// the code below are those of its fields. The generated types would add
// 1.4 MB to the memory of every process.
//
// See https://protobuf.dev/programming-guides/encoding/.
type message []byte

// The wire types.
const (
	varint          = 0
	fixed64         = 1
	lengthDelimited = 2
)

func (m *message) tag(field, wireType uint64) { *m = binary.AppendUvarint(*m, field<<3|wireType) }

// text adds a string, unless it is empty.
func (m *message) text(field uint64, s string) {
	if s != "" {
		m.bytes(field, []byte(s))
	}
}

func (m *message) bytes(field uint64, b []byte) {
	m.tag(field, lengthDelimited)
	*m = append(binary.AppendUvarint(*m, uint64(len(b))), b...)
}

func (m *message) number(field, n uint64) {
	m.tag(field, varint)
	*m = binary.AppendUvarint(*m, n)
}

func (m *message) fixed(field, n uint64) {
	m.tag(field, fixed64)
	*m = binary.LittleEndian.AppendUint64(*m, n)
}

func (m *message) float(field uint64, f float64) { m.fixed(field, math.Float64bits(f)) }

// instant adds a time, unless it is unknown.
func (m *message) instant(field uint64, t time.Time) {
	if !t.IsZero() {
		m.fixed(field, uint64(t.UnixNano()))
	}
}

// attributes adds a KeyValue for each attribute.
func (m *message) attributes(field uint64, set attribute.Set) {
	for i := set.Iter(); i.Next(); {
		var value, pair message
		value.bytes(1, []byte(i.Attribute().Value.String())) // string_value
		pair.text(1, string(i.Attribute().Key))              // key
		pair.bytes(2, value)                                 // value
		m.bytes(field, pair)
	}
}

// encode returns an ExportMetricsServiceRequest, or nil if there is nothing to
// send.
func encode(metrics *metricdata.ResourceMetrics) []byte {
	var about, all, request message
	about.attributes(1, *metrics.Resource.Set())
	all.bytes(1, about) // resource
	sent := false
	for _, s := range metrics.ScopeMetrics {
		var group message
		group.bytes(1, scope(s.Scope)) // scope
		for _, m := range s.Metrics {
			if data := histogram(m.Data); data != nil {
				var one message
				one.text(1, m.Name)
				one.text(2, m.Description)
				one.text(3, m.Unit)
				one.bytes(9, data) // histogram
				group.bytes(2, one)
				sent = true
			}
		}
		group.text(3, s.Scope.SchemaURL)
		all.bytes(2, group) // scope_metrics
	}
	if !sent {
		return nil
	}
	all.text(3, metrics.Resource.SchemaURL())
	request.bytes(1, all) // resource_metrics
	return request
}

func scope(s instrumentation.Scope) (m message) {
	m.text(1, s.Name)
	m.text(2, s.Version)
	m.attributes(3, s.Attributes)
	return m
}

// histogram returns a Histogram, or nil for data of another type or without
// points.
func histogram(data metricdata.Aggregation) message {
	switch h := data.(type) {
	case metricdata.Histogram[float64]:
		return points(h)
	case metricdata.Histogram[int64]:
		return points(h)
	}
	return nil
}

func points[N int64 | float64](h metricdata.Histogram[N]) (m message) {
	if len(h.DataPoints) == 0 {
		return nil
	}
	for _, p := range h.DataPoints {
		m.bytes(1, point(p)) // data_points
	}
	temporality := uint64(2) // AGGREGATION_TEMPORALITY_CUMULATIVE
	if h.Temporality == metricdata.DeltaTemporality {
		temporality = 1
	}
	m.number(2, temporality)
	return m
}

// point returns a HistogramDataPoint.
func point[N int64 | float64](p metricdata.HistogramDataPoint[N]) (m message) {
	m.instant(2, p.StartTime)
	m.instant(3, p.Time)
	m.fixed(4, p.Count)
	m.float(5, float64(p.Sum))
	var counts, bounds message // packed
	for _, n := range p.BucketCounts {
		counts = binary.LittleEndian.AppendUint64(counts, n)
	}
	for _, b := range p.Bounds {
		bounds = binary.LittleEndian.AppendUint64(bounds, math.Float64bits(b))
	}
	m.bytes(6, counts)
	m.bytes(7, bounds)
	m.attributes(9, p.Attributes)
	if v, ok := p.Min.Value(); ok {
		m.float(11, float64(v))
	}
	if v, ok := p.Max.Value(); ok {
		m.float(12, float64(v))
	}
	return m
}
