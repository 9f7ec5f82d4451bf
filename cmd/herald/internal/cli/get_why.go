package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/cmd/herald/internal/client"
	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/internal/table"
	"github.com/heraldnode/herald/view"
)

// viewParameters returns the selectors that the server applies. Namespaces and names are selected here, for the hints of missing.
func (o *getOptions) viewParameters() url.Values {
	values := url.Values{}
	for name, value := range map[string]string{
		"labelSelector": o.labelSelector, "fieldSelector": o.fieldSelector, "where": o.where,
	} {
		if value != "" {
			values.Set(name, value)
		}
	}
	return values
}

// whereError makes an error of the command line of a request that the server rejects.
func whereError(err error) error {
	var response *client.ResponseError
	if errors.As(err, &response) && response.Code == http.StatusBadRequest {
		return usageError{err}
	}
	return err
}

// runViews prints views of pods: with the column WHY, or those for which the expression of --where becomes true.
func (o *getOptions) runViews(ctx context.Context, agent *client.Client, stdout, stderr io.Writer) error {
	printer := o.newViewPrinter(stdout)
	if o.isWatch() {
		return whereError(o.printViewChanges(ctx, agent, printer))
	}
	list, err := agent.PodViews(ctx, o.viewParameters())
	if err != nil {
		return whereError(err)
	}
	pods := make([]v1.Pod, 0, len(list.Items))
	var selected []view.PodView
	for i := range list.Items {
		pods = append(pods, *podOfView(&list.Items[i]))
		if o.matchesName(&pods[i]) {
			selected = append(selected, list.Items[i])
		}
	}
	missing := o.missing(pods)
	if o.ignoreNotFound {
		missing = nil
	}
	if len(selected) == 0 && missing == nil {
		o.printNone(stderr)
	}
	if len(selected) > 0 {
		err = printer.print(selected)
	}
	return errors.Join(err, missing)
}

// printViewChanges prints the views that exist as one table, and then each change.
func (o *getOptions) printViewChanges(ctx context.Context, agent *client.Client, printer *viewPrinter) error {
	parameters := o.viewParameters()
	parameters.Set("topics", "pods")
	var existing []view.PodView
	isSynced := false
	return agent.WatchViews(ctx, parameters, func(event view.WatchEvent) error {
		if event.Type == view.Synced {
			isSynced = true
			if o.watchOnly || len(existing) == 0 {
				return nil
			}
			return printer.print(existing)
		}
		pod, err := client.DecodePodView(event)
		if err != nil || !o.matchesName(podOfView(&pod)) {
			return err
		}
		if !isSynced {
			existing = append(existing, pod)
			return nil
		}
		return printer.print([]view.PodView{pod})
	})
}

// viewPrinter prints views of pods, as rows or names.
type viewPrinter struct {
	out     io.Writer
	table   *table.Printer // nil for names
	withWhy bool
}

func (o *getOptions) newViewPrinter(out io.Writer) *viewPrinter {
	if o.format.name == formatName {
		return &viewPrinter{out: out}
	}
	options := table.Options{Namespaces: o.allNamespaces, NoHeader: o.noHeaders}
	withWhy := o.format.name == formatWhy
	if withWhy {
		options.Extra = []string{"SYNC", "WHY"}
	}
	return &viewPrinter{out: out, table: table.NewPrinter(out, options), withWhy: withWhy}
}

func (p *viewPrinter) print(pods []view.PodView) error {
	now := time.Now()
	rows := make([]table.Row, 0, len(pods))
	for i := range pods {
		pod := &pods[i]
		if p.table == nil {
			if _, err := fmt.Fprintln(p.out, "pod/"+table.Printable(pod.Metadata.Name)); err != nil {
				return err
			}
			continue
		}
		row := table.NewRow(podOfView(pod), now)
		if p.withWhy {
			row.Extra = []string{formatLag(&pod.Lag), table.Printable(pod.Why.Text)}
		}
		rows = append(rows, row)
	}
	if p.table == nil {
		return nil
	}
	return p.table.Print(rows...)
}

// formatLag returns the column SYNC: how far the API server is behind.
func formatLag(lag *view.Lag) string {
	behind := formatDuration(time.Duration(lag.SinceMs) * time.Millisecond)
	switch lag.State {
	case explain.SyncSynced:
		if lag.TookMs == 0 {
			return "ok"
		}
		return "ok " + formatDuration(time.Duration(lag.TookMs)*time.Millisecond)
	case explain.SyncUnknown, explain.SyncNoServer:
		return "-"
	case explain.SyncSending, explain.SyncGone:
		return string(lag.State)
	default:
		return string(lag.State) + " " + behind
	}
}

// podOfView returns the parts of the pod that the table of pods shows.
func podOfView(p *view.PodView) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Metadata.Namespace, Name: p.Metadata.Name, Labels: p.Metadata.Labels, Annotations: p.Metadata.Annotations,
		},
		Spec: v1.PodSpec{NodeName: p.Spec.NodeName}, Status: p.Local.Status,
	}
	if p.Metadata.CreationTimestamp != nil {
		pod.CreationTimestamp = metav1.NewTime(p.Metadata.CreationTimestamp.Time)
	}
	if p.Metadata.DeletionTimestamp != nil {
		pod.DeletionTimestamp = &metav1.Time{Time: p.Metadata.DeletionTimestamp.Time}
	}
	for _, container := range p.Spec.Containers {
		switch container.Kind {
		case "init":
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, v1.Container{Name: container.Name})
		case "sidecar":
			always := v1.ContainerRestartPolicyAlways
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, v1.Container{Name: container.Name, RestartPolicy: &always})
		case "regular":
			pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: container.Name})
		}
	}
	return pod
}
