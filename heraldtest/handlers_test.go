package heraldtest_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	gocmp "github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/heraldnode/herald/heraldtest"
)

const asMetadata = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

// newClientWithEncoding returns a client that uses one media type only.
func newClientWithEncoding(t *testing.T, server *heraldtest.APIServer, mediaType string) *rest.RESTClient {
	t.Helper()
	cfg := server.Config()
	cfg.ContentType, cfg.AcceptContentTypes = mediaType, mediaType
	return newRESTClient(t, cfg)
}

func TestEncoding_RoundTrip(t *testing.T) {
	for _, mediaType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		t.Run(mediaType, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := heraldtest.NewAPIServer()
				pods := newClientWithEncoding(t, server, mediaType)
				created := create(t, pods, newPod("web", "n1"))
				if diff := gocmp.Diff(server.Pod(defaultName("web")), created); diff != "" {
					t.Errorf("created (-stored +returned):\n%s", diff)
				}
				list := &v1.PodList{}
				if err := pods.Get().Resource("pods").Do(t.Context()).Into(list); err != nil {
					t.Fatal(err)
				}
				if diff := gocmp.Diff([]v1.Pod{*created}, list.Items); diff != "" {
					t.Errorf("listed (-want +got):\n%s", diff)
				}
				watched, err := pods.Get().Resource("pods").Param("watch", "1").Watch(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer watched.Stop()
				if diff := gocmp.Diff(watch.Event{Type: watch.Added, Object: created}, <-watched.ResultChan()); diff != "" {
					t.Errorf("watched (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestEncoding_PartialObjectMetadata(t *testing.T) {
	for _, mediaType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		t.Run(mediaType, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := heraldtest.NewAPIServer()
				want := server.AddPod(newPod("web", "n1")).ObjectMeta
				pods := newClientWithEncoding(t, server, mediaType)
				one, list := &metav1.PartialObjectMetadata{}, &metav1.PartialObjectMetadataList{}
				if err := onWeb(pods.Get()).SetHeader("Accept", mediaType+asMetadata).Do(t.Context()).Into(one); err != nil {
					t.Fatal(err)
				}
				all := pods.Get().Resource("pods").SetHeader("Accept", mediaType+strings.Replace(asMetadata, ";g", "List;g", 1))
				if err := all.Do(t.Context()).Into(list); err != nil {
					t.Fatal(err)
				}
				watched, err := pods.Get().Resource("pods").Param("watch", "1").SetHeader("Accept", mediaType+asMetadata).Watch(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer watched.Stop()
				seen, ok := (<-watched.ResultChan()).Object.(*metav1.PartialObjectMetadata)
				if !ok || len(list.Items) != 1 || list.ResourceVersion != want.ResourceVersion {
					t.Fatalf("got list %+v, watched metadata: %v", list, ok)
				}
				for _, got := range []metav1.ObjectMeta{one.ObjectMeta, list.Items[0].ObjectMeta, seen.ObjectMeta} {
					if diff := gocmp.Diff(want, got); diff != "" {
						t.Errorf("metadata (-want +got):\n%s", diff)
					}
				}
			})
		})
	}
}

func TestEncoding_Negotiation(t *testing.T) {
	tests := map[string]struct {
		accept string
		code   int
		want   string
	}{
		"no Accept header": {code: http.StatusOK, want: "application/json"},
		"any":              {accept: "*/*", code: http.StatusOK, want: "application/json"},
		"second clause":    {accept: "text/html, application/vnd.kubernetes.protobuf", code: http.StatusOK, want: "application/vnd.kubernetes.protobuf"},
		"table or object":  {accept: "application/json;as=Table;g=meta.k8s.io;v=v1,application/json", code: http.StatusOK, want: "application/json"},
		"unsupported":      {accept: "text/html", code: http.StatusNotAcceptable, want: "application/json"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := heraldtest.NewAPIServer()
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://any.test/api/v1/pods", nil)
			if err != nil {
				t.Fatal(err)
			}
			if test.accept != "" {
				request.Header.Set("Accept", test.accept)
			}
			response, err := server.Transport().RoundTrip(request)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if _, err := io.Copy(io.Discard, response.Body); err != nil {
				t.Fatal(err)
			}
			if got := response.Header.Get("Content-Type"); response.StatusCode != test.code || got != test.want {
				t.Fatalf("got %d in %s, want %d in %s", response.StatusCode, got, test.code, test.want)
			}
		})
	}
}

func TestPatch_UnsupportedType(t *testing.T) {
	server := heraldtest.NewAPIServer()
	server.AddPod(newPod("web", "n1"))
	for _, patchType := range []types.PatchType{types.JSONPatchType, types.ApplyYAMLPatchType} {
		err := onWeb(newRESTClient(t, server.Config()).Patch(patchType)).Body([]byte(`[]`)).Do(t.Context()).Error()
		if !apierrors.IsUnsupportedMediaType(err) {
			t.Errorf("%s: got %v, want 415", patchType, err)
		}
	}
}
