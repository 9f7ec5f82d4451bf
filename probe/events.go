package probe

import (
	"fmt"
	"strings"
	"unicode"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/probe/check"
	"github.com/heraldnode/herald/probe/judge"
)

const (
	reasonUnhealthy = "Unhealthy"
	reasonWarning   = "ProbeWarning"
)

// maxMessage is how many bytes of what a container said are shown.
const maxMessage = 1 << 10

// report tells an operator of what is not well, in the kubelet's words. That a container is gone is no illness: it was
// stopped, or it ended, and that is told elsewhere. Its ID never shows: what happens to each instance is the same event.
func (p *Prober) report(probe *probe, about observed.ContainerID, found check.Outcome) {
	var reason, what string
	switch {
	case found.Warning:
		reason, what = reasonWarning, "warning"
	case found.Result == judge.Success, found.Result == judge.NotFound:
		return
	case found.Result == judge.Failure:
		reason, what = reasonUnhealthy, "failed"
	default:
		reason, what = reasonUnhealthy, "errored and resulted in unknown state"
	}
	said := found.Message
	if about.ID != "" {
		said = strings.ReplaceAll(said, about.ID, probe.container.Name)
	}
	message := fmt.Sprintf("%s probe %s: %s", probe.kind, what, displayed(said))
	p.config.Logger.Debug("Probe", "pod", probe.pod.Name, "namespace", probe.pod.Namespace, "podUID", probe.pod.UID,
		"container", probe.container.Name, "message", message)
	p.config.Events.Event(reference(probe.pod, probe.container.Name), v1.EventTypeWarning, reason, message)
}

// displayed is what a container said, made fit for a terminal: cut, and without what steers one.
func displayed(said string) string {
	said = said[:min(len(said), maxMessage)]
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(said, "�"))
}

// reference points to a container inside its pod.
func reference(pod *v1.Pod, container string) *v1.ObjectReference {
	list := "containers"
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == container {
			list = "initContainers"
		}
	}
	return &v1.ObjectReference{
		Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		ResourceVersion: pod.ResourceVersion, FieldPath: fmt.Sprintf("spec.%s{%s}", list, container),
	}
}
