package controlplane

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// newEtcd describes the etcd server. It has an authority of its own: with the API server's, every user of the cluster could
// read and write the store.
func (cp *ControlPlane) newEtcd(binary string, files *pki, peerURL string) *Server {
	authority := newAuthority("herald-test-etcd-ca")
	client := authority.forUser("kube-apiserver")
	files.pair("etcd-client", client)
	cp.etcdTLS = authority.clientTLS(client)

	ca := files.file("etcd-ca.crt", authority.pem)
	cert, key := files.pair("etcd", authority.forServer("etcd"))
	return &Server{
		name: "etcd", binary: binary, env: []string{mark(cp.dir)}, log: cp.path("etcd.log"),
		ready: readyz(cp.etcdURL, cp.etcdTLS),
		args: []string{
			"--name=default", "--data-dir=" + cp.path("etcd"),
			"--listen-client-urls=" + cp.etcdURL, "--advertise-client-urls=" + cp.etcdURL,
			"--cert-file=" + cert, "--key-file=" + key, "--client-cert-auth", "--trusted-ca-file=" + ca,
			"--listen-peer-urls=" + peerURL, "--initial-advertise-peer-urls=" + peerURL, "--initial-cluster=default=" + peerURL,
			"--peer-cert-file=" + cert, "--peer-key-file=" + key, "--peer-client-cert-auth", "--peer-trusted-ca-file=" + ca,
			// What a killed process wrote survives it, and a test does not outlive its machine: the disk need not be waited for.
			"--unsafe-no-fsync",
		},
	}
}

// Compact removes etcd's history up to now. The API server has a memory of its own for recent history, its watch cache;
// restart it afterwards, and it answers 410 to a list or a watch at an earlier resourceVersion.
func (cp *ControlPlane) Compact(ctx context.Context) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{cp.etcdURL}, TLS: cp.etcdTLS, Context: ctx})
	if err != nil {
		return fmt.Errorf("compact etcd: %w", err)
	}
	defer client.Close()
	now, err := client.Get(ctx, "any", clientv3.WithCountOnly())
	if err != nil {
		return fmt.Errorf("compact etcd: read its revision: %w", err)
	}
	if _, err := client.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		return fmt.Errorf("compact etcd at revision %d: %w", now.Header.Revision, err)
	}
	return nil
}
