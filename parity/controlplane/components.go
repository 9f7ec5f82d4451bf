package controlplane

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Files of the API server's authority that other components need too.
const (
	caFile          = "ca.crt"
	accountsKeyFile = "service-account.key"
)

// newEtcd returns the etcd server. It uses its own certificate authority: with the API server's, every user of the cluster could
// read and write the store.
func (cp *ControlPlane) newEtcd(binary string, files *pkiFiles, peerURL string) *Server {
	authority := newAuthority("herald-test-etcd-ca")
	client := authority.issueClient("kube-apiserver")
	files.writePair("etcd-client", client)
	cp.etcdTLS = authority.clientTLS(client)

	ca := files.write("etcd-ca.crt", authority.pem)
	cert, key := files.writePair("etcd", authority.issueServer("etcd"))
	return &Server{
		name: "etcd", binary: binary, env: []string{environmentMark(cp.dir)}, log: cp.path("etcd.log"),
		ready: readyz(cp.etcdURL, cp.etcdTLS),
		args: []string{
			"--name=default", "--data-dir=" + cp.path("etcd"),
			"--listen-client-urls=" + cp.etcdURL, "--advertise-client-urls=" + cp.etcdURL,
			"--cert-file=" + cert, "--key-file=" + key, "--client-cert-auth", "--trusted-ca-file=" + ca,
			"--listen-peer-urls=" + peerURL, "--initial-advertise-peer-urls=" + peerURL, "--initial-cluster=default=" + peerURL,
			"--peer-cert-file=" + cert, "--peer-key-file=" + key, "--peer-client-cert-auth", "--peer-trusted-ca-file=" + ca,
			// The page cache survives a killed process, and no test survives its machine: fsync is unnecessary.
			"--unsafe-no-fsync",
		},
	}
}

// newAPIServer returns the API server. It requires the files of newEtcd.
func (cp *ControlPlane) newAPIServer(config Config, files *pkiFiles, port int) *Server {
	cert, key := files.writePair("kube-apiserver", cp.ca.issueServer("kube-apiserver"))
	accountsKey := files.write(accountsKeyFile, encodeKey(newKey()))
	nodeCert, nodeKey := files.writePair("kubelet-client", cp.ca.issueClient(KubeletClientUser))
	args := []string{
		"--etcd-servers=" + cp.etcdURL, "--etcd-cafile=" + files.path("etcd-ca.crt"),
		"--etcd-certfile=" + files.path("etcd-client.crt"), "--etcd-keyfile=" + files.path("etcd-client.key"),

		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + cert, "--tls-private-key-file=" + key, "--cert-dir=" + files.dir,
		// A loopback address is not a valid endpoint of the "kubernetes" service.
		"--endpoint-reconciler-type=none",

		"--client-ca-file=" + files.write(caFile, cp.ca.pem), "--anonymous-auth=false",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",

		// Host names of test nodes do not resolve.
		"--kubelet-client-certificate=" + nodeCert, "--kubelet-client-key=" + nodeKey,
		"--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",

		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + accountsKey,
		"--service-account-signing-key-file=" + accountsKey, "--service-cluster-ip-range=10.0.0.0/24", "--allow-privileged",
	}
	if !config.ServiceAccounts {
		args = append(args, "--disable-admission-plugins=ServiceAccount") // see the package comment
	}
	if len(config.AuditPolicy) > 0 {
		policy := files.write("audit-policy.yaml", config.AuditPolicy)
		args = append(args, "--audit-policy-file="+policy, "--audit-log-path="+cp.AuditLog())
	}
	return &Server{
		name: "kube-apiserver", binary: config.Binaries.APIServer, env: []string{environmentMark(cp.dir)},
		log: cp.path("kube-apiserver.log"), ready: readyz(cp.url, cp.ca.clientTLS(cp.adminPair())),
		args: append(args, config.APIServerArgs...),
	}
}

// NewSigner returns a controller manager that approves the signing requests of nodes and of bootstrap tokens for client certificates,
// if RBAC allows it, and signs what is approved with the authority of the API server's clients. Certificates live for that time. It is
// not started yet.
func (cp *ControlPlane) NewSigner(binary string, life time.Duration) (*Server, error) {
	files := pkiFiles{dir: cp.path("pki")}
	cert, key := files.write("signing-ca.crt", cp.ca.pem), files.write("signing-ca.key", encodeKey(cp.ca.key))
	if files.err != nil {
		return nil, files.err
	}
	signer, err := cp.NewControllerManager(binary,
		"certificatesigningrequest-approving-controller", "certificatesigningrequest-signing-controller")
	if err != nil {
		return nil, err
	}
	signer.args = append(signer.args, "--cluster-signing-cert-file="+cert, "--cluster-signing-key-file="+key,
		"--cluster-signing-duration="+life.String())
	return signer, nil
}

// BootstrapKubeconfig writes a kubeconfig with the token to the path.
func (cp *ControlPlane) BootstrapKubeconfig(path, token string) error {
	const name = "bootstrap"
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: cp.url, CertificateAuthorityData: cp.ca.pem}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.WriteFile(path, content, 0o600)
}

// Compact removes etcd's history up to now. The API server keeps recent history in its watch cache. After a restart of the API
// server, a list or a watch at an earlier resourceVersion returns 410.
func (cp *ControlPlane) Compact(ctx context.Context) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{cp.etcdURL}, TLS: cp.etcdTLS, Context: ctx})
	if err != nil {
		return fmt.Errorf("compact etcd: %w", err)
	}
	defer client.Close()
	response, err := client.Get(ctx, "any", clientv3.WithCountOnly())
	if err != nil {
		return fmt.Errorf("compact etcd: read revision: %w", err)
	}
	revision := response.Header.Revision
	if _, err := client.Compact(ctx, revision, clientv3.WithCompactPhysical()); err != nil {
		return fmt.Errorf("compact etcd at revision %d: %w", revision, err)
	}
	return nil
}

// pkiFiles writes the files that the servers read. It keeps the first error; the caller checks it once.
type pkiFiles struct {
	dir string
	err error
}

func (p *pkiFiles) path(name string) string { return filepath.Join(p.dir, name) }

// write writes a file that only its owner may read, and returns its path.
func (p *pkiFiles) write(name string, content []byte) string {
	path := p.path(name)
	if p.err != nil {
		return path
	}
	p.err = os.MkdirAll(p.dir, 0o700)
	if p.err == nil {
		p.err = os.WriteFile(path, content, 0o600)
	}
	if p.err != nil {
		p.err = fmt.Errorf("write certificates: %w", p.err)
	}
	return path
}

// writePair writes a certificate and its key, and returns their paths.
func (p *pkiFiles) writePair(name string, pair keyPair) (cert, key string) {
	return p.write(name+".crt", pair.cert), p.write(name+".key", pair.key)
}
