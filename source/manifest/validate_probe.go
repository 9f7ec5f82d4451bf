package manifest

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkHooksAndProbes looks at what containers and sidecars may have.
func (c *checker) checkHooksAndProbes(at *field.Path, container *v1.Container) {
	c.checkProbe(at.Child("livenessProbe"), container.LivenessProbe)
	c.checkProbe(at.Child("readinessProbe"), container.ReadinessProbe)
	c.checkProbe(at.Child("startupProbe"), container.StartupProbe)
	c.checkOneSuccess(at.Child("livenessProbe"), container.LivenessProbe)
	c.checkOneSuccess(at.Child("startupProbe"), container.StartupProbe)
	if probe := container.ReadinessProbe; probe != nil && probe.TerminationGracePeriodSeconds != nil {
		c.forbidden(at.Child("readinessProbe", "terminationGracePeriodSeconds"), "a readiness probe stops no container")
	}
	if lifecycle := container.Lifecycle; lifecycle != nil {
		at := at.Child("lifecycle")
		c.checkHook(at.Child("postStart"), lifecycle.PostStart)
		c.checkHook(at.Child("preStop"), lifecycle.PreStop)
		c.checkStopSignal(at.Child("stopSignal"), lifecycle.StopSignal)
	}
}

func (c *checker) checkProbe(at *field.Path, probe *v1.Probe) {
	if probe == nil {
		return
	}
	c.checkHandler(at, handler{
		exec: probe.Exec, httpGet: probe.HTTPGet, tcpSocket: probe.TCPSocket, grpc: probe.GRPC,
	})
	c.atLeast(at.Child("initialDelaySeconds"), int64(probe.InitialDelaySeconds), 0)
	c.atLeast(at.Child("timeoutSeconds"), int64(probe.TimeoutSeconds), 1)
	c.atLeast(at.Child("periodSeconds"), int64(probe.PeriodSeconds), 1)
	c.atLeast(at.Child("successThreshold"), int64(probe.SuccessThreshold), 1)
	c.atLeast(at.Child("failureThreshold"), int64(probe.FailureThreshold), 1)
	if grace := probe.TerminationGracePeriodSeconds; grace != nil {
		c.atLeast(at.Child("terminationGracePeriodSeconds"), *grace, 1)
	}
}

// checkOneSuccess is for the probes whose first success decides.
func (c *checker) checkOneSuccess(at *field.Path, probe *v1.Probe) {
	if probe != nil && probe.SuccessThreshold > 1 {
		c.invalid(at.Child("successThreshold"), probe.SuccessThreshold, "must be 1")
	}
}

func (c *checker) checkHook(at *field.Path, hook *v1.LifecycleHandler) {
	if hook == nil {
		return
	}
	c.checkHandler(at, handler{exec: hook.Exec, httpGet: hook.HTTPGet, tcpSocket: hook.TCPSocket, sleep: hook.Sleep})
}

// handler is what a probe or a hook does; exactly one of it.
type handler struct {
	exec      *v1.ExecAction
	httpGet   *v1.HTTPGetAction
	tcpSocket *v1.TCPSocketAction
	grpc      *v1.GRPCAction
	sleep     *v1.SleepAction
}

func (c *checker) checkHandler(at *field.Path, h handler) {
	var set []string
	if h.exec != nil {
		set = append(set, "exec")
		if len(h.exec.Command) == 0 {
			c.required(at.Child("exec", "command"), "")
		}
	}
	if h.httpGet != nil {
		set = append(set, "httpGet")
		c.checkHTTPGet(at.Child("httpGet"), h.httpGet)
	}
	if h.tcpSocket != nil {
		set = append(set, "tcpSocket")
		c.checkPortReference(at.Child("tcpSocket", "port"), h.tcpSocket.Port)
	}
	if h.grpc != nil {
		set = append(set, "grpc")
		c.checkPort(at.Child("grpc", "port"), h.grpc.Port)
	}
	if h.sleep != nil {
		set = append(set, "sleep")
		if grace := *c.spec.TerminationGracePeriodSeconds; h.sleep.Seconds < 0 || h.sleep.Seconds > max(grace, 0) {
			c.invalid(at.Child("sleep", "seconds"), h.sleep.Seconds,
				fmt.Sprintf("must be between 0 and terminationGracePeriodSeconds (%d)", grace))
		}
	}
	if len(set) == 0 {
		c.required(at, "a handler, such as exec, httpGet or tcpSocket")
		return
	}
	for _, more := range set[1:] {
		c.forbidden(at.Child(more), "may not be set together with "+set[0])
	}
}

func (c *checker) checkHTTPGet(at *field.Path, get *v1.HTTPGetAction) {
	c.checkPortReference(at.Child("port"), get.Port)
	oneOf(c, at.Child("scheme"), get.Scheme, v1.URISchemeHTTP, v1.URISchemeHTTPS)
	for i, header := range get.HTTPHeaders {
		c.invalid(at.Child("httpHeaders").Index(i).Child("name"), header.Name, validation.IsHTTPHeaderName(header.Name)...)
	}
}

func (c *checker) checkStopSignal(at *field.Path, signal *v1.Signal) {
	switch {
	case signal == nil:
	case c.spec.OS == nil:
		c.forbidden(at, "needs spec.os.name")
	case !isSignal(string(*signal)):
		c.invalid(at, *signal, "must be the name of a Linux signal, such as SIGUSR1 or SIGRTMIN+3")
	}
}

// isSignal reports whether Linux knows the signal. Of the real-time signals, each has one name only.
func isSignal(name string) bool {
	if name == "SIGRTMIN" || name == "SIGRTMAX" {
		return true
	}
	for offset := 1; offset <= 15; offset++ {
		if name == fmt.Sprintf("SIGRTMIN+%d", offset) || offset < 15 && name == fmt.Sprintf("SIGRTMAX-%d", offset) {
			return true
		}
	}
	plain, found := strings.CutPrefix(name, "SIG")
	return found && slices.Contains([]string{
		"ABRT", "ALRM", "BUS", "CHLD", "CLD", "CONT", "FPE", "HUP", "ILL", "INT", "IO", "IOT", "KILL", "PIPE", "POLL",
		"PROF", "PWR", "QUIT", "SEGV", "STKFLT", "STOP", "SYS", "TERM", "TRAP", "TSTP", "TTIN", "TTOU", "URG", "USR1",
		"USR2", "VTALRM", "WINCH", "XCPU", "XFSZ",
	}, plain)
}
