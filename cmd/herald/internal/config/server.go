package config

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/heraldnode/herald/auth"
	"github.com/heraldnode/herald/nodeagent"
	"github.com/heraldnode/herald/nodeserver"
)

// Authentication configures who may use the HTTPS server.
type Authentication struct {
	X509      X509Authentication      `yaml:"x509"`
	Webhook   WebhookAuthentication   `yaml:"webhook"`
	Anonymous AnonymousAuthentication `yaml:"anonymous"`
	// File with bearer tokens in the format of kube-apiserver's --token-auth-file: lines with token, user name, UID and, optionally,
	// groups in quotation marks. It must be readable for the agent's user only. Default: none.
	TokenFile string `yaml:"tokenFile" format:"path"`
}

// X509Authentication configures client certificates.
type X509Authentication struct {
	// PEM file of the authorities of client certificates: the common name is the user, the organizations are groups. It is read again
	// when it changes, and rejected if other users can write to it. Default: none.
	ClientCAFile string `yaml:"clientCAFile" format:"path"`
}

// WebhookAuthentication configures bearer tokens of the cluster.
type WebhookAuthentication struct {
	// Accepts the bearer tokens that the API server accepts. Default: `true` with a kubeconfig, `false` without.
	Enabled bool `yaml:"enabled"`
	// How long the API server's answers about tokens are used.
	CacheTTL time.Duration `yaml:"cacheTTL"`
}

// AnonymousAuthentication configures requests without credentials.
type AnonymousAuthentication struct {
	// Accepts requests without credentials as user `system:anonymous`.
	Enabled bool `yaml:"enabled"`
}

// Authorization configures what users of the HTTPS server may do.
type Authorization struct {
	// `Webhook` asks the API server, `Rules` uses authorization.rules, `AlwaysAllow` allows everything to everyone who is authenticated.
	// Default: `Webhook` with a kubeconfig, `Rules` without.
	Mode    string               `yaml:"mode"`
	Webhook WebhookAuthorization `yaml:"webhook"`
	// What users may do with mode `Rules`. Default: none, nothing is allowed.
	Rules []Rule `yaml:"rules"`
}

// WebhookAuthorization configures questions to the API server.
type WebhookAuthorization struct {
	// How long a permission is used after the API server granted it.
	CacheAuthorizedTTL time.Duration `yaml:"cacheAuthorizedTTL"`
	// How long a permission is refused after the API server refused it.
	CacheUnauthorizedTTL time.Duration `yaml:"cacheUnauthorizedTTL"`
}

// Rule allows users to use the HTTPS server.
type Rule struct {
	// Names of users. Default: none.
	Users []string `yaml:"users"`
	// Groups of users. Default: none.
	Groups []string `yaml:"groups"`
	// `get` for reading, `create` for exec, attach, run and port-forward, or `*`.
	Verbs []string `yaml:"verbs"`
	// Parts of the Node as in a role for the kubelet, like `pods`, `metrics`, `stats`, `proxy`, or `*`.
	Subresources []string `yaml:"subresources"`
}

func newAuthorization() Authorization {
	return Authorization{Webhook: WebhookAuthorization{CacheAuthorizedTTL: 5 * time.Minute, CacheUnauthorizedTTL: 30 * time.Second}}
}

// Ports of a kubelet.
const (
	defaultPort       = 10250
	defaultHealthPort = 10248
)

// setServerDefaults sets what depends on whether there is a cluster, unless it was set: without one the server is off (SRV-13).
func (c *Config) setServerDefaults(origins map[string]string) {
	if c.Kubeconfig == "" {
		return
	}
	if c.Authorization.Mode == "" {
		c.Authorization.Mode = string(auth.ModeWebhook)
	}
	if origins["port"] == "" {
		c.Port = defaultPort
	}
	if origins["healthzPort"] == "" {
		c.HealthzPort = defaultHealthPort
	}
	if origins["authentication.webhook.enabled"] == "" {
		c.Authentication.Webhook.Enabled = true
	}
	if c.Address == "" {
		c.Address = "0.0.0.0"
	}
}

func (c *Config) validateServer(v *validator) {
	validatePort(v, "port", c.Port)
	validatePort(v, "healthzPort", c.HealthzPort)
	validateAddress(v, "address", c.Address)
	validateAddress(v, "healthzBindAddress", c.HealthzBindAddress)
	v.rejectIf(c.HealthzPort != 0 && c.HealthzBindAddress == "", "healthzBindAddress", "must not be empty")
	v.rejectIf((c.TLSCertFile == "") != (c.TLSPrivateKeyFile == ""), "tlsCertFile", "must be set together with tlsPrivateKeyFile")
	_, err := nodeserver.ParseTLSVersion(c.TLSMinVersion)
	v.rejectIf(err != nil, "tlsMinVersion", "%v", err)
	for i, name := range c.TLSCipherSuites {
		_, err := nodeserver.ParseCipherSuites([]string{name})
		v.rejectIf(err != nil, fmt.Sprintf("tlsCipherSuites[%d]", i), "%v", err)
	}
	v.rejectIf(c.Authentication.Webhook.CacheTTL < 0, "authentication.webhook.cacheTTL", "must not be negative")
	v.rejectIf(c.Authorization.Webhook.CacheAuthorizedTTL < 0, "authorization.webhook.cacheAuthorizedTTL", "must not be negative")
	v.rejectIf(c.Authorization.Webhook.CacheUnauthorizedTTL < 0, "authorization.webhook.cacheUnauthorizedTTL", "must not be negative")
	switch auth.Mode(c.Authorization.Mode) {
	case "", auth.ModeWebhook, auth.ModeRules, auth.ModeAlwaysAllow:
	default:
		v.rejectIf(true, "authorization.mode", "invalid value %q: must be %s, %s or %s", c.Authorization.Mode,
			auth.ModeWebhook, auth.ModeRules, auth.ModeAlwaysAllow)
	}
	for i := range c.Authorization.Rules {
		rule := c.Authorization.Rules[i].convert()
		err := rule.Validate()
		v.rejectIf(err != nil, fmt.Sprintf("authorization.rules[%d]", i), "%v", err)
	}
}

func validatePort(v *validator, path string, port int) {
	v.rejectIf(port < 0 || port > 65535, path, "invalid value %d: must be between 1 and 65535, or 0 for none", port)
}

func validateAddress(v *validator, path, address string) {
	if address != "" {
		_, err := netip.ParseAddr(address)
		v.rejectIf(err != nil, path, "invalid value %q: must be an IP address, like 0.0.0.0", address)
	}
}

// validateServerUse checks what depends on the kubeconfig and on files. A KubeletConfiguration that is converted has no kubeconfig.
func (c *Config) validateServerUse(v *validator) {
	if c.Port == 0 {
		return
	}
	v.rejectIf(c.Address == "", "address", "must be set together with port, without a kubeconfig")
	v.rejectIf(c.Kubeconfig == "" && c.Authentication.Webhook.Enabled, "authentication.webhook.enabled",
		"must not be true without a kubeconfig: there is no API server to ask; use authentication.tokenFile or x509.clientCAFile")
	v.rejectIf(c.Kubeconfig == "" && c.Authorization.Mode == string(auth.ModeWebhook), "authorization.mode",
		"must not be %s without a kubeconfig: there is no API server to ask; use %s", auth.ModeWebhook, auth.ModeRules)
	mode := cmp.Or(auth.Mode(c.Authorization.Mode), auth.ModeRules)
	v.rejectIf(len(c.Authorization.Rules) > 0 && mode != auth.ModeRules, "authorization.rules", "must not be set with mode: %s", mode)
	check := func(path, file string, check func(string) error) {
		if file != "" {
			err := check(file)
			v.rejectIf(err != nil, path, "%v", err)
		}
	}
	check("authentication.x509.clientCAFile", c.Authentication.X509.ClientCAFile, permissions.CheckFile)
	check("authentication.tokenFile", c.Authentication.TokenFile, permissions.CheckSecret)
	check("tlsCertFile", c.TLSCertFile, permissions.CheckFile)
	check("tlsPrivateKeyFile", c.TLSPrivateKeyFile, permissions.CheckSecret)
}

func (r *Rule) convert() auth.Rule {
	return auth.Rule{Users: r.Users, Groups: r.Groups, Verbs: r.Verbs, Subresources: r.Subresources}
}

// serverConfig converts the configuration of the servers.
func (c *Config) serverConfig() nodeagent.ServerConfig {
	server := nodeagent.ServerConfig{
		CertFile: c.TLSCertFile, KeyFile: c.TLSPrivateKeyFile, ClientCAFile: c.Authentication.X509.ClientCAFile,
		MinVersion: c.TLSMinVersion, CipherSuites: c.TLSCipherSuites,
		Auth: auth.Config{
			ReviewTokens: c.Authentication.Webhook.Enabled, TokenTTL: c.Authentication.Webhook.CacheTTL,
			TokenFile: c.Authentication.TokenFile, Anonymous: c.Authentication.Anonymous.Enabled,
			Mode:       auth.Mode(c.Authorization.Mode),
			AllowedTTL: c.Authorization.Webhook.CacheAuthorizedTTL, DeniedTTL: c.Authorization.Webhook.CacheUnauthorizedTTL,
		},
		Debugging: nodeserver.Debugging{
			Enabled: c.EnableDebuggingHandlers, SystemLogs: c.EnableSystemLogHandler, Profiling: c.EnableProfilingHandler,
		},
		Configz: c.Configz,
	}
	if c.Port != 0 {
		server.Address = net.JoinHostPort(c.Address, strconv.Itoa(c.Port))
	}
	if c.HealthzPort != 0 {
		server.HealthAddress = net.JoinHostPort(c.HealthzBindAddress, strconv.Itoa(c.HealthzPort))
	}
	for i := range c.Authorization.Rules {
		server.Auth.Rules = append(server.Auth.Rules, c.Authorization.Rules[i].convert())
	}
	return server
}
