package localapi

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/heraldnode/herald/load"
	"github.com/heraldnode/herald/podid"
)

// Stats provides the use of resources.
type Stats interface {
	// Node returns the load of the node, Machine the last sample of the machine and when it was taken, zero if it is not recent.
	Node() load.Node
	Machine() (load.MachineSample, time.Time)
	// Pod returns the load of a pod, and false if it was not measured.
	Pod(uid podid.UID) (load.Pod, bool)
	// PodSamples returns the samples of all pods and when they were taken, zero if they are not recent.
	PodSamples() ([]load.PodSample, time.Time)
}

const (
	metricsPath = "apis/metrics.k8s.io/v1beta1/"
	// metricsWindow is the time over which the use of CPU is averaged.
	metricsWindow = load.Window1m
)

// metricsKinds are the kinds of metrics.k8s.io by resource name, which kubectl top reads.
var metricsKinds = map[string]*kind{
	"nodes": {
		groupVersion: metricsv1beta1.SchemeGroupVersion, resource: "nodes", name: "NodeMetrics",
		origin: "the agent measures its machine", fields: metadataFields, columns: usageColumns, cells: nodeMetricsCells,
		newObject: func() object { return &metricsv1beta1.NodeMetrics{} },
	},
	"pods": {
		groupVersion: metricsv1beta1.SchemeGroupVersion, resource: "pods", name: "PodMetrics", namespaced: true,
		origin: "the agent measures its pods", fields: metadataFields, columns: usageColumns, cells: podMetricsCells,
		newObject: func() object { return &metricsv1beta1.PodMetrics{} },
	},
}

var usageColumns = []metav1.TableColumnDefinition{nameColumn(), column("CPU", 0), column("Memory", 0), column("Window", 0)}

func nodeMetricsCells(o object) []any {
	metrics := o.(*metricsv1beta1.NodeMetrics)
	return []any{metrics.Name, metrics.Usage.Cpu().String(), metrics.Usage.Memory().String(), metrics.Window.Duration.String()}
}

func podMetricsCells(o object) []any {
	metrics := o.(*metricsv1beta1.PodMetrics)
	var cpu, memory resource.Quantity
	for _, container := range metrics.Containers {
		cpu.Add(*container.Usage.Cpu())
		memory.Add(*container.Usage.Memory())
	}
	return []any{metrics.Name, cpu.String(), memory.String(), metrics.Window.Duration.String()}
}

// serveMetrics serves metrics.k8s.io, which metrics-server serves in a cluster.
func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request, path string) {
	parts := strings.Split(strings.TrimPrefix(path, metricsPath), "/")
	req := parsePath(parts, metricsKinds)
	switch {
	case req == nil || req.subresource != "":
		writeError(w, apierrors.NewNotFound(schema.GroupResource{Group: metricsv1beta1.GroupName, Resource: parts[0]}, ""))
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		writeNotAllowed(w, req, r.Method)
		return
	case !s.waitForSync(r.Context()):
		writeError(w, apierrors.NewServiceUnavailable("the pods of this node are not known yet"))
		return
	}
	format, err := negotiate(r)
	if err != nil {
		writeError(w, err)
		return
	}
	options, err := parseOptions(r.URL.Query(), req)
	if err == nil && options.watch {
		err = apierrors.NewMethodNotSupported(req.resource(), "watch")
	}
	if err != nil {
		writeError(w, err)
		return
	}
	objects := s.metrics(req.kind)
	if req.name != "" {
		writeMetricsOf(w, req, objects, format)
		return
	}
	options.hasVersion = false // metrics have no versions
	writeList(w, options, format, objects, "")
}

// writeMetricsOf writes one object. A pod without a first reading is not found, as with metrics-server.
func writeMetricsOf(w http.ResponseWriter, req *request, objects []object, f format) {
	for _, obj := range objects {
		if obj.GetName() == req.name && obj.GetNamespace() == req.namespace {
			writeJSON(w, http.StatusOK, f.convert(req.kind, obj, true))
			return
		}
	}
	name := req.name
	if req.namespace != "" {
		name = req.namespace + "/" + name
	}
	singular := schema.GroupResource{Group: metricsv1beta1.GroupName, Resource: strings.ToLower(req.kind.name)}
	writeError(w, apierrors.NewNotFound(singular, name))
}

// metrics returns the metrics of all objects of the kind that have been measured.
func (s *Server) metrics(k *kind) []object {
	if k.namespaced {
		return s.podMetrics()
	}
	nodes, _ := s.store.list(kinds["nodes"])
	machine, at := s.config.Stats.Machine()
	usage, known := usageOf(s.config.Stats.Node().Cores, machine.WorkingSet, machine.Detail.Swap)
	if len(nodes) == 0 || !known {
		return nil
	}
	metrics := &metricsv1beta1.NodeMetrics{
		TypeMeta: k.typeMeta(), ObjectMeta: metricsMeta(nodes[0]), Timestamp: metav1.NewTime(at),
		Window: metav1.Duration{Duration: metricsWindow}, Usage: usage,
	}
	return []object{metrics}
}

func (s *Server) podMetrics() []object {
	samples, at := s.config.Stats.PodSamples()
	byUID := make(map[podid.UID]*load.PodSample, len(samples))
	for i := range samples {
		byUID[samples[i].UID] = &samples[i]
	}
	var objects []object
	pods, _ := s.store.list(kinds["pods"])
	for _, obj := range pods {
		uid := podid.UID(obj.GetUID())
		if sample, found := byUID[uid]; found {
			used, _ := s.config.Stats.Pod(uid)
			if metrics := podMetricsOf(obj, sample, &used, at); metrics != nil {
				objects = append(objects, metrics)
			}
		}
	}
	return objects
}

// podMetricsOf returns nil for a pod without a first reading. A container without one is left out and does not hide the others.
func podMetricsOf(pod object, sample *load.PodSample, used *load.Pod, at time.Time) object {
	if !sample.Usage.At.IsZero() {
		at = sample.Usage.At
	}
	metrics := &metricsv1beta1.PodMetrics{
		TypeMeta: metricsKinds["pods"].typeMeta(), ObjectMeta: metricsMeta(pod), Timestamp: metav1.NewTime(at),
		Window: metav1.Duration{Duration: metricsWindow},
	}
	cores := map[string]load.Value{}
	for _, container := range used.Containers {
		cores[container.Name] = container.CPU.OneMinute.Mean
	}
	for _, container := range sample.Containers {
		if usage, known := usageOf(cores[container.Name], container.Usage.WorkingSet, container.Usage.Swap); known {
			metrics.Containers = append(metrics.Containers, metricsv1beta1.ContainerMetrics{Name: container.Name, Usage: usage})
		}
	}
	if len(metrics.Containers) == 0 {
		return nil
	}
	return metrics
}

// metricsMeta returns the metadata that metrics-server copies: what lists select by.
func metricsMeta(obj object) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: obj.GetName(), Namespace: obj.GetNamespace(), Labels: obj.GetLabels(), CreationTimestamp: metav1.NewTime(time.Now()),
	}
}

// usageOf returns false unless CPU and memory are known.
func usageOf(cores, workingSet, swap load.Value) (v1.ResourceList, bool) {
	cpu, cpuKnown := cores.Get()
	memory, memoryKnown := workingSet.Get()
	if !cpuKnown || !memoryKnown {
		return nil, false
	}
	usage := v1.ResourceList{
		v1.ResourceCPU:    resource.MustParse(fmt.Sprintf("%.0fn", math.Ceil(cpu*1e9))),
		v1.ResourceMemory: *resource.NewQuantity(int64(memory), resource.BinarySI),
	}
	if bytes, known := swap.Get(); known {
		usage["swap"] = *resource.NewQuantity(int64(bytes), resource.BinarySI)
	}
	return usage, true
}
