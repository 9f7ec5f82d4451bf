package heraldtest_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
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

// newRESTClient returns client-go's REST client, for requests that kubeapi does not make.
func newRESTClient(t *testing.T, cfg *rest.Config) *rest.RESTClient {
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

// newPod returns a pod on a node, without a UID: the server assigns it.
func newPod(name, nodeName string) *v1.Pod {
	return heraldtest.NewPod(name, heraldtest.OnNode(nodeName), func(pod *v1.Pod) { pod.UID = "" })
}

func defaultName(name string) podid.FullName { return podid.FullName{Namespace: "default", Name: name} }

func onWeb(request *rest.Request) *rest.Request {
	return request.Namespace("default").Resource("pods").Name("web")
}

func create(t *testing.T, pods *rest.RESTClient, pod *v1.Pod) *v1.Pod {
	t.Helper()
	created := &v1.Pod{}
	if err := pods.Post().Namespace("default").Resource("pods").Body(pod).Do(t.Context()).Into(created); err != nil {
		t.Fatal(err)
	}
	return created
}

// codeAndField returns the status code of a response, and the field that a 422 names.
func codeAndField(err error) (int, string) {
	var apiStatus apierrors.APIStatus
	switch {
	case err == nil:
		return http.StatusOK, ""
	case !errors.As(err, &apiStatus):
		return 0, ""
	}
	status := apiStatus.Status()
	if status.Code != http.StatusUnprocessableEntity || status.Details == nil || len(status.Details.Causes) == 0 {
		return int(status.Code), ""
	}
	return int(status.Code), status.Details.Causes[0].Field
}

func verbs(server *heraldtest.APIServer) []string {
	var seen []string
	for _, request := range server.Requests() {
		seen = append(seen, request.Verb)
	}
	return seen
}

func describe(event watch.Event) string {
	if status, failed := event.Object.(*metav1.Status); failed {
		return fmt.Sprintf("%s %d %s", event.Type, status.Code, status.Reason)
	}
	described, err := meta.Accessor(event.Object)
	if err != nil {
		return fmt.Sprintf("%s: %v", event.Type, err)
	}
	line := fmt.Sprintf("%s %s %s", event.Type, described.GetName(), described.GetLabels()["tier"])
	if described.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
		line = fmt.Sprintf("%s initial events end", event.Type)
	}
	return strings.TrimSpace(line)
}

func watchPods(t *testing.T, server *heraldtest.APIServer, options metav1.ListOptions) watch.Interface {
	t.Helper()
	options.Watch = true
	watched, err := newRESTClient(t, server.Config()).Get().Resource("pods").VersionedParams(&options, metav1.ParameterCodec).Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return watched
}
