package recorder

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	v1 "k8s.io/api/core/v1"
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

// write is one change that a node asked for, and how it was answered.
type write struct {
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	Verb      string             `json:"verb"`
	Object    v1.ObjectReference `json:"objectRef"`
	Sent      sent               `json:"requestObject"`
	Response  metav1.Status      `json:"responseStatus"`
	RequestAt metav1.MicroTime   `json:"requestReceivedTimestamp"`
}

// sent is what a request's body says about identity: that of a patch in its metadata, of a deletion in its preconditions.
type sent struct {
	Metadata      metav1.ObjectMeta    `json:"metadata"`
	Preconditions metav1.Preconditions `json:"preconditions"`
}

// about is the UID that the request names.
func (w write) about() types.UID {
	if w.Verb == "delete" && w.Sent.Preconditions.UID != nil {
		return *w.Sent.Preconditions.UID
	}
	return w.Sent.Metadata.UID
}

func (w write) String() string {
	return fmt.Sprintf("%s %s of UID %q at %s: %d", w.Verb, w.Object.Name, w.about(), w.RequestAt.Format(clock), w.Response.Code)
}

// writes is what the node asked for since that place in the log, in the order of the answers.
func (c *Cluster) writes(node string, since int64) ([]write, error) {
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
	var all []write
	for lines := json.NewDecoder(bufio.NewReader(file)); ; {
		var w write
		// A line that is being written is about a request that is not answered yet.
		if err := lines.Decode(&w); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("read %s: %w", c.AuditLog(), err)
		}
		if w.User.Username == "system:node:"+node {
			all = append(all, w)
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
