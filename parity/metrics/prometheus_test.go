package metrics_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/parity/controlplane"
	"github.com/heraldnode/herald/parity/internal/needs"
)

// prometheus is a running Prometheus that scrapes nodes. Their metrics have the labels that kubernetes-mixin expects: job="kubelet",
// the node's name as instance, and the name of the agent as cluster.
type prometheus struct{ url string }

const prometheusConfig = `
global: {scrape_interval: 3s, scrape_timeout: 3s}
scrape_configs:`

const scrapeConfig = `
- job_name: %[1]s%[3]s
  metrics_path: %[3]s
  static_configs: [{targets: ["%[2]s"], labels: {cluster: %[1]s, instance: %[1]s, job: kubelet}}]`

// startPrometheus starts a Prometheus that stops with the control plane.
func startPrometheus(t *testing.T, cluster *controlplane.ControlPlane, nodes ...*testNode) *prometheus {
	t.Helper()
	needs.Prometheus(t)
	binary, err := exec.LookPath("prometheus")
	if err != nil {
		t.Fatal(err)
	}
	config := prometheusConfig
	for _, n := range nodes {
		for _, path := range paths {
			config += fmt.Sprintf(scrapeConfig, n.name, n.agent.HTTPAddress(), path)
		}
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "prometheus.yaml")
	if err := os.WriteFile(file, []byte(config+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	p := &prometheus{url: "http://" + address}
	server := cluster.NewServer(controlplane.ServerConfig{
		Name: "prometheus", Command: []string{
			binary, "--config.file=" + file, "--storage.tsdb.path=" + filepath.Join(dir, "data"), "--web.listen-address=" + address,
		},
		Ready: func(ctx context.Context) error { _, err := p.get(ctx, "/-/ready", nil); return err },
	})
	if err := server.Start(t.Context()); err != nil {
		t.Fatalf("%v; log of Prometheus:\n%s", err, server.LogTail())
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func (p *prometheus) get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, response.Status, body)
	}
	return body, err
}

// sample is one series of a result.
type sample struct {
	Metric map[string]string `json:"metric"`
	Value  [2]any            `json:"value"` // time, number as a string
}

// query evaluates an expression now.
func (p *prometheus) query(ctx context.Context, expr string) ([]sample, error) {
	body, err := p.get(ctx, "/api/v1/query", url.Values{"query": {expr}})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	var answer struct{ Data struct{ Result []sample } }
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	return answer.Data.Result, nil
}

// awaitScrapes waits until all targets were scraped several times since now, so that a rate can be computed.
func (p *prometheus) awaitScrapes(t *testing.T, targets int) {
	t.Helper()
	count := func() (int, error) {
		const scraped = `sum(count_over_time(up[1h]))`
		result, err := p.query(t.Context(), scraped)
		if err != nil || len(result) == 0 {
			return 0, err
		}
		var number int
		_, err = fmt.Sscan(fmt.Sprint(result[0].Value[1]), &number)
		return number, err
	}
	before, err := count()
	if err != nil {
		t.Fatal(err)
	}
	heraldtest.Eventually(t, func() error {
		down, err := p.query(t.Context(), `up == 0`)
		if err != nil || len(down) > 0 {
			return fmt.Errorf("targets that are down: %v, %w", down, err)
		}
		now, err := count()
		if err == nil && now < before+3*targets {
			err = fmt.Errorf("%d scrapes of %d targets", now-before, targets)
		}
		return err
	})
}

// expression is one of testdata/kubernetes-mixin.yaml, or of the dashboard.
type expression struct {
	Title, Expr string
	// Occasional is set if an agent has data only after something has happened that need not happen.
	Occasional bool
}

// on returns the expression for the agent with this name.
func (e expression) on(agent string) string {
	return strings.NewReplacer("$cluster", agent, "$instance", ".*", "$__rate_interval", "5m").Replace(e.Expr)
}

func readExpressions(t *testing.T) []expression {
	t.Helper()
	content, err := os.ReadFile("testdata/kubernetes-mixin.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Dashboard, Rules, Alerts []expression }
	if err := yaml.UnmarshalStrict(content, &file); err != nil {
		t.Fatal(err)
	}
	return append(append(file.Dashboard, file.Rules...), file.Alerts...)
}

// compareExpressions evaluates what dashboards and alerts of kubernetes-mixin ask for. What has data for the kubelet must have data for
// Herald.
func compareExpressions(t *testing.T, p *prometheus) {
	t.Helper()
	withData := 0
	for _, e := range readExpressions(t) {
		kubelet, herald := p.countSeries(t, e.on("kubelet")), p.countSeries(t, e.on("herald"))
		t.Logf("%s: %d series of the kubelet, %d of herald", e.Title, kubelet, herald)
		if kubelet > 0 {
			withData++
		}
		if kubelet > 0 && herald == 0 && !e.Occasional {
			t.Errorf("%s: the kubelet has data, herald has none:\n%s", e.Title, e.on("herald"))
		}
	}
	if withData < 20 {
		t.Errorf("only %d expressions have data for the kubelet: the environment of the test is wrong", withData)
	}
}

// evaluateDashboard evaluates what Herald's own dashboard asks for. Some panels are empty while all is well.
func evaluateDashboard(t *testing.T, p *prometheus) {
	t.Helper()
	expressions, withData := dashboardExpressions(t), 0
	for _, e := range expressions {
		if p.countSeries(t, e.on("herald")) > 0 {
			withData++
		} else {
			t.Logf("%s: no data:\n%s", e.Title, e.on("herald"))
		}
	}
	if withData < len(expressions)*3/4 {
		t.Errorf("only %d of %d expressions of the dashboard have data", withData, len(expressions))
	}
}

func (p *prometheus) countSeries(t *testing.T, expr string) int {
	t.Helper()
	result, err := p.query(t.Context(), expr)
	if err != nil {
		t.Fatal(err)
	}
	return len(result)
}
