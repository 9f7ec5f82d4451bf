package config

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/heraldnode/herald/server"
)

// problem is something wrong with a field, or with the whole if path is "".
type problem struct{ at, path, why string }

func (p problem) Error() string {
	if p.at == "" {
		return p.why
	}
	return p.at + ": " + p.why
}

// checker holds the values against each other.
type checker struct {
	said     map[string]string // where each field was said
	problems []problem
}

// refuse complains about a field at the place that said it.
func (k *checker) refuse(when bool, path, format string, args ...any) {
	if !when {
		return
	}
	at := k.said[path]
	switch {
	case at == "":
		at = path
	case !strings.HasPrefix(at, "--"): // a flag says enough
		at += ": " + path
	}
	k.problems = append(k.problems, problem{at, path, fmt.Sprintf(format, args...)})
}

func (k *checker) positive(path string, value time.Duration) {
	k.refuse(value <= 0, path, "is %v: want more than 0s", value)
}

// check finds what is wrong although each value by itself could be read.
func (c *Config) check(said map[string]string) error {
	var problems []error
	for _, found := range c.problems(said) {
		problems = append(problems, found)
	}
	return errors.Join(problems...)
}

func (c *Config) problems(said map[string]string) []problem {
	k := &checker{said: said}
	c.checkNode(k)
	c.checkNodeStatus(k)
	c.checkSources(k)
	c.checkRuntime(k)
	c.checkContainers(k)
	if err := server.CheckAddress(c.ListenAddress()); err != nil && (c.Listen != "" || c.DataDir != "") {
		k.refuse(true, "listen", "%v", err)
	}
	k.refuse(c.KubeAPIQPS <= 0 && c.KubeAPIQPS != -1, "kubeAPIQPS", "is %d: want more than 0, or -1 for no limit", c.KubeAPIQPS)
	k.refuse(c.KubeAPIBurst <= 0, "kubeAPIBurst", "is %d: want more than 0", c.KubeAPIBurst)
	k.refuse(c.EventRecordQPS < 0, "eventRecordQPS", "is %d: want more than 0, or 0 for no limit", c.EventRecordQPS)
	k.refuse(c.EventBurst <= 0, "eventBurst", "is %d: want more than 0", c.EventBurst)
	k.refuse(c.Logging.Format != "text" && c.Logging.Format != "json", "logging.format", "is %q: want text or json", c.Logging.Format)
	k.refuse(c.Logging.Verbosity < 0, "logging.verbosity", "is %d: want 0 to 4", c.Logging.Verbosity)
	return k.problems
}

func (c *Config) checkSources(k *checker) {
	if c.StaticPodPath == "" && c.StaticPodURL == "" && c.Kubeconfig == "" {
		k.problems = append(k.problems, problem{
			why: "nothing to run: name a folder with --manifests, a URL with --manifest-url or an API server with --kubeconfig",
		})
	}
	if info, err := os.Stat(c.Kubeconfig); c.Kubeconfig != "" {
		k.refuse(err != nil, "kubeconfig", "%v", err)
		k.refuse(err == nil && !info.Mode().IsRegular(), "kubeconfig", "%s is no file", c.Kubeconfig)
	}
	k.positive("fileCheckFrequency", c.FileCheckFrequency)
	k.positive("httpCheckFrequency", c.HTTPCheckFrequency)
	k.positive("syncFrequency", c.SyncFrequency)
	k.refuse(c.StaticPodURL != "" && !isSafeURL(c.StaticPodURL), "staticPodURL",
		"want an https URL, or an http one on this machine: whoever can change pods on the way is root here")
	k.refuse(c.StaticPodURL == "" && len(c.StaticPodURLHeader) > 0, "staticPodURLHeader", "there is no staticPodURL to send it to")
	for _, name := range slices.Sorted(maps.Keys(c.StaticPodURLHeader)) {
		k.refuse(!headerName.MatchString(name), "staticPodURLHeader."+name, "is no name of a header: want letters, digits and -")
		k.refuse(slices.ContainsFunc(c.StaticPodURLHeader[name], isNoHeaderValue), "staticPodURLHeader."+name,
			"has a value that no header can have: it has more than one line, or control characters")
	}
	k.refuse((c.StaticPodURLCertFile == "") != (c.StaticPodURLKeyFile == ""), "staticPodURLCertFile",
		"is of use with staticPodURLKeyFile only: give both or none")
}

// headerName has the letters of a token of HTTP.
var headerName = regexp.MustCompile("^[-!#$%&'*+.^_`|~0-9A-Za-z]+$")

func isNoHeaderValue(value string) bool {
	return strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

// isSafeURL reports whether nobody on the way can change what is read. The value is not shown, for people put secrets into it.
func isSafeURL(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return false
	}
	address, err := netip.ParseAddr(u.Hostname())
	local := u.Hostname() == "localhost" || err == nil && address.IsLoopback()
	return u.Scheme == "https" || u.Scheme == "http" && local
}
