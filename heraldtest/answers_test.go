package heraldtest_test

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/kubeapi"
)

func TestAStatusPatchIsAnsweredAsMeasuredOnTheRealServer(t *testing.T) {
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			play(t, heraldtest.NewAPIServer().Config(), row)
		})
	}
}

// play applies a row to a fresh pod, through clients alone.
func play(t *testing.T, cfg *rest.Config, row row) {
	t.Helper()
	before := arrange(t, cfg, row)
	patch := strings.NewReplacer("UID", string(before.UID), "VERSION", before.ResourceVersion).Replace(row.patch)
	kind := cmp.Or(row.kind, types.StrategicMergePatchType)
	err := newRaw(t, cfg).Patch(kind).Namespace("default").Resource("pods").Name("web").SubResource("status").
		Body([]byte(patch)).Do(t.Context()).Error()
	after := &v1.Pod{}
	if err := newRaw(t, cfg).Get().Namespace("default").Resource("pods").Name("web").Do(t.Context()).Into(after); err != nil {
		t.Fatal(err)
	}

	code, field := codeAndField(err)
	if code != row.code || field != row.field {
		t.Fatalf("answered %d, blaming %q: %v; want %d, blaming %q", code, field, err, row.code, row.field)
	}
	if row.want == nil {
		if diff := gocmp.Diff(before, after); diff != "" {
			t.Fatalf("the pod changed (-before +after):\n%s", diff)
		}
		return
	}
	if wrong := row.want(before, after); wrong != "" {
		t.Fatalf("the pod is not as it should be:\n%s", wrong)
	}
}

func arrange(t *testing.T, cfg *rest.Config, row row) *v1.Pod {
	t.Helper()
	client, err := kubeapi.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	pod := newPod("web", "n1")
	if row.spec != nil {
		row.spec(&pod.Spec)
	}
	if _, err := client.CreatePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	status := strings.ReplaceAll(runningStatus, "EXIT", fmt.Sprint(row.exit))
	if _, err := client.PatchPodStatus(t.Context(), metav1.NamespaceDefault, "web", []byte(status)); err != nil {
		t.Fatal(err)
	}
	pod, err = client.GetPod(t.Context(), metav1.NamespaceDefault, "web")
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// codeAndField is the HTTP code of an answer, and the field that it blames.
func codeAndField(err error) (int, string) {
	var answer apierrors.APIStatus
	switch {
	case err == nil:
		return http.StatusOK, ""
	case !errors.As(err, &answer):
		return 0, ""
	}
	status := answer.Status()
	if status.Code != http.StatusUnprocessableEntity || status.Details == nil || len(status.Details.Causes) == 0 {
		return int(status.Code), ""
	}
	return int(status.Code), status.Details.Causes[0].Field
}
