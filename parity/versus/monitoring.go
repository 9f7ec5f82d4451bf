package versus

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/heraldnode/herald/parity/controlplane"
	"github.com/heraldnode/herald/parity/internal/program"
)

const (
	parityModule           = "github.com/heraldnode/herald/parity"
	kubeStateMetricsModule = "k8s.io/kube-state-metrics/v2"
)

// buildKubeStateMetrics builds kube-state-metrics at the version in kubestatemetrics/go.mod into the user's cache directory, and returns
// its path. The first build takes about 5 minutes on two cores.
func buildKubeStateMetrics(ctx context.Context, progress io.Writer) (path string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("build kube-state-metrics: %w", err)
		}
	}()
	parity, err := program.Go(ctx, "", "list", "-m", "-f", "{{.Dir}}", parityModule)
	if err != nil {
		return "", err
	}
	module := filepath.Join(parity, "versus", "kubestatemetrics")
	version, err := program.Go(ctx, module, "list", "-m", "-f", "{{.Version}}", kubeStateMetricsModule)
	if err != nil {
		return "", err
	}
	dir, unlock, err := program.LockCacheDir(ctx, "kube-state-metrics-"+version, progress)
	if err != nil {
		return "", err
	}
	defer unlock()
	path = filepath.Join(dir, "kube-state-metrics")
	_, err = program.GoBuild(ctx, program.GoBuildConfig{
		Dir: module, Output: path, LDFlags: "-s -w", Env: []string{"CGO_ENABLED=0"}, Packages: []string{kubeStateMetricsModule},
	}, progress)
	return path, err
}

// exporter is a kube-state-metrics.
type exporter struct {
	*controlplane.Server
	address string
}

func startExporter(ctx context.Context, cluster *controlplane.ControlPlane, binary, name string) (*exporter, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	telemetry, err := freeAddress()
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(address)
	_, telemetryPort, _ := net.SplitHostPort(telemetry)
	e := &exporter{address: address}
	e.Server = cluster.NewServer(controlplane.ServerConfig{
		Name: "kube-state-metrics-" + name,
		Command: []string{
			binary, "--kubeconfig=" + cluster.AdminKubeconfig(), "--resources=pods,nodes", "--host=127.0.0.1", "--port=" + port,
			"--telemetry-host=127.0.0.1", "--telemetry-port=" + telemetryPort,
		},
		Ready: func(ctx context.Context) error { return get(ctx, "http://"+address+"/metrics") },
	})
	return e, e.Start(ctx)
}

// prometheus is a Prometheus that scrapes an exporter and tells the receiver about alerts.
type prometheus struct {
	*controlplane.Server
	url string
}

//go:embed rules/prometheus.yaml
var prometheusRules []byte

const prometheusConfig = `
global: {scrape_interval: %[1]s, scrape_timeout: %[1]s, evaluation_interval: %[1]s}
rule_files: [rules.yaml]
alerting:
  alertmanagers:
  - path_prefix: /%[2]s
    static_configs: [{targets: ["%[3]s"]}]
scrape_configs:
- job_name: kube-state-metrics
  honor_labels: true
  static_configs: [{targets: ["%[4]s"]}]
`

// forGracePeriod is the default of 10m, shortened like the rules: Prometheus restores the state of a rule whose for is longer.
const forGracePeriod = "80s"

// prometheusSettings says what a Prometheus does.
type prometheusSettings struct {
	side     string
	interval time.Duration
	target   string
	receiver string
	dir      string
}

func startPrometheus(ctx context.Context, cluster *controlplane.ControlPlane, s prometheusSettings) (*prometheus, error) {
	binary, err := exec.LookPath("prometheus")
	if err != nil {
		return nil, fmt.Errorf("%w; add what hack/install-prometheus prints to PATH", err)
	}
	dir := filepath.Join(s.dir, s.side)
	config := fmt.Sprintf(prometheusConfig, s.interval, s.side, s.receiver, s.target)
	err = errors.Join(
		os.MkdirAll(dir, 0o700),
		os.WriteFile(filepath.Join(dir, "rules.yaml"), prometheusRules, 0o600),
		os.WriteFile(filepath.Join(dir, "prometheus.yaml"), []byte(config), 0o600),
	)
	if err != nil {
		return nil, err
	}
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	p := &prometheus{url: "http://" + address}
	p.Server = cluster.NewServer(controlplane.ServerConfig{
		Name: s.side,
		Command: []string{
			binary, "--config.file=" + filepath.Join(dir, "prometheus.yaml"), "--storage.tsdb.path=" + filepath.Join(dir, "data"),
			"--web.listen-address=" + address, "--rules.alert.for-grace-period=" + forGracePeriod,
		},
		Ready: func(ctx context.Context) error { return get(ctx, p.url+"/-/ready") },
	})
	return p, p.Start(ctx)
}

func get(ctx context.Context, url string) error {
	_, err := fetch(ctx, http.MethodGet, url)
	return err
}

func fetch(ctx context.Context, method, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, http.NoBody)
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
		err = fmt.Errorf("%s %s: %s: %s", method, url, response.Status, body)
	}
	return body, err
}

func freeAddress() (string, error) {
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}
