package kubeapi

import (
	"context"
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// eviction is policy/v1 Eviction. The API group would add to the size of the program.
type eviction struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	DeleteOptions     *metav1.DeleteOptions `json:"deleteOptions,omitempty"`
}

// EvictPod asks the API server to evict the pod with this name and UID, which disruption budgets may forbid: apierrors.IsTooManyRequests
// with the cause DisruptionBudget. A node may evict its own pods. The pod ends gracefully.
func (c *Client) EvictPod(ctx context.Context, namespace, name string, uid types.UID) error {
	if uid == "" {
		return fmt.Errorf("evict pod %s/%s: %w", namespace, name, errUIDRequired)
	}
	body, err := json.Marshal(eviction{
		TypeMeta:      metav1.TypeMeta{APIVersion: "policy/v1", Kind: "Eviction"},
		ObjectMeta:    metav1.ObjectMeta{Namespace: namespace, Name: name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
	})
	if err != nil {
		return fmt.Errorf("evict pod %s/%s: %w", namespace, name, err)
	}
	request := c.rest.Post().Namespace(namespace).Resource("pods").Name(name).SubResource("eviction").MaxRetries(0)
	// Decode the response, a Status: another body does not come from an API server (F10).
	if _, err := request.SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Get(); err != nil {
		return fmt.Errorf("evict pod %s/%s with UID %s: %w", namespace, name, uid, err)
	}
	return nil
}

// PatchNodeAs is PatchNode with the name of a field manager, which the API server notes as the owner of what the patch sets.
func (c *Client) PatchNodeAs(ctx context.Context, name, manager string, patch []byte) (*v1.Node, error) {
	request := c.rest.Patch(types.StrategicMergePatchType).Resource("nodes").Name(name).Param("fieldManager", manager).Body(patch)
	return do[v1.Node](ctx, request, "patch node", key{name: name})
}
