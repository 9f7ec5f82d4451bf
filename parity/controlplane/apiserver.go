package controlplane

import (
	"fmt"
)

// newAPIServer describes the API server, which needs what newEtcd wrote.
func (cp *ControlPlane) newAPIServer(config Config, files *pki, port int) *Server {
	cert, key := files.pair("kube-apiserver", cp.users.forServer("kube-apiserver"))
	accounts := newKey()
	accountsKey := files.file("service-account.key", encodeKey(accounts))
	args := []string{
		"--etcd-servers=" + cp.etcdURL, "--etcd-cafile=" + files.path("etcd-ca.crt"),
		"--etcd-certfile=" + files.path("etcd-client.crt"), "--etcd-keyfile=" + files.path("etcd-client.key"),

		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + cert, "--tls-private-key-file=" + key, "--cert-dir=" + files.dir,
		// A loopback address may not be an endpoint of the "kubernetes" service.
		"--endpoint-reconciler-type=none",

		"--client-ca-file=" + files.file("ca.crt", cp.users.pem), "--anonymous-auth=false",
		"--authorization-mode=Node,RBAC",
		// ServiceAccount: see the package's comment.
		"--enable-admission-plugins=NodeRestriction", "--disable-admission-plugins=ServiceAccount",

		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + accountsKey,
		"--service-account-signing-key-file=" + accountsKey, "--service-cluster-ip-range=10.0.0.0/24", "--allow-privileged",
	}
	if len(config.AuditPolicy) > 0 {
		policy := files.file("audit-policy.yaml", config.AuditPolicy)
		args = append(args, "--audit-policy-file="+policy, "--audit-log-path="+cp.AuditLog())
	}
	return &Server{
		name: "kube-apiserver", binary: config.Binaries.APIServer, env: []string{mark(cp.dir)}, log: cp.path("kube-apiserver.log"),
		ready: readyz(cp.url, cp.users.clientTLS(cp.admin())),
		args:  append(args, config.APIServerArgs...),
	}
}
