package kubeapi_test

import (
	"context"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/heraldtest"
)

func TestANodeIsRegisteredLabelledAndToldOf(t *testing.T) {
	for _, contentType := range []string{"", "application/json"} {
		t.Run("content type "+contentType, func(t *testing.T) {
			server := heraldtest.NewAPIServer()
			cfg := server.Config()
			cfg.ContentType = contentType
			client := newClient(t, cfg)
			created, err := client.CreateNode(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
			if err != nil || created.UID == "" {
				t.Fatalf("created %v, %v", created, err)
			}
			labelled, err := client.PatchNode(t.Context(), "n1", []byte(`{"metadata":{"labels":{"zone":"z"}},"status":{"phase":"Pending"}}`))
			if err != nil || labelled.Labels["zone"] != "z" || labelled.Status.Phase != "" {
				t.Fatalf("labelled %v, %v", labelled, err)
			}
			told, err := client.PatchNodeStatus(t.Context(), "n1", []byte(`{"spec":{"providerID":"x"},"status":{"phase":"Running"}}`))
			if err != nil || told.Status.Phase != v1.NodeRunning || told.Spec.ProviderID != "" || told.Labels["zone"] != "z" {
				t.Fatalf("told %v, %v", told, err)
			}
		})
	}
}

func TestALeaseIsRenewedUnlessAnotherWasFaster(t *testing.T) {
	for _, contentType := range []string{"", "application/json"} {
		t.Run("content type "+contentType, func(t *testing.T) {
			server := heraldtest.NewAPIServer()
			cfg := server.Config()
			cfg.ContentType = contentType
			client := newClient(t, cfg)
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n1", Namespace: v1.NamespaceNodeLease}}
			created, err := client.CreateLease(t.Context(), lease)
			if err != nil {
				t.Fatal(err)
			}
			now := metav1.NewMicroTime(time.Now())
			created.Spec.RenewTime = &now
			if _, err := client.UpdateLease(t.Context(), created); err != nil {
				t.Fatal(err)
			}
			if _, err := client.UpdateLease(t.Context(), created); !apierrors.IsConflict(err) {
				t.Errorf("with an old version: %v", err)
			}
			found, err := client.GetLease(t.Context(), "n1")
			if err != nil || !found.Spec.RenewTime.Equal(&metav1.MicroTime{Time: now.Truncate(time.Microsecond)}) {
				t.Errorf("found %v, %v", found, err)
			}
		})
	}
}

func TestErrorsOfNodesAndLeasesNameThem(t *testing.T) {
	server := heraldtest.NewAPIServer()
	client := newClient(t, server.Config())
	server.AddNode("n1")
	gone := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n9", Namespace: v1.NamespaceNodeLease}}
	tests := map[string]struct {
		do   func(ctx context.Context) error
		is   func(error) bool
		says string
	}{
		"create": {
			do: func(ctx context.Context) error {
				_, err := client.CreateNode(ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
				return err
			},
			is: apierrors.IsAlreadyExists, says: "create node n1: ",
		},
		"patch": {
			do: func(ctx context.Context) error { _, err := client.PatchNode(ctx, "n9", []byte(`{}`)); return err },
			is: apierrors.IsNotFound, says: "patch node n9: ",
		},
		"patch of a status": {
			do: func(ctx context.Context) error { _, err := client.PatchNodeStatus(ctx, "n9", []byte(`{}`)); return err },
			is: apierrors.IsNotFound, says: "patch status of node n9: ",
		},
		"lease": {
			do: func(ctx context.Context) error { _, err := client.GetLease(ctx, "n9"); return err },
			is: apierrors.IsNotFound, says: "get lease of node n9: ",
		},
		"renewal": {
			do: func(ctx context.Context) error { _, err := client.UpdateLease(ctx, gone); return err },
			is: apierrors.IsNotFound, says: "update lease of node n9: ",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := test.do(t.Context())
			if !test.is(err) || !strings.HasPrefix(err.Error(), test.says) {
				t.Fatalf("%v; want it to begin with %q and to wrap the server's answer", err, test.says)
			}
		})
	}
}
