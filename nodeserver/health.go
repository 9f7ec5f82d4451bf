package nodeserver

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Check is a named check of health.
type Check struct {
	Name string
	// Check returns what is wrong, or nil.
	Check func() error
}

// Health serves /healthz. Create it with NewHealth.
type Health struct {
	checks   []Check
	registry *prometheus.Registry
	last     *prometheus.GaugeVec
	total    *prometheus.CounterVec
}

// NewHealth returns the health of the checks and of ping, which says that the server answers.
func NewHealth(checks ...Check) *Health {
	h := &Health{
		checks:   append([]Check{{"ping", func() error { return nil }}}, checks...),
		registry: prometheus.NewRegistry(),
		last: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubernetes_healthcheck", Help: "Result of the last check of health: 1 if it passed.",
		}, []string{"name", "type"}),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubernetes_healthchecks_total", Help: "Number of checks of health.",
		}, []string{"name", "type", "status"}),
	}
	h.registry.MustRegister(h.last, h.total)
	return h
}

// install adds /healthz and a path for each check.
func (h *Health) install(mux *http.ServeMux) {
	mux.HandleFunc("/healthz", h.serveAll)
	for _, check := range h.checks {
		mux.HandleFunc("/healthz/"+check.Name, func(w http.ResponseWriter, _ *http.Request) {
			if err := check.Check(); err != nil {
				http.Error(w, fmt.Sprintf("internal server error: %v", err), http.StatusInternalServerError)
				return
			}
			writeOK(w)
		})
	}
}

// Handler returns a handler of /healthz alone, for a server without authentication (SRV-35).
func (h *Health) Handler() http.Handler {
	mux := http.NewServeMux()
	h.install(mux)
	return mux
}

// serveAll checks everything but what is excluded. The text does not say why a check failed; the path of the check does.
func (h *Health) serveAll(w http.ResponseWriter, r *http.Request) {
	excluded, isVerbose := r.URL.Query()["exclude"], r.URL.Query().Has("verbose")
	var lines bytes.Buffer
	isFailed := false
	for _, check := range h.checks {
		if slices.Contains(excluded, check.Name) {
			fmt.Fprintf(&lines, "[+]%s excluded: ok\n", check.Name)
			continue
		}
		if err := check.Check(); err != nil {
			isFailed = true
			h.count(check.Name, false)
			fmt.Fprintf(&lines, "[-]%s failed: reason withheld\n", check.Name)
			continue
		}
		h.count(check.Name, true)
		fmt.Fprintf(&lines, "[+]%s ok\n", check.Name)
	}
	if unknown := h.unknown(excluded); len(unknown) > 0 {
		fmt.Fprintf(&lines, "warn: some health checks cannot be excluded: no matches for %s\n", strings.Join(unknown, ","))
	}
	switch {
	case isFailed:
		http.Error(w, lines.String()+"healthz check failed", http.StatusInternalServerError)
	case isVerbose:
		setPlainText(w)
		_, _ = fmt.Fprintf(w, "%shealthz check passed\n", lines.String())
	default:
		writeOK(w)
	}
}

// unknown returns the names, quoted and sorted, that are no checks.
func (h *Health) unknown(names []string) []string {
	var unknown []string
	for _, name := range names {
		if !slices.ContainsFunc(h.checks, func(check Check) bool { return check.Name == name }) {
			unknown = append(unknown, fmt.Sprintf("%q", name))
		}
	}
	slices.Sort(unknown)
	return slices.Compact(unknown)
}

func (h *Health) count(name string, isOK bool) {
	status, value := "error", 0.0
	if isOK {
		status, value = "success", 1
	}
	h.last.WithLabelValues(name, "healthz").Set(value)
	h.total.WithLabelValues(name, "healthz", status).Inc()
}

// slis serves /metrics/slis: the results of checks as metrics. DELETE resets them.
func (h *Health) slis() http.Handler {
	metrics := promhttp.HandlerFor(h.registry, promhttp.HandlerOpts{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodDelete {
			metrics.ServeHTTP(w, r)
			return
		}
		h.last.Reset()
		h.total.Reset()
		setPlainText(w)
		_, _ = w.Write([]byte("metrics reset\n"))
	})
}

func writeOK(w http.ResponseWriter) {
	setPlainText(w)
	_, _ = w.Write([]byte("ok"))
}

func setPlainText(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
}
