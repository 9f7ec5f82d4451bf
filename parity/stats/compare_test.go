package stats_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// fields has the values of a document by path. Elements of lists have their name as index, like pods[idle].containers[main].cpu.time.
type fields map[string]any

func fieldsOf(text string) (fields, error) {
	var document any
	if err := json.Unmarshal([]byte(text), &document); err != nil {
		return nil, err
	}
	result := fields{}
	result.add("", document)
	return result, nil
}

func (f fields) add(path string, value any) {
	switch value := value.(type) {
	case map[string]any:
		for name, field := range value {
			f.add(strings.TrimPrefix(path+"."+name, "."), field)
		}
	case []any:
		for i, element := range value {
			f.add(fmt.Sprintf("%s[%s]", path, indexOf(i, element)), element)
		}
	default:
		f[path] = value
	}
}

func indexOf(i int, element any) string {
	object, _ := element.(map[string]any)
	reference, _ := object["podRef"].(map[string]any)
	for _, from := range []map[string]any{object, reference} {
		if name, ok := from["name"].(string); ok {
			return name
		}
	}
	return fmt.Sprint(i)
}

// number returns the value of a path. It fails the test if there is none.
func (f fields) number(t *testing.T, path string) float64 {
	t.Helper()
	value, ok := f[path].(float64)
	if !ok {
		t.Errorf("%s: got %v, want a number", path, f[path])
	}
	return value
}

// difference is an intended difference in the fields or series that exist.
type difference struct {
	reason          string
	kubelet, herald *regexp.Regexp
}

// compareFields requires that both documents have the same fields, besides the intended differences.
func compareFields(t *testing.T, document string, kubelet, herald fields) {
	t.Helper()
	compareSets(t, document, slices.Sorted(maps.Keys(kubelet)), slices.Sorted(maps.Keys(herald)), fieldDifferences)
}

func compareSets(t *testing.T, document string, kubelet, herald []string, intended []difference) {
	t.Helper()
	var only [2][]string
	for _, line := range kubelet {
		if !slices.Contains(herald, line) && !matches(intended, line, func(d difference) *regexp.Regexp { return d.kubelet }) {
			only[0] = append(only[0], line)
		}
	}
	for _, line := range herald {
		if !slices.Contains(kubelet, line) && !matches(intended, line, func(d difference) *regexp.Regexp { return d.herald }) {
			only[1] = append(only[1], line)
		}
	}
	if len(only[0])+len(only[1]) > 0 {
		t.Errorf("%s: only the kubelet has\n%s\nonly Herald has\n%s", document, strings.Join(only[0], "\n"), strings.Join(only[1], "\n"))
	}
	t.Logf("%s: %d of the kubelet, %d of Herald", document, len(kubelet), len(herald))
}

func matches(intended []difference, line string, side func(difference) *regexp.Regexp) bool {
	return slices.ContainsFunc(intended, func(d difference) bool { return side(d) != nil && side(d).MatchString(line) })
}

// How the values of a path must be related. Herald measures later than the kubelet.
const (
	same    = "same"
	within  = "within 20 %"
	notLess = "not less"
	// sameTime allows for one that is computed from the time since.
	sameTime = "within 2 seconds"
)

// values lists the fields whose values do not depend on when they are measured.
var values = map[string]string{
	`node\.nodeName`:  same,
	`node\.startTime`: sameTime,
	`node\.(fs|runtime\.imageFs)\.(capacityBytes|inodes)`:          same,
	`node\.rlimit\.maxpid`:                                         same,
	`node\.cpu\.usageCoreNanoSeconds`:                              within,
	`node\.network\.name`:                                          same,
	`node\.memory\.(pageFaults|majorPageFaults)`:                   notLess,
	`pods\[\w+\]\.(podRef\.\w+|startTime)`:                         same,
	`pods\[\w+\]\.containers\[\w+\]\.(name|startTime)`:             same,
	`pods\[\w+\](\.containers\[\w+\])?\.cpu\.usageCoreNanoSeconds`: notLess,
	`pods\[holder\](\.containers\[\w+\])?\.memory\.(workingSetBytes|usageBytes|rssBytes|availableBytes)`:                 within,
	`pods\[\w+\]\.containers\[\w+\]\.(rootfs\.(capacityBytes|inodes)|logs\.(usedBytes|inodesUsed|capacityBytes|inodes))`: same,
	`pods\[\w+\]\.volume\[\w+\]\.(usedBytes|inodesUsed|capacityBytes|inodes)`:                                            same,
	`pods\[\w+\]\.ephemeral-storage\.(capacityBytes|inodes)`:                                                             same,
	`pods\[\w+\]\.network(\.interfaces\[\w+\])?\.(rxBytes|txBytes|rxErrors|txErrors)`:                                    notLess,
	`pods\[\w+\]\.containers\[\w+\]\.rootfs\.(usedBytes|inodesUsed)`:                                                     notLess, // measured every 10 seconds
	`pods\[\w+\]\.network\.name`:                same,
	`pods\[\w+\]\.process_stats\.process_count`: same,
}

func compareValues(t *testing.T, kubelet, herald fields) {
	t.Helper()
	compared := 0
	for pattern, relation := range values {
		expression := regexp.MustCompile("^(" + pattern + ")$")
		for _, path := range slices.Sorted(maps.Keys(kubelet)) {
			ours, found := herald[path]
			if !found || !expression.MatchString(path) || isIntendedValue(path) {
				continue // a missing field is the matter of compareFields
			}
			compared++
			if !isRelated(relation, kubelet[path], ours) {
				t.Errorf("%s: the kubelet has %v, Herald %v; want %s", path, kubelet[path], ours, relation)
			}
		}
	}
	t.Logf("compared %d values", compared)
	held := herald.number(t, "pods[holder].containers[main].memory.workingSetBytes")
	if held < heldMebibytes<<20 || held > 1.5*heldMebibytes*(1<<20) {
		t.Errorf("pod holder: got a working set of %.0f bytes, want about %d MiB", held, heldMebibytes)
	}
	if used := herald.number(t, "pods[disk].ephemeral-storage.usedBytes"); used < fileSize || used > 2*fileSize {
		t.Errorf("pod disk: got %.0f bytes of ephemeral storage, want about %d", used, fileSize)
	}
}

func isIntendedValue(path string) bool {
	return slices.ContainsFunc(valueDifferences, func(d difference) bool { return d.kubelet.MatchString(path) })
}

func isRelated(relation string, kubelet, herald any) bool {
	if relation == sameTime {
		theirs, err := time.Parse(time.RFC3339, fmt.Sprint(kubelet))
		ours, otherErr := time.Parse(time.RFC3339, fmt.Sprint(herald))
		return err == nil && otherErr == nil && ours.Sub(theirs).Abs() <= 2*time.Second
	}
	theirs, isNumber := kubelet.(float64)
	ours, _ := herald.(float64)
	switch {
	case !isNumber || relation == same:
		return kubelet == herald
	case relation == notLess:
		return ours >= theirs
	default:
		return math.Abs(ours-theirs) <= .2*theirs
	}
}

// series is a time series without its value.
type series struct{ name, kind, labels, hasTime string }

func (s series) String() string {
	return fmt.Sprintf("%s{%s} %s %s", s.name, s.labels, s.kind, s.hasTime)
}

func seriesOf(text string) ([]series, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	var all []series
	for name, family := range families {
		for _, metric := range family.GetMetric() {
			hasTime := "with time"
			if metric.TimestampMs == nil {
				hasTime = "without time"
			}
			all = append(all, series{name, family.GetType().String(), labelsOf(metric), hasTime})
		}
	}
	return all, nil
}

func labelsOf(metric *dto.Metric) string {
	var labels []string
	for _, label := range metric.GetLabel() {
		labels = append(labels, label.GetName()+"="+label.GetValue())
	}
	slices.Sort(labels)
	return strings.Join(labels, ",")
}

// compareSeries requires the same names, types, labels and presence of times.
func compareSeries(t *testing.T, kubelet, herald []series) {
	t.Helper()
	lines := func(all []series) (result []string) {
		for _, one := range all {
			result = append(result, one.String())
		}
		slices.Sort(result)
		return result
	}
	compareSets(t, "/metrics/resource", lines(kubelet), lines(herald), seriesDifferences)
}
