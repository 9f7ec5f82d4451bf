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
	"os/exec"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/heraldnode/herald/parity/controlplane"
	"github.com/heraldnode/herald/parity/internal/needs"
)

// Cluster is a control plane whose API server logs the requests of nodes before it responds.
type Cluster struct{ *controlplane.ControlPlane }

//go:embed audit-policy.yaml
var auditPolicy []byte

// Start starts a control plane.
func Start(ctx context.Context) (*Cluster, error) {
	binaries, err := controlplane.Build(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	cp, err := controlplane.Start(ctx, controlplane.Config{Binaries: binaries, AuditPolicy: auditPolicy})
	return &Cluster{cp}, err
}

// ForTest starts a control plane for one test. The test may break it without disturbing others.
func ForTest(t *testing.T) *Cluster {
	t.Helper()
	cluster, err := Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the kube-apiserver log:\n%s", cluster.APIServer.LogTail())
		}
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cluster
}

// NewClient returns a client with the identity of the config.
func NewClient(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Kubectl runs kubectl and returns its output.
func Kubectl(t *testing.T, kubeconfig string, args ...string) string {
	t.Helper()
	needs.Kubectl(t)
	out, err := exec.CommandContext(t.Context(), "kubectl", append([]string{"--kubeconfig", kubeconfig}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// RejectedRequests returns the requests of the node since the start of the control plane that were not authorized. The API
// server also responds 403 if an object is gone, or if no pod of the node needs it; those requests are legitimate and left out.
func (c *Cluster) RejectedRequests(nodeName string) (rejected []string, err error) {
	requests, err := c.requests(nodeName, 0)
	for _, r := range requests {
		isUnrelated := strings.Contains(r.Response.Message, "no relationship found")
		if r.Response.Code == http.StatusUnauthorized || r.Response.Code == http.StatusForbidden && !isUnrelated {
			rejected = append(rejected, r.String()+": "+r.Response.Message)
		}
	}
	return rejected, err
}

// StatusWrites counts the node's status writes to pods with this name since the start of the control plane.
func (c *Cluster) StatusWrites(nodeName, podName string) (writes int, err error) {
	requests, err := c.requests(nodeName, 0)
	for _, r := range requests {
		if r.isPodWrite() && r.Object.Subresource == "status" && r.Object.Name == podName {
			writes++
		}
	}
	return writes, err
}

// request is one line of the audit log.
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
	Body       requestBody      `json:"requestObject"`
	Response   metav1.Status    `json:"responseStatus"`
	RequestAt  metav1.MicroTime `json:"requestReceivedTimestamp"`
	ResponseAt metav1.MicroTime `json:"stageTimestamp"`
}

// requestBody holds the parts of a body that identify the pod: metadata of a patch, preconditions of a deletion.
type requestBody struct {
	Metadata      metav1.ObjectMeta    `json:"metadata"`
	Preconditions metav1.Preconditions `json:"preconditions"`
}

// isPodWrite reports whether the request changes a pod.
func (r request) isPodWrite() bool {
	return r.Object.Resource == "pods" && slices.Contains([]string{"create", "update", "patch", "delete"}, r.Verb)
}

// podUID returns the UID that the request names.
func (r request) podUID() types.UID {
	if r.Verb == "delete" && r.Body.Preconditions.UID != nil {
		return *r.Body.Preconditions.UID
	}
	return r.Body.Metadata.UID
}

func (r request) String() string {
	return fmt.Sprintf("%s %s %s of UID %q at %s: %d", r.Verb, strings.TrimSuffix(r.Object.Resource+"/"+r.Object.Subresource, "/"),
		r.Object.Name, r.podUID(), r.RequestAt.Format(timeFormat), r.Response.Code)
}

// requests returns the node's requests after this offset of the audit log, in the order in which their responses were logged. For
// requests that were handled at the same time, this may not be the order in which they took effect.
func (c *Cluster) requests(nodeName string, offset int64) ([]request, error) {
	file, err := os.Open(c.AuditLog())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		return nil, err
	}
	var requests []request
	for lines := json.NewDecoder(bufio.NewReader(file)); ; {
		var r request
		// A partial line belongs to a request without a response.
		if err := lines.Decode(&r); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return requests, nil
		} else if err != nil {
			return nil, fmt.Errorf("read %s: %w", c.AuditLog(), err)
		}
		if r.User.Username == "system:node:"+nodeName {
			requests = append(requests, r)
		}
	}
}

// auditLogSize returns the offset of the next line of the audit log.
func (c *Cluster) auditLogSize() int64 {
	if info, err := os.Stat(c.AuditLog()); err == nil {
		return info.Size()
	}
	return 0
}
