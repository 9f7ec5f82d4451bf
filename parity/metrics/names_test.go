package metrics_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the tables of docs/metrics.md")

// document has the tables of all metrics.
const document = "../../docs/metrics.md"

// row is a metric in the table of the kubelet's metrics.
type row struct {
	Name, Type, Labels string
	Path               string
	Kubelet, Herald    bool
	// When is when the metric has series. It is empty for a metric that always has some once pods run.
	When string
}

// names is testdata/names.yaml.
type names struct {
	// Absent has the reason why Herald does not have a metric of the kubelet, by name, or by prefix with a * at the end.
	Absent map[string]string
	// Occasional are metrics that have no series in most runs of the test.
	Occasional []row
}

func readNames(t *testing.T) names {
	t.Helper()
	content, err := os.ReadFile("testdata/names.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file names
	if err := yaml.UnmarshalStrict(content, &file); err != nil {
		t.Fatal(err)
	}
	return file
}

// reason returns why Herald does not have the metric.
func (f names) reason(name string) string {
	if reason, found := f.Absent[name]; found {
		return reason
	}
	for pattern, reason := range f.Absent {
		if prefix, isPrefix := strings.CutSuffix(pattern, "*"); isPrefix && strings.HasPrefix(name, prefix) {
			return reason
		}
	}
	return ""
}

// isCompared reports whether the metric is about what an agent does, and not about the libraries that it uses.
func isCompared(name string) bool {
	return slices.ContainsFunc([]string{
		"kubelet_", "prober_", "rest_client_", "storage_", "volume_", // at /metrics and /metrics/probes
		"node_", "pod_", "container_", "resource_", // at /metrics/resource
	}, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// compareNames compares name, path, type, labels and buckets of the metrics of both agents, and both with the document.
func compareNames(t *testing.T, kubelet, herald map[string]family) {
	t.Helper()
	file := readNames(t)
	rows := map[string]row{}
	for _, r := range file.Occasional {
		if r.Path = cmp.Or(r.Path, paths[0]); isCompared(r.Name) {
			rows[r.Name] = r
		}
	}
	for name, theirs := range kubelet {
		if !isCompared(name) {
			continue
		}
		ours, isOurs := herald[name]
		if isOurs {
			compareFamilies(t, name, theirs, ours)
		}
		addRow(t, rows, row{Name: name, Type: theirs.kind, Labels: theirs.labels, Path: theirs.path, Kubelet: true, Herald: isOurs})
	}
	for name, ours := range herald {
		if _, isTheirs := kubelet[name]; !isTheirs && isCompared(name) {
			addRow(t, rows, row{Name: name, Type: ours.kind, Labels: ours.labels, Path: ours.path, Herald: true})
		}
	}
	for _, r := range rows {
		switch reason := file.reason(r.Name); {
		case !r.Herald && reason == "":
			t.Errorf("%s: herald does not have it, and testdata/names.yaml does not say why", r.Name)
		case r.Herald && reason != "":
			t.Errorf("%s: herald has it, but testdata/names.yaml says why not: %s", r.Name, reason)
		}
	}
	checkDocument(t, "kubelet", kubeletTable(rows, file))
	checkDocument(t, "herald", heraldTable(file, herald))
}

func compareFamilies(t *testing.T, name string, kubelet, herald family) {
	t.Helper()
	kubelet.help, herald.help = "", ""
	if kubelet != herald {
		t.Errorf("%s differs:\nkubelet %+v\nherald  %+v", name, kubelet, herald)
	}
}

// addRow adds what was seen. An occasional metric must be as the file says, wherever it was seen.
func addRow(t *testing.T, rows map[string]row, seen row) {
	t.Helper()
	known, isOccasional := rows[seen.Name]
	if !isOccasional {
		rows[seen.Name] = seen
		return
	}
	if known.Type != seen.Type || known.Labels != seen.Labels || known.Path != seen.Path ||
		seen.Kubelet && !known.Kubelet || seen.Herald && !known.Herald {
		t.Errorf("%s: got %+v, but testdata/names.yaml has %+v", seen.Name, seen, known)
	}
}

func kubeletTable(rows map[string]row, file names) string {
	table := strings.Builder{}
	table.WriteString("| metric | type | labels | kubelet | Herald | note |\n| --- | --- | --- | --- | --- | --- |\n")
	mark := map[bool]string{true: "yes", false: "no"}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		r := rows[name]
		note := file.reason(name)
		if r.When != "" && r.Herald {
			note = "when " + r.When
		}
		if r.Path != paths[0] {
			note = strings.TrimSuffix("at `"+r.Path+"`; "+note, "; ")
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s | %s | %s |\n", name, r.Type, r.Labels, mark[r.Kubelet], mark[r.Herald], note)
	}
	return table.String()
}

// heraldTable lists the metrics that only Herald has.
func heraldTable(file names, herald map[string]family) string {
	lines := map[string]string{}
	for name, f := range herald {
		if strings.HasPrefix(name, "herald_") {
			lines[name] = fmt.Sprintf("| `%s` | %s | %s | %s |\n", name, f.kind, f.labels, f.help)
		}
	}
	for _, r := range file.Occasional {
		if strings.HasPrefix(r.Name, "herald_") {
			lines[r.Name] = fmt.Sprintf("| `%s` | %s | %s | when %s |\n", r.Name, r.Type, r.Labels, r.When)
		}
	}
	table := strings.Builder{}
	table.WriteString("| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n")
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		table.WriteString(lines[name])
	}
	return table.String()
}

// checkDocument compares a table with the one between the comments of this name in the document, or writes it with -update.
func checkDocument(t *testing.T, name, table string) {
	t.Helper()
	content, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->\n"
	before, rest, hasBegin := strings.Cut(string(content), begin)
	current, after, hasEnd := strings.Cut(rest, end)
	switch {
	case !hasBegin || !hasEnd:
		t.Fatalf("%s has no comments %q and %q", document, begin, end)
	case current == table:
	case !*update || t.Failed():
		t.Errorf("%s has another table %q: run go test ./metrics -update in parity; got\n%s", document, name, table)
	default:
		if err := os.WriteFile(document, []byte(before+begin+table+end+after), 0o644); err != nil { //nolint:gosec // a document
			t.Fatal(err)
		}
	}
}
