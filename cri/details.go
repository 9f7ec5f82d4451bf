package cri

import (
	"context"
	"encoding/json"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Details is what the runtime knows about an instance of a container.
type Details struct {
	// JSON is the runtime's status with its own additions, without environment variables.
	JSON []byte
	// PID is the main process; 0 if it is not known.
	PID int
}

// ContainerDetails returns what the runtime knows about an instance, for people who look for the cause of a problem.
func (r *Runtime) ContainerDetails(ctx context.Context, id string) (Details, error) {
	response, err := r.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return Details{}, fmt.Errorf("cri: inspect container %s: %w", id, err)
	}
	info := map[string]any{}
	for name, text := range response.GetInfo() {
		var value any
		if json.Unmarshal([]byte(text), &value) != nil {
			continue // not JSON, so that what is secret cannot be told apart
		}
		info[name] = withoutEnvironment(value)
	}
	details := Details{}
	if own, isObject := info["info"].(map[string]any); isObject {
		if pid, isNumber := own["pid"].(float64); isNumber {
			details.PID = int(pid)
		}
	}
	details.JSON, err = json.MarshalIndent(map[string]any{"status": response.GetStatus(), "info": info}, "", " ")
	if err != nil {
		return Details{}, fmt.Errorf("cri: inspect container %s: %w", id, err)
	}
	return details, nil
}

// withoutEnvironment removes environment variables from JSON, whatever the runtime calls them: env in an OCI spec, envs in a CRI
// configuration.
func withoutEnvironment(value any) any {
	switch value := value.(type) {
	case map[string]any:
		delete(value, "env")
		delete(value, "envs")
		for name := range value {
			value[name] = withoutEnvironment(value[name])
		}
	case []any:
		for i := range value {
			value[i] = withoutEnvironment(value[i])
		}
	}
	return value
}
