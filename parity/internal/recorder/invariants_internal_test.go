package recorder

import (
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// newWrite returns a successful write that was received and answered at these times.
func newWrite(verb string, received, answered time.Time) request {
	uid := types.UID("a")
	write := request{
		Verb: verb, Response: metav1.Status{Code: http.StatusOK},
		RequestAt: metav1.NewMicroTime(received), ResponseAt: metav1.NewMicroTime(answered),
	}
	write.Object.Resource = "pods"
	if verb == "delete" {
		write.Body.Preconditions.UID = &uid
	} else {
		write.Object.Subresource, write.Body.Metadata.UID = "status", uid
	}
	return write
}

func TestI8_WriteAfterDeletion(t *testing.T) {
	at := func(milliseconds int) time.Time { return time.UnixMilli(int64(milliseconds)) }
	deletion := newWrite("delete", at(10), at(20))
	for name, test := range map[string]struct {
		write request
		want  int
	}{
		"handled at the same time as the deletion": {newWrite("patch", at(15), at(25)), 0},
		"received before the deletion":             {newWrite("patch", at(5), at(25)), 0},
		"sent after the deletion":                  {newWrite("patch", at(21), at(25)), 1},
	} {
		t.Run(name, func(t *testing.T) {
			found := writeViolations([]request{deletion, test.write}, nil)
			if len(found) != test.want || test.want > 0 && !strings.HasPrefix(found[0], "I8,") {
				t.Errorf("got %q, want %d violations of I8", found, test.want)
			}
		})
	}
}
