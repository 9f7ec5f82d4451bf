package versus

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/heraldnode/herald/parity/internal/program"
)

// versions returns the versions of the programs, as far as they can be found out.
func (r *rig) versions(ctx context.Context) (v Versions) {
	var build struct {
		Data struct {
			Version string `json:"version"`
		} `json:"data"`
	}
	if body, err := fetch(ctx, http.MethodGet, r.proms[Usual].url+"/api/v1/status/buildinfo"); err == nil {
		_ = json.Unmarshal(body, &build) // the version is left out then
	}
	v.Prometheus = build.Data.Version
	v.KubeStateMetrics, _ = program.Go(ctx, "versus/kubestatemetrics", "list", "-m", "-f", "{{.Version}}", kubeStateMetricsModule)
	if server, err := r.admin.Discovery().ServerVersion(); err == nil {
		v.Kubernetes = server.GitVersion
	}
	return v
}

// Markdown returns a table of the result.
func (r *Result) Markdown() string {
	var b strings.Builder
	v := r.Versions
	fmt.Fprintf(&b, "Prometheus %s, kube-state-metrics %s, Kubernetes %s.\n", v.Prometheus, v.KubeStateMetrics, v.Kubernetes)
	fmt.Fprintf(&b, "Herald's default rules, which ran too, told of the OOM kill after %s, of the crash loop after %s.\n\n",
		r.Default.OOMKilled, r.Default.CrashLooping)
	b.WriteString("| what happens | | Prometheus, 30 s | Prometheus, 1 s | Herald |\n| --- | --- | --- | --- | --- |\n")
	for _, e := range r.Events {
		if e.FalseAlarm {
			e.row(&b, e.Title, "told", (*Outcome).falseAlarm)
			continue
		}
		if e.Name == "source" {
			e.row(&b, e.Title, "meanwhile", (*Outcome).kept)
		} else {
			e.row(&b, e.Title+e.times(), "told after", (*Outcome).noticed)
		}
		if !e.Continues {
			e.row(&b, "", "resolved after", (*Outcome).resolved)
		}
	}
	return b.String()
}

func (e *Event) row(b *strings.Builder, title, what string, cell func(*Outcome) string) {
	fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", title, what, cell(e.Outcomes[Usual]), cell(e.Outcomes[Fast]), cell(e.Outcomes[Herald]))
}

// times says how much of the times is in the rules.
func (e *Event) times() string {
	switch {
	case e.Gap != nil:
		return fmt.Sprintf(" after %s (window %s)", e.Gap, e.Window)
	case e.For > 0 && e.Window > 0:
		return fmt.Sprintf(" (`for` %s, window %s)", e.For, e.Window)
	case e.For > 0:
		return fmt.Sprintf(" (`for` %s)", e.For)
	default:
		return fmt.Sprintf(" (window %s)", e.Window)
	}
}

func (o *Outcome) noticed() string {
	if o.Noticed == nil {
		return "**never**"
	}
	return o.Noticed.String() + o.flaws()
}

func (o *Outcome) resolved() string {
	switch {
	case o.Resolved != nil:
		return o.Resolved.String()
	case o.Expires != nil:
		return "**never**; Alertmanager ends it after " + o.Expires.String()
	case o.Noticed == nil && o.Starts == 0:
		return ""
	default:
		return "**never**"
	}
}

func (o *Outcome) falseAlarm() string {
	if o.Noticed == nil {
		return "nothing"
	}
	return "after " + o.Noticed.String() + " that it is not ready"
}

func (o *Outcome) kept() string { return cmp.Or(strings.TrimPrefix(o.flaws(), ", "), "kept firing") }

// flaws says what happened between the first message and the end.
func (o *Outcome) flaws() (text string) {
	if o.Wrong > 0 {
		text += fmt.Sprintf(", resolved wrongly %s", times(o.Wrong))
	}
	if o.Starts > 1 {
		text += fmt.Sprintf(", told %d different starts", o.Starts)
	}
	return text
}

// The markers of the generated part of a document.
const (
	markerBegin = "<!-- versus: written by `make versus` -->\n"
	markerEnd   = "<!-- /versus -->"
)

// Insert returns the document with the table of this result.
func (r *Result) Insert(document string) (string, error) {
	before, rest, found := strings.Cut(document, markerBegin)
	_, after, foundEnd := strings.Cut(rest, markerEnd)
	if !found || !foundEnd {
		return "", errors.New("the document has no markers for the table")
	}
	return before + markerBegin + r.Markdown() + markerEnd + after, nil
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// String returns the duration with the precision that makes sense.
func (s Seconds) String() string {
	d := time.Duration(float64(s) * float64(time.Second))
	switch {
	case d < 0:
		return "before"
	case d < 10*time.Second:
		return fmt.Sprintf("%.2f s", float64(s))
	default:
		return fmt.Sprintf("%.0f s", float64(s))
	}
}
