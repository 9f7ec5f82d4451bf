package manifest

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateHooksAndProbes validates probes, hooks and stop signal of a container or sidecar.
func (v *validator) validateHooksAndProbes(at *field.Path, container *v1.Container) {
	v.validateProbe(at.Child("livenessProbe"), container.LivenessProbe)
	v.validateProbe(at.Child("readinessProbe"), container.ReadinessProbe)
	v.validateProbe(at.Child("startupProbe"), container.StartupProbe)
	v.validateOneSuccess(at.Child("livenessProbe"), container.LivenessProbe)
	v.validateOneSuccess(at.Child("startupProbe"), container.StartupProbe)
	if probe := container.ReadinessProbe; probe != nil && probe.TerminationGracePeriodSeconds != nil {
		v.forbidden(at.Child("readinessProbe", "terminationGracePeriodSeconds"), "a readiness probe does not stop the container")
	}
	if lifecycle := container.Lifecycle; lifecycle != nil {
		at := at.Child("lifecycle")
		v.validateHook(at.Child("postStart"), lifecycle.PostStart)
		v.validateHook(at.Child("preStop"), lifecycle.PreStop)
		v.validateStopSignal(at.Child("stopSignal"), lifecycle.StopSignal)
	}
}

func (v *validator) validateProbe(at *field.Path, probe *v1.Probe) {
	if probe == nil {
		return
	}
	v.validateHandler(at, handler{
		exec: probe.Exec, httpGet: probe.HTTPGet, tcpSocket: probe.TCPSocket, grpc: probe.GRPC,
	})
	v.requireMin(at.Child("initialDelaySeconds"), int64(probe.InitialDelaySeconds), 0)
	v.requireMin(at.Child("timeoutSeconds"), int64(probe.TimeoutSeconds), 1)
	v.requireMin(at.Child("periodSeconds"), int64(probe.PeriodSeconds), 1)
	v.requireMin(at.Child("successThreshold"), int64(probe.SuccessThreshold), 1)
	v.requireMin(at.Child("failureThreshold"), int64(probe.FailureThreshold), 1)
	if grace := probe.TerminationGracePeriodSeconds; grace != nil {
		v.requireMin(at.Child("terminationGracePeriodSeconds"), *grace, 1)
	}
}

// validateOneSuccess requires a success threshold of 1, for probes whose first success is final.
func (v *validator) validateOneSuccess(at *field.Path, probe *v1.Probe) {
	if probe != nil && probe.SuccessThreshold > 1 {
		v.invalid(at.Child("successThreshold"), probe.SuccessThreshold, "must be 1")
	}
}

func (v *validator) validateHook(at *field.Path, hook *v1.LifecycleHandler) {
	if hook == nil {
		return
	}
	v.validateHandler(at, handler{exec: hook.Exec, httpGet: hook.HTTPGet, tcpSocket: hook.TCPSocket, sleep: hook.Sleep})
}

// handler is the action of a probe or hook. Exactly one field must be set.
type handler struct {
	exec      *v1.ExecAction
	httpGet   *v1.HTTPGetAction
	tcpSocket *v1.TCPSocketAction
	grpc      *v1.GRPCAction
	sleep     *v1.SleepAction
}

func (v *validator) validateHandler(at *field.Path, h handler) {
	var set []string
	if h.exec != nil {
		set = append(set, "exec")
		if len(h.exec.Command) == 0 {
			v.required(at.Child("exec", "command"), "")
		}
	}
	if h.httpGet != nil {
		set = append(set, "httpGet")
		v.validateHTTPGet(at.Child("httpGet"), h.httpGet)
	}
	if h.tcpSocket != nil {
		set = append(set, "tcpSocket")
		v.validatePortReference(at.Child("tcpSocket", "port"), h.tcpSocket.Port)
	}
	if h.grpc != nil {
		set = append(set, "grpc")
		v.validatePort(at.Child("grpc", "port"), h.grpc.Port)
	}
	if h.sleep != nil {
		set = append(set, "sleep")
		if grace := *v.spec.TerminationGracePeriodSeconds; h.sleep.Seconds < 0 || h.sleep.Seconds > max(grace, 0) {
			v.invalid(at.Child("sleep", "seconds"), h.sleep.Seconds,
				fmt.Sprintf("must be between 0 and terminationGracePeriodSeconds (%d)", grace))
		}
	}
	if len(set) == 0 {
		v.required(at, "must have a handler, such as exec, httpGet or tcpSocket")
		return
	}
	for _, more := range set[1:] {
		v.forbidden(at.Child(more), "may not be set together with "+set[0])
	}
}

func (v *validator) validateHTTPGet(at *field.Path, get *v1.HTTPGetAction) {
	v.validatePortReference(at.Child("port"), get.Port)
	requireOneOf(v, at.Child("scheme"), get.Scheme, v1.URISchemeHTTP, v1.URISchemeHTTPS)
	for i, header := range get.HTTPHeaders {
		v.invalid(at.Child("httpHeaders").Index(i).Child("name"), header.Name, validation.IsHTTPHeaderName(header.Name)...)
	}
}

func (v *validator) validateStopSignal(at *field.Path, signal *v1.Signal) {
	switch {
	case signal == nil:
	case v.spec.OS == nil:
		v.forbidden(at, "requires spec.os.name")
	case !isSignal(string(*signal)):
		v.invalid(at, *signal, "must be the name of a Linux signal, such as SIGUSR1 or SIGRTMIN+3")
	}
}

// isSignal reports whether the name is a Linux signal. Each real-time signal has exactly one valid name.
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
