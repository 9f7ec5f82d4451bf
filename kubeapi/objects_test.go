package kubeapi_test

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/heraldtest"
)

func TestWhatPodsReferToIsRead(t *testing.T) {
	server := heraldtest.NewAPIServer()
	client := newClient(t, server.Config())
	named := metav1.ObjectMeta{Namespace: "shop", Name: "web"}
	server.Put(&v1.ConfigMap{ObjectMeta: named, Data: map[string]string{"colour": "red"}})
	server.Put(&v1.ConfigMap{ObjectMeta: named, Data: map[string]string{"colour": "blue"}})
	server.Put(&v1.Secret{ObjectMeta: named, Data: map[string][]byte{"key": []byte("secret")}})
	server.Put(&v1.Service{ObjectMeta: named, Spec: v1.ServiceSpec{ClusterIP: "10.0.0.1"}})

	if found, err := client.GetConfigMap(t.Context(), "shop", "web"); err != nil || found.Data["colour"] != "blue" {
		t.Errorf("config map %v, %v", found, err)
	}
	if found, err := client.GetSecret(t.Context(), "shop", "web"); err != nil || string(found.Data["key"]) != "secret" {
		t.Errorf("secret %v, %v", found, err)
	}
	if found, err := client.ListServices(t.Context(), "shop"); err != nil || len(found) != 1 || found[0].Spec.ClusterIP != "10.0.0.1" {
		t.Errorf("services %v, %v", found, err)
	}
	if _, err := client.GetSecret(t.Context(), "shop", "other"); !apierrors.IsNotFound(err) {
		t.Errorf("a secret that is not there: %v", err)
	}
}

func TestATokenIsBoundToAPod(t *testing.T) {
	server := heraldtest.NewAPIServer()
	client := newClient(t, server.Config())
	wanted := &authenticationv1.TokenRequest{}
	if _, err := client.CreateToken(t.Context(), "shop", "default", wanted); !apierrors.IsForbidden(err) {
		t.Fatalf("a token that is bound to nothing: %v", err)
	}
	wanted.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "web", UID: "u"}
	issued, err := client.CreateToken(t.Context(), "shop", "default", wanted)
	if err != nil || issued.Status.Token == "" || issued.Status.ExpirationTimestamp.IsZero() {
		t.Fatalf("token %v, %v", issued, err)
	}
}

func TestAnEventIsToldAndToldAgain(t *testing.T) {
	server := heraldtest.NewAPIServer()
	client := newClient(t, server.Config())
	told := &v1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web.1"}, Reason: "BackOff", Count: 1}
	if _, err := client.CreateEvent(t.Context(), told); err != nil {
		t.Fatal(err)
	}
	if _, err := client.PatchEvent(t.Context(), "shop", "web.1", []byte(`{"count": 2}`)); err != nil {
		t.Fatal(err)
	}
	if events := server.Events(); len(events) != 1 || events[0].Count != 2 || events[0].Reason != "BackOff" {
		t.Errorf("events %v", events)
	}
	if _, err := client.PatchEvent(t.Context(), "shop", "gone", []byte(`{"count": 2}`)); !apierrors.IsNotFound(err) {
		t.Errorf("an event that has expired: %v", err)
	}
}
