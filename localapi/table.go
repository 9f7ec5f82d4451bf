package localapi

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/heraldnode/herald/internal/table"
)

// column returns a column of type string. Columns of priority 1 are shown by -o wide.
func column(name string, priority int32) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: "string", Priority: priority}
}

func nameColumn() metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: "Name", Type: "string", Format: "name"}
}

// The columns of the API server (KCT-11).
var (
	podColumns = []metav1.TableColumnDefinition{
		nameColumn(), column("Ready", 0), column("Status", 0), column("Restarts", 0), column("Age", 0),
		column("IP", 1), column("Node", 1), column("Nominated Node", 1), column("Readiness Gates", 1),
	}
	nodeColumns = []metav1.TableColumnDefinition{
		nameColumn(), column("Status", 0), column("Roles", 0), column("Age", 0), column("Version", 0), column("Internal-IP", 1),
		column("External-IP", 1), column("OS-Image", 1), column("Kernel-Version", 1), column("Container-Runtime", 1),
	}
	eventColumns = []metav1.TableColumnDefinition{
		column("Last Seen", 0), column("Type", 0), column("Reason", 0), column("Object", 0), column("Subobject", 1),
		column("Source", 1), column("Message", 0), column("First Seen", 1), column("Count", 1),
		{Name: "Name", Type: "string", Format: "name", Priority: 1},
	}
	namespaceColumns = []metav1.TableColumnDefinition{nameColumn(), column("Status", 0), column("Age", 0)}
)

// table returns the objects as a table (KCT-10).
func (f format) table(k *kind, objects []object, withColumns bool) *metav1.Table {
	t := &metav1.Table{
		TypeMeta: metav1.TypeMeta{APIVersion: metav1.SchemeGroupVersion.String(), Kind: "Table"}, Rows: []metav1.TableRow{},
		ColumnDefinitions: []metav1.TableColumnDefinition{},
	}
	if withColumns { // only the first table of a watch has them (KCT-12)
		t.ColumnDefinitions = k.columns
	}
	for _, obj := range objects {
		row := metav1.TableRow{Cells: k.cells(obj)}
		switch f.includeObject {
		case metav1.IncludeNone:
		case metav1.IncludeObject:
			row.Object = runtime.RawExtension{Object: obj}
		default:
			row.Object = runtime.RawExtension{Object: partialMetadata(obj)}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func partialMetadata(obj object) *metav1.PartialObjectMetadata {
	partial := meta.AsPartialObjectMetadata(obj)
	partial.TypeMeta = metav1.TypeMeta{APIVersion: metav1.SchemeGroupVersion.String(), Kind: asMetadata}
	return partial
}

func podCells(o object) []any {
	row := table.NewRow(o.(*v1.Pod), time.Now())
	return []any{row.Name, row.Ready, row.Status, row.Restarts, row.Age, row.IP, row.Node, row.NominatedNode, row.ReadinessGates}
}

const none = "<none>"

func nodeCells(o object) []any {
	node := o.(*v1.Node)
	info := node.Status.NodeInfo
	return []any{
		node.Name, nodeStatus(node), nodeRoles(node), age(node.CreationTimestamp), info.KubeletVersion,
		nodeAddress(node, v1.NodeInternalIP), nodeAddress(node, v1.NodeExternalIP),
		cmp.Or(info.OSImage, "<unknown>"), cmp.Or(info.KernelVersion, "<unknown>"), cmp.Or(info.ContainerRuntimeVersion, "<unknown>"),
	}
}

func nodeStatus(node *v1.Node) string {
	text := "Unknown"
	for _, condition := range node.Status.Conditions {
		if condition.Type == v1.NodeReady {
			text = map[bool]string{true: "Ready", false: "NotReady"}[condition.Status == v1.ConditionTrue]
		}
	}
	if node.Spec.Unschedulable {
		text += ",SchedulingDisabled"
	}
	return text
}

// nodeRoles returns the roles that the node's labels name.
func nodeRoles(node *v1.Node) string {
	const prefix, label = "node-role.kubernetes.io/", "kubernetes.io/role"
	roles := map[string]bool{}
	for name, value := range node.Labels {
		if role, found := strings.CutPrefix(name, prefix); found && role != "" {
			roles[role] = true
		}
		if name == label && value != "" {
			roles[value] = true
		}
	}
	var sorted []string
	for role := range roles {
		sorted = append(sorted, role)
	}
	slices.Sort(sorted)
	return cmp.Or(strings.Join(sorted, ","), none)
}

func nodeAddress(node *v1.Node, addressType v1.NodeAddressType) string {
	for _, address := range node.Status.Addresses {
		if address.Type == addressType {
			return address.Address
		}
	}
	return none
}

func namespaceCells(o object) []any {
	namespace := o.(*v1.Namespace)
	return []any{namespace.Name, string(namespace.Status.Phase), age(namespace.CreationTimestamp)}
}

func eventCells(o object) []any {
	event := o.(*v1.Event)
	involved := event.InvolvedObject
	first, last := age(event.FirstTimestamp), age(event.LastTimestamp)
	count := max(event.Count, 1)
	if event.FirstTimestamp.IsZero() {
		first = age(metav1.Time(event.EventTime))
	}
	if event.LastTimestamp.IsZero() {
		last = first
	}
	source := event.Source.Component
	if source == "" {
		source = event.ReportingController
	}
	if event.Source.Host != "" {
		source += ", " + event.Source.Host
	}
	return []any{
		last, table.Printable(event.Type), table.Printable(event.Reason), strings.ToLower(involved.Kind) + "/" + involved.Name,
		table.Printable(involved.FieldPath), source, table.Printable(strings.TrimSpace(event.Message)), first, fmt.Sprint(count), event.Name,
	}
}

func age(since metav1.Time) string {
	if since.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(since.Time))
}
