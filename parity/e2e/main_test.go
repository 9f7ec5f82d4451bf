// Package e2e_test runs Herald's parts against real ones: etcd, kube-apiserver and kubectl, with the rights of a node and
// nothing more.
package e2e_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/heraldnode/herald/parity/internal/recorder"
)

// cluster is the control plane that tests of this package share. A test has a node and names of its own. Parallel tests run
// when all others have: those may end the API server, these may not.
var cluster *recorder.Cluster

func TestMain(m *testing.M) {
	if settings := os.Getenv(agentSettings); settings != "" {
		os.Exit(beAgent(settings))
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if cluster, err = recorder.Start(context.Background()); err != nil {
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

// admin is a client with all rights, for what users and controllers do.
func admin(t *testing.T) kubernetes.Interface {
	t.Helper()
	return recorder.NewClient(t, cluster.AdminConfig())
}

// kubectl runs the real one as the administrator and returns what it printed.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return recorder.Kubectl(t, cluster.AdminKubeconfig(), args...)
}

// lives records every incarnation of a pod that a watch shows, from now on, as the UIDs in the order of their birth. The
// function that it returns waits until the last one was seen.
func lives(t *testing.T, name string) func(last types.UID) []types.UID {
	t.Helper()
	watch, err := admin(t).CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watch.Stop)
	return func(last types.UID) []types.UID {
		var seen []types.UID
		for event := range watch.ResultChan() {
			p, isPod := event.Object.(*v1.Pod)
			if isPod && !slices.Contains(seen, p.UID) {
				seen = append(seen, p.UID)
			}
			if isPod && p.UID == last {
				return seen
			}
		}
		t.Fatalf("the watch of %s ended after %v", name, seen)
		return nil
	}
}
