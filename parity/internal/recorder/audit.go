package recorder

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/parity/controlplane"
)

// Cluster is a control plane whose API server writes down what nodes ask of it, before it answers.
type Cluster struct{ *controlplane.ControlPlane }

//go:embed audit-policy.yaml
var policy []byte

// Start starts a control plane.
func Start(ctx context.Context) (*Cluster, error) {
	binaries, err := controlplane.Build(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	cp, err := controlplane.Start(ctx, controlplane.Config{Binaries: binaries, AuditPolicy: policy})
	return &Cluster{cp}, err
}

// ForTest starts a control plane for one test, which may do to it what would disturb others.
func ForTest(t *testing.T) *Cluster {
	t.Helper()
	own, err := Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of kube-apiserver's log:\n%s", own.APIServer.LogTail())
		}
		if err := own.Stop(); err != nil {
			t.Error(err)
		}
	})
	return own
}

// request is what a node asked for, and how it was answered.
type request struct {
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	Verb   string `json:"verb"`
	Object struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	Sent      sent             `json:"requestObject"`
	Response  metav1.Status    `json:"responseStatus"`
	RequestAt metav1.MicroTime `json:"requestReceivedTimestamp"`
}

// isWrite tells that a change of a pod was asked for.
func (r request) isWrite() bool {
	return r.Object.Resource == "pods" && slices.Contains([]string{"create", "update", "patch", "delete"}, r.Verb)
}

// sent is what a request's body says about identity: that of a patch in its metadata, of a deletion in its preconditions.
type sent struct {
	Metadata      metav1.ObjectMeta    `json:"metadata"`
	Preconditions metav1.Preconditions `json:"preconditions"`
}

// about is the UID that the request names.
func (r request) about() types.UID {
	if r.Verb == "delete" && r.Sent.Preconditions.UID != nil {
		return *r.Sent.Preconditions.UID
	}
	return r.Sent.Metadata.UID
}

func (r request) String() string {
	return fmt.Sprintf("%s %s %s of UID %q at %s: %d", r.Verb, strings.TrimSuffix(r.Object.Resource+"/"+r.Object.Subresource, "/"),
		r.Object.Name, r.about(), r.RequestAt.Format(clock), r.Response.Code)
}

// Refused is what the node asked for although it may not, since the control plane was started. That an object is gone, or that
// no pod of the node needs it, is answered in the same way: it may ask for those.
func (c *Cluster) Refused(node string) (refused []string, err error) {
	all, err := c.requests(node, 0)
	for _, r := range all {
		isGone := strings.Contains(r.Response.Message, "no relationship found")
		if r.Response.Code == http.StatusUnauthorized || r.Response.Code == http.StatusForbidden && !isGone {
			refused = append(refused, r.String()+": "+r.Response.Message)
		}
	}
	return refused, err
}

// requests is what the node asked for since that place in the log, in the order of the answers.
func (c *Cluster) requests(node string, since int64) ([]request, error) {
	file, err := os.Open(c.AuditLog())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if _, err := file.Seek(since, io.SeekStart); err != nil {
		return nil, err
	}
	var all []request
	for lines := json.NewDecoder(bufio.NewReader(file)); ; {
		var r request
		// A line that is being written is about a request that is not answered yet.
		if err := lines.Decode(&r); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("read %s: %w", c.AuditLog(), err)
		}
		if r.User.Username == "system:node:"+node {
			all = append(all, r)
		}
	}
}

// place is where the log ends now.
func (c *Cluster) place() int64 {
	if info, err := os.Stat(c.AuditLog()); err == nil {
		return info.Size()
	}
	return 0
}

// StatusWrites counts how often the node wrote the status of a pod of that name, since the control plane was started.
func (c *Cluster) StatusWrites(node, pod string) (writes int, err error) {
	all, err := c.requests(node, 0)
	for _, r := range all {
		if r.isWrite() && r.Object.Subresource == "status" && r.Object.Name == pod {
			writes++
		}
	}
	return writes, err
}
