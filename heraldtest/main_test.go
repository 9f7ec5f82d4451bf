package heraldtest_test

import (
	"testing"

	"go.uber.org/goleak"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/podid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newClient(t *testing.T, server *heraldtest.APIServer) *kubeapi.Client {
	t.Helper()
	client, err := kubeapi.New(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// newRaw makes client-go's own client, for requests that Herald never makes.
func newRaw(t *testing.T, cfg *rest.Config) *rest.RESTClient {
	t.Helper()
	cfg = rest.CopyConfig(cfg)
	cfg.APIPath, cfg.GroupVersion = "/api", &v1.SchemeGroupVersion
	cfg.NegotiatedSerializer = kubeapi.NewCodecs().WithoutConversion()
	if cfg.ContentType == "" {
		cfg.ContentType = runtime.ContentTypeJSON
	}
	client, err := rest.RESTClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func newPod(name, node string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec:       v1.PodSpec{NodeName: node, Containers: []v1.Container{{Name: "main", Image: "example.test/main"}}},
	}
}

func inDefault(name string) podid.FullName { return podid.FullName{Namespace: "default", Name: name} }
