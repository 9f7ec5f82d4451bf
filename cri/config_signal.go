package cri

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// stopSignal is what ends the container; the runtime's default is what its image says.
func stopSignal(container *v1.Container) (runtimeapi.Signal, error) {
	if container.Lifecycle == nil || container.Lifecycle.StopSignal == nil {
		return runtimeapi.Signal_RUNTIME_DEFAULT, nil
	}
	name := string(*container.Lifecycle.StopSignal)
	written := strings.NewReplacer("+", "PLUS", "-", "MINUS").Replace(name)
	signal, known := runtimeapi.Signal_value[written]
	if !known {
		return 0, fmt.Errorf("lifecycle.stopSignal: %q is not a signal of this machine", name)
	}
	return runtimeapi.Signal(signal), nil
}
