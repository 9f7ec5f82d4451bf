package report

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Registration is what a node is registered with.
type Registration struct {
	Name       string
	Labels     map[string]string
	Taints     []v1.Taint
	ProviderID string
}

// NewNode returns the object of a node that is not registered yet.
func NewNode(registration Registration, hostname string, status *v1.NodeStatus) *v1.Node {
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: registration.Name, Labels: map[string]string{}},
		Spec:       v1.NodeSpec{ProviderID: registration.ProviderID, Taints: slices.Clone(registration.Taints)},
		Status:     *status.DeepCopy(),
	}
	maps.Copy(node.Labels, registration.Labels)
	maps.Copy(node.Labels, machineLabels(hostname, status.NodeInfo))
	return node
}

// The deprecated names of the labels for operating system and architecture. Workloads still select nodes by them.
const (
	labelBetaOS   = "beta.kubernetes.io/os"
	labelBetaArch = "beta.kubernetes.io/arch"
)

// machineLabels returns the labels that follow from the machine. Adopted nodes get them too.
func machineLabels(hostname string, system v1.NodeSystemInfo) map[string]string {
	return map[string]string{
		v1.LabelHostname: hostname, v1.LabelOSStable: system.OperatingSystem, v1.LabelArchStable: system.Architecture,
		labelBetaOS: system.OperatingSystem, labelBetaArch: system.Architecture,
	}
}

type metadataPatch struct {
	UID             types.UID         `json:"uid"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
}

// AdoptionPatch returns the patch that makes an existing object this node's, or nil if there is nothing to change. It sets
// the labels that follow from the machine, and the provider ID if there is none. Taints and all other labels belong to
// others, and NodeRestriction does not allow a node to change them.
func AdoptionPatch(node *v1.Node, registration Registration, hostname string, system v1.NodeSystemInfo) ([]byte, error) {
	labels := map[string]string{}
	for name, value := range machineLabels(hostname, system) {
		if node.Labels[name] != value {
			labels[name] = value
		}
	}
	providerID := ""
	if node.Spec.ProviderID == "" {
		providerID = registration.ProviderID
	}
	if len(labels) == 0 && providerID == "" {
		return nil, nil
	}
	type specPatch struct {
		ProviderID string `json:"providerID,omitempty"`
	}
	return encodePatch(node.Name, struct {
		Metadata metadataPatch `json:"metadata"`
		Spec     specPatch     `json:"spec"`
	}{metadataPatch{UID: node.UID, Labels: labels}, specPatch{providerID}})
}

type statusPatch struct {
	Metadata metadataPatch     `json:"metadata"`
	Status   statusPatchStatus `json:"status"`
}

type statusPatchStatus struct {
	Conditions      []any                  `json:"conditions"`
	Addresses       []any                  `json:"addresses,omitempty"`
	Capacity        v1.ResourceList        `json:"capacity"`
	Allocatable     v1.ResourceList        `json:"allocatable"`
	NodeInfo        v1.NodeSystemInfo      `json:"nodeInfo"`
	DaemonEndpoints v1.NodeDaemonEndpoints `json:"daemonEndpoints"`
	// RuntimeHandlers is nil if they are not known. An empty list clears them.
	RuntimeHandlers *[]v1.NodeRuntimeHandler `json:"runtimeHandlers,omitempty"`
	Features        *v1.NodeFeatures         `json:"features,omitempty"`
	// Images is nil if they have not changed.
	Images           *[]v1.ContainerImage `json:"images,omitempty"`
	DeclaredFeatures []string             `json:"declaredFeatures,omitempty"`
}

// patchConditions returns the elements of the patch that set or remove conditions.
func patchConditions(current, desired []v1.NodeCondition) []any {
	all := make([]any, 0, len(desired))
	for _, condition := range desired {
		switch {
		case condition.Status != "":
			all = append(all, condition)
		case findCondition(current, condition.Type) != nil:
			all = append(all, map[string]any{"type": condition.Type, "$patch": "delete"})
		}
	}
	return all
}

// StatusPatch returns the strategic merge patch that sets the desired status. Conditions are merged by type and resources by
// name, so those of others survive. Conditions with an empty status are removed. Addresses cannot be merged: their merge key,
// the type, is not unique. A list that changes is replaced with others' entries included, and the patch then requires the
// object's resource version.
func StatusPatch(node *v1.Node, desired *v1.NodeStatus) ([]byte, error) {
	patch := statusPatch{
		Metadata: metadataPatch{UID: node.UID},
		Status: statusPatchStatus{
			Conditions: patchConditions(node.Status.Conditions, desired.Conditions), Capacity: desired.Capacity, Allocatable: desired.Allocatable,
			NodeInfo: desired.NodeInfo, DaemonEndpoints: desired.DaemonEndpoints, Features: desired.Features,
			DeclaredFeatures: desired.DeclaredFeatures,
		},
	}
	if imagesChanged(&node.Status, desired) {
		patch.Status.Images = &desired.Images
	}
	if desired.RuntimeHandlers != nil {
		patch.Status.RuntimeHandlers = &desired.RuntimeHandlers
	}
	if !slices.Equal(node.Status.Addresses, desired.Addresses) {
		patch.Metadata.ResourceVersion = node.ResourceVersion
		patch.Status.Addresses = append(patch.Status.Addresses, map[string]string{"$patch": "replace"})
		for _, address := range desired.Addresses {
			patch.Status.Addresses = append(patch.Status.Addresses, address)
		}
	}
	return encodePatch(node.Name, patch)
}

func encodePatch(nodeName string, patch any) ([]byte, error) {
	encoded, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encode patch of node %s: %w", nodeName, err)
	}
	return encoded, nil
}

// RenewedLease returns the node's lease, renewed now. previous is nil if there is no lease yet. The node controller accepts
// only a later renew time, so it increases even if the clock was set back (F14). The Node owns the lease: otherwise the lease
// would outlive it.
func RenewedLease(previous *coordinationv1.Lease, node *v1.Node, duration time.Duration, now time.Time) *coordinationv1.Lease {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: v1.NamespaceNodeLease, Name: node.Name}}
	if previous != nil {
		lease = previous.DeepCopy()
		if last := previous.Spec.RenewTime; last != nil && !now.After(last.Time) {
			now = last.Add(time.Microsecond)
		}
	}
	lease.Spec.HolderIdentity = new(node.Name)
	lease.Spec.LeaseDurationSeconds = new(int32(duration / time.Second))
	lease.Spec.RenewTime = new(metav1.NewMicroTime(now))
	lease.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1.SchemeGroupVersion.String(), Kind: "Node", Name: node.Name, UID: node.UID,
	}}
	return lease
}
