package report

import (
	"encoding/json"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

type statusPatch struct {
	Metadata metadataPatch     `json:"metadata"`
	Status   statusPatchStatus `json:"status"`
}

type metadataPatch struct {
	UID             types.UID         `json:"uid"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
}

type statusPatchStatus struct {
	Conditions      []v1.NodeCondition     `json:"conditions"`
	Addresses       []any                  `json:"addresses,omitempty"`
	Capacity        v1.ResourceList        `json:"capacity"`
	Allocatable     v1.ResourceList        `json:"allocatable"`
	NodeInfo        v1.NodeSystemInfo      `json:"nodeInfo"`
	DaemonEndpoints v1.NodeDaemonEndpoints `json:"daemonEndpoints"`
}

// StatusPatch writes the strategic merge patch by which the object comes to say what is wanted. Conditions are merged by
// type and resources by name, so that those of others survive. Addresses are not: their type, which the server would
// merge them by, is not unique. A list that must change is replaced, others' entries included, and then the server is to
// refuse the patch if the object was written to meanwhile.
func StatusPatch(node *v1.Node, wanted *v1.NodeStatus) ([]byte, error) {
	patch := statusPatch{
		Metadata: metadataPatch{UID: node.UID},
		Status: statusPatchStatus{
			Conditions: wanted.Conditions, Capacity: wanted.Capacity, Allocatable: wanted.Allocatable,
			NodeInfo: wanted.NodeInfo, DaemonEndpoints: wanted.DaemonEndpoints,
		},
	}
	if !slices.Equal(node.Status.Addresses, wanted.Addresses) {
		patch.Metadata.ResourceVersion = node.ResourceVersion
		patch.Status.Addresses = append(patch.Status.Addresses, map[string]string{"$patch": "replace"})
		for _, address := range wanted.Addresses {
			patch.Status.Addresses = append(patch.Status.Addresses, address)
		}
	}
	return encode(node.Name, patch)
}

// Registration is what a node is registered with, once.
type Registration struct {
	Name       string
	Labels     map[string]string
	Taints     []v1.Taint
	ProviderID string
}

// NewNode is the object of a node that is not registered yet.
func NewNode(r Registration, hostname string, status *v1.NodeStatus) *v1.Node {
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: r.Name, Labels: map[string]string{}},
		Spec:       v1.NodeSpec{ProviderID: r.ProviderID, Taints: slices.Clone(r.Taints)},
		Status:     *status.DeepCopy(),
	}
	for name, value := range r.Labels {
		node.Labels[name] = value
	}
	for name, value := range ownLabels(hostname, status.NodeInfo) {
		node.Labels[name] = value
	}
	return node
}

// ownLabels are those that follow from the machine, so that an adopted node has them too.
func ownLabels(hostname string, system v1.NodeSystemInfo) map[string]string {
	return map[string]string{
		v1.LabelHostname: hostname, v1.LabelOSStable: system.OperatingSystem, v1.LabelArchStable: system.Architecture,
	}
}

// AdoptionPatch makes an object that was there before this node's: labels that follow from the machine, and the provider's
// ID where there is none. Taints and all other labels are whoever's they are; a node may not change them either. Nil: the
// object is as it should be.
func AdoptionPatch(node *v1.Node, r Registration, hostname string, system v1.NodeSystemInfo) ([]byte, error) {
	labels := map[string]string{}
	for name, value := range ownLabels(hostname, system) {
		if node.Labels[name] != value {
			labels[name] = value
		}
	}
	provider := ""
	if node.Spec.ProviderID == "" {
		provider = r.ProviderID
	}
	if len(labels) == 0 && provider == "" {
		return nil, nil
	}
	type spec struct {
		ProviderID string `json:"providerID,omitempty"`
	}
	return encode(node.Name, struct {
		Metadata metadataPatch `json:"metadata"`
		Spec     spec          `json:"spec"`
	}{metadataPatch{UID: node.UID, Labels: labels}, spec{provider}})
}

func encode(name string, patch any) ([]byte, error) {
	encoded, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("write a patch of node %s: %w", name, err)
	}
	return encoded, nil
}
