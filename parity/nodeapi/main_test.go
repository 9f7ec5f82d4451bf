// Package nodeapi_test runs package node against a real API server, with the permissions of a node.
package nodeapi_test

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/heraldnode/herald/parity/controlplane"
	"github.com/heraldnode/herald/parity/internal/recorder"
)

// cluster is the control plane that all tests share. Each test has its own node.
var cluster *controlplane.ControlPlane

//go:embed audit-policy.yaml
var auditPolicy []byte

// nodeToken authenticates the node "token".
const nodeToken = "valid-token"

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if err := start(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := cluster.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func start(ctx context.Context) error {
	binaries, err := controlplane.Build(ctx, os.Stderr)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "herald-tokens-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	tokens := filepath.Join(dir, "tokens.csv")
	line := nodeToken + `,system:node:token,1,"system:nodes"` + "\n"
	if err := os.WriteFile(tokens, []byte(line), 0o600); err != nil {
		return err
	}
	cluster, err = controlplane.Start(ctx, controlplane.Config{
		Binaries: binaries, AuditPolicy: auditPolicy, APIServerArgs: []string{"--token-auth-file=" + tokens},
	})
	return err
}

func admin(t *testing.T) kubernetes.Interface {
	t.Helper()
	return recorder.NewClient(t, cluster.AdminConfig())
}

func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return recorder.Kubectl(t, cluster.AdminKubeconfig(), args...)
}

func getNode(t *testing.T, name string) *v1.Node {
	t.Helper()
	node, err := admin(t).CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// request is one line of the audit log.
type request struct {
	User struct {
		Username string              `json:"username"`
		Extra    map[string][]string `json:"extra"`
	} `json:"user"`
	Verb   string `json:"verb"`
	Object struct {
		Resource string `json:"resource"`
	} `json:"objectRef"`
	Response metav1.Status `json:"responseStatus"`
}

// credential returns the credential that authenticated the user.
func (r request) credential() string {
	return strings.Join(r.User.Extra["authentication.kubernetes.io/credential-id"], ",")
}

// requests returns the node's requests in the order of the responses.
func requests(t *testing.T, nodeName string) []request {
	t.Helper()
	file, err := os.Open(cluster.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var all []request
	for lines := bufio.NewReader(file); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return all // a partial line belongs to a request without a response
		}
		if err != nil {
			t.Fatal(err)
		}
		var r request
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		if r.User.Username == "system:node:"+nodeName {
			all = append(all, r)
		}
	}
}
