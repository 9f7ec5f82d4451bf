package cri

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

// Labels and annotations by which the runtime remembers whose a container is, in the kubelet's names.
const (
	labelPodName       = "io.kubernetes.pod.name"
	labelPodNamespace  = "io.kubernetes.pod.namespace"
	labelPodUID        = "io.kubernetes.pod.uid"
	labelContainerName = "io.kubernetes.container.name"

	noteHash             = "io.kubernetes.container.hash"
	noteRestartCount     = "io.kubernetes.container.restartCount"
	noteMessagePath      = "io.kubernetes.container.terminationMessagePath"
	noteMessagePolicy    = "io.kubernetes.container.terminationMessagePolicy"
	notePreStop          = "io.kubernetes.container.preStopHandler"
	notePorts            = "io.kubernetes.container.ports"
	noteDeletionGrace    = "io.kubernetes.pod.deletionGracePeriod"
	noteTerminationGrace = "io.kubernetes.pod.terminationGracePeriod"
)

func identityLabels(pod *v1.Pod) map[string]string {
	return map[string]string{
		labelPodName: pod.Name, labelPodNamespace: pod.Namespace, labelPodUID: string(pod.UID),
	}
}

// podLabels are the pod's own, and whose it is; the latter cannot be overruled.
func podLabels(pod *v1.Pod) map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, pod.Labels)
	maps.Copy(labels, identityLabels(pod))
	return labels
}

func containerLabels(pod *v1.Pod, name string) map[string]string {
	labels := identityLabels(pod)
	labels[labelContainerName] = name
	return labels
}

func containerAnnotations(pod *v1.Pod, start plan.Start) (map[string]string, error) {
	c := start.Container
	notes := map[string]string{
		noteHash:          strconv.FormatUint(plan.HashContainer(c), 16),
		noteRestartCount:  strconv.Itoa(start.RestartCount),
		noteMessagePath:   c.TerminationMessagePath,
		noteMessagePolicy: string(c.TerminationMessagePolicy),
	}
	noteSeconds(notes, noteDeletionGrace, pod.DeletionGracePeriodSeconds)
	noteSeconds(notes, noteTerminationGrace, pod.Spec.TerminationGracePeriodSeconds)
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		if err := noteJSON(notes, notePreStop, c.Lifecycle.PreStop); err != nil {
			return nil, err
		}
	}
	if len(c.Ports) > 0 {
		if err := noteJSON(notes, notePorts, c.Ports); err != nil {
			return nil, err
		}
	}
	return notes, nil
}

func noteSeconds(notes map[string]string, name string, seconds *int64) {
	if seconds != nil {
		notes[name] = strconv.FormatInt(*seconds, 10)
	}
}

func noteJSON(notes map[string]string, name string, value any) error {
	written, err := json.Marshal(value)
	notes[name] = string(written)
	return err
}

// owner tells whose pod the labels speak of. What lacks them, or has a UID that can be no pod's folder, was not made
// for a pod, and is left alone.
func owner(labels map[string]string) (uid podid.UID, name podid.FullName, ours bool) {
	uid = podid.UID(labels[labelPodUID])
	name = podid.FullName{Namespace: labels[labelPodNamespace], Name: labels[labelPodName]}
	return uid, name, isName(string(uid)) && name.Name != ""
}

// notedHash is the hash of the spec that an instance was made from; what is missing or broken is 0, which means unknown.
func notedHash(notes map[string]string) uint64 {
	hash, err := strconv.ParseUint(notes[noteHash], 16, 64)
	if err != nil {
		return 0
	}
	return hash
}

// notedRestarts is the restart count of an instance; the runtime's own attempt number stands in for a lost annotation.
func notedRestarts(notes map[string]string, attempt uint32) int {
	count, err := strconv.Atoi(notes[noteRestartCount])
	if err != nil {
		return int(attempt)
	}
	return count
}

// podLogDir has the logs of a pod's containers.
func (c *Config) podLogDir(pod *v1.Pod) string {
	return filepath.Join(c.LogDir, pod.Namespace+"_"+pod.Name+"_"+string(pod.UID))
}

// containerLog is where an instance logs to, from the pod's log folder on.
func containerLog(name string, restartCount int) string {
	return filepath.Join(name, strconv.Itoa(restartCount)+".log")
}
