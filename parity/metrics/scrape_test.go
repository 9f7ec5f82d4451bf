package metrics_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// paths are where both agents serve metrics.
var paths = []string{"/metrics", "/metrics/probes", resourcePath}

const resourcePath = "/metrics/resource"

// family is what must agree of a metric: not its help, and not the values of its labels.
type family struct {
	path   string
	kind   string
	labels string // names, sorted
	help   string
	// buckets are the upper bounds of a histogram.
	buckets string
}

// scrape returns the metrics of an agent by name.
func (n *testNode) scrape(ctx context.Context) (map[string]family, error) {
	found := map[string]family{}
	for _, path := range paths {
		families, err := get(ctx, "http://"+n.agent.HTTPAddress()+path)
		if err != nil {
			return nil, err
		}
		for name, metrics := range families {
			if _, isKnown := found[name]; isKnown {
				continue // the kubelet serves process_start_time_seconds on each path
			}
			found[name] = family{
				path: path, kind: strings.ToLower(metrics.GetType().String()), labels: labelsOf(metrics), help: metrics.GetHelp(),
				buckets: bucketsOf(metrics),
			}
		}
	}
	return found, nil
}

func get(ctx context.Context, url string) (map[string]*dto.MetricFamily, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, response.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(response.Body)
}

// labelsOf returns the names of the labels of all series.
func labelsOf(metrics *dto.MetricFamily) string {
	names := map[string]bool{}
	for _, metric := range metrics.GetMetric() {
		for _, label := range metric.GetLabel() {
			names[label.GetName()] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(names)), ", ")
}

// bucketsOf returns the upper bounds of a histogram.
func bucketsOf(metrics *dto.MetricFamily) string {
	var bounds []string
	for _, bucket := range metrics.GetMetric()[0].GetHistogram().GetBucket() {
		bounds = append(bounds, fmt.Sprintf("%.6g", bucket.GetUpperBound()))
	}
	return strings.Join(bounds, " ")
}
