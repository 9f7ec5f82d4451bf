package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/parity/controlplane"
)

// audited is a control plane whose API server writes down what nodes ask of it, before it answers.
type audited struct {
	*controlplane.ControlPlane
	log string
}

func startAudited(ctx context.Context) (*audited, error) {
	binaries, err := controlplane.Build(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	policy, err := filepath.Abs(filepath.Join("testdata", "audit-policy.yaml"))
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "herald-e2e-")
	if err != nil {
		return nil, err
	}
	log := filepath.Join(dir, "audit.log")
	cp, err := controlplane.Start(ctx, controlplane.Config{
		Binaries: binaries, Dir: dir, APIServerArgs: []string{"--audit-policy-file=" + policy, "--audit-log-path=" + log},
	})
	return &audited{ControlPlane: cp, log: log}, err
}

// ownCluster is a control plane for one test, which may do to it what would disturb others.
func ownCluster(t *testing.T) *audited {
	t.Helper()
	own, err := startAudited(t.Context())
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
func (a *audited) writes(node string, since int64) ([]write, error) {
	file, err := os.Open(a.log)
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
			return nil, fmt.Errorf("read %s: %w", a.log, err)
		}
		if w.User.Username == "system:node:"+node {
			all = append(all, w)
		}
	}
}

// place is where the log ends now.
func (a *audited) place() int64 {
	if info, err := os.Stat(a.log); err == nil {
		return info.Size()
	}
	return 0
}
