package localapi

import (
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// object is an API object of any kind.
type object interface {
	runtime.Object
	metav1.Object
}

// kind describes a kind of served objects.
type kind struct {
	// groupVersion is v1 if it is empty.
	groupVersion             schema.GroupVersion
	resource, singular, name string // pods, pod, Pod
	shortNames, categories   []string
	namespaced               bool
	// origin says where the objects come from, for clients that try to change them.
	origin string
	// fields returns the values that field selectors can refer to.
	fields func(object) fields.Set
	// columns and cells make up a table.
	columns []metav1.TableColumnDefinition
	cells   func(object) []any
	// newObject returns an empty object.
	newObject func() object
}

func (k *kind) groupVersionKind() schema.GroupVersionKind {
	if k.groupVersion.Empty() {
		return v1.SchemeGroupVersion.WithKind(k.name)
	}
	return k.groupVersion.WithKind(k.name)
}

func (k *kind) typeMeta() metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: k.groupVersionKind().GroupVersion().String(), Kind: k.name}
}

func (k *kind) listTypeMeta() metav1.TypeMeta {
	meta := k.typeMeta()
	meta.Kind += "List"
	return meta
}

// The kinds in the order of discovery documents.
var orderedKinds = []*kind{
	{
		resource: "events", singular: "event", name: "Event", shortNames: []string{"ev"}, namespaced: true,
		origin: "events are recorded by the agent", fields: eventFields, columns: eventColumns, cells: eventCells,
		newObject: func() object { return &v1.Event{} },
	},
	{
		resource: "namespaces", singular: "namespace", name: "Namespace", shortNames: []string{"ns"},
		origin: "a namespace exists while it has pods or events", fields: metadataFields, columns: namespaceColumns, cells: namespaceCells,
		newObject: func() object { return &v1.Namespace{} },
	},
	{
		resource: "nodes", singular: "node", name: "Node", shortNames: []string{"no"},
		origin: "the agent describes its machine", fields: nodeFields, columns: nodeColumns, cells: nodeCells,
		newObject: func() object { return &v1.Node{} },
	},
	{
		resource: "pods", singular: "pod", name: "Pod", shortNames: []string{"po"}, categories: []string{"all"}, namespaced: true,
		origin: "its pods come from its manifests, or from the API server of its cluster: change them there", fields: podFields,
		columns: podColumns, cells: podCells, newObject: func() object { return &v1.Pod{} },
	},
}

// kinds by resource name.
var kinds = func() map[string]*kind {
	byResource := map[string]*kind{}
	for _, k := range orderedKinds {
		byResource[k.resource] = k
	}
	return byResource
}()

func metadataFields(o object) fields.Set {
	return fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace()}
}

// podFields returns the fields that the API server supports for pods (KCT-16).
func podFields(o object) fields.Set {
	pod, set := o.(*v1.Pod), metadataFields(o)
	var ips []string
	for _, ip := range pod.Status.PodIPs {
		ips = append(ips, ip.IP)
	}
	set["spec.nodeName"] = pod.Spec.NodeName
	set["spec.restartPolicy"] = string(pod.Spec.RestartPolicy)
	set["spec.schedulerName"] = pod.Spec.SchedulerName
	set["spec.serviceAccountName"] = pod.Spec.ServiceAccountName
	set["spec.hostNetwork"] = strconv.FormatBool(pod.Spec.HostNetwork)
	set["status.phase"] = string(pod.Status.Phase)
	set["status.podIP"] = pod.Status.PodIP
	set["status.podIPs"] = strings.Join(ips, ",")
	set["status.nominatedNodeName"] = pod.Status.NominatedNodeName
	return set
}

func nodeFields(o object) fields.Set {
	set := metadataFields(o)
	set["spec.unschedulable"] = strconv.FormatBool(o.(*v1.Node).Spec.Unschedulable)
	return set
}

func eventFields(o object) fields.Set {
	event, set := o.(*v1.Event), metadataFields(o)
	involved := event.InvolvedObject
	set["involvedObject.kind"] = involved.Kind
	set["involvedObject.namespace"] = involved.Namespace
	set["involvedObject.name"] = involved.Name
	set["involvedObject.uid"] = string(involved.UID)
	set["involvedObject.apiVersion"] = involved.APIVersion
	set["involvedObject.resourceVersion"] = involved.ResourceVersion
	set["involvedObject.fieldPath"] = involved.FieldPath
	set["reason"] = event.Reason
	set["reportingComponent"] = event.ReportingController
	set["source"] = event.Source.Component
	set["type"] = event.Type
	return set
}
