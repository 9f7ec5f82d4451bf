package sidebyside_test

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/parity/containerd"
)

// nodeScenarios are pods that ask something of the node: users, resources, ports, kernel features and volumes that it may not
// have.
var nodeScenarios = map[string]scenario{
	// The levels of the subPath must be writable for the container's user.
	"user-writes-to-subpath": {settled: phase(v1.PodSucceeded), spec: `
restartPolicy: Never
securityContext: {runAsUser: 1001, runAsGroup: 1001}
containers: [{name: main, args: [note, /data/file, written], volumeMounts: [{name: scratch, mountPath: /data, subPath: one/two}]}]
volumes: [{name: scratch, emptyDir: {}}]`},

	// What the image says of user and group, and what it does not say.
	"user-of-image": {settled: phase(v1.PodFailed), spec: `
restartPolicy: Never
containers: ` + printIDs("uid", "uid-gid", "unknown-uid", "unknown-uid-gid", "name", "name-group", "root-gid") + `
- {name: none, args: [exit, "1", --print-ids], terminationMessagePolicy: FallbackToLogsOnError}`},

	"user-of-image-with-groups": {settled: phase(v1.PodFailed), spec: `
restartPolicy: Never
securityContext: {fsGroup: 5000, supplementalGroups: [6000]}
containers: ` + printIDs("uid-gid", "unknown-uid-gid", "name-group")},

	// containerd rejects a group of the pod without a user, which Herald leaves out.
	"user-of-image-with-group": {settled: phase(v1.PodFailed), spec: `
restartPolicy: Never
containers: ` + strings.ReplaceAll(printIDs("uid-gid", "unknown-uid", "name-group"), "image: ", "securityContext: {runAsGroup: 7000}, image: ")},

	"user-in-spec-and-image": {settled: phase(v1.PodFailed), spec: `
restartPolicy: Never
securityContext: {runAsUser: 1000}
containers: ` + printIDs("root-gid", "unknown-uid-gid", "name-group")},

	// Without limits these are the allocatable resources of the node, which are the same for both agents in these units.
	"downward-api-without-limits": {settled: phase(v1.PodFailed), spec: `
restartPolicy: Never
containers:
- name: main
  args: [exit, "0", --message, cpu $(CPU) memory $(MEMORY) disk $(DISK) request $(REQUEST)]
  env:
  - {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}
  - {name: MEMORY, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Ti}}}
  - {name: DISK, valueFrom: {resourceFieldRef: {resource: limits.ephemeral-storage, divisor: 1Pi}}}
  - {name: REQUEST, valueFrom: {resourceFieldRef: {resource: requests.memory}}}
- {name: cpu, args: [exit, "1", --print-file, /info/cpu], terminationMessagePolicy: FallbackToLogsOnError,
   volumeMounts: [{name: info, mountPath: /info}]}
- {name: memory, args: [exit, "1", --print-file, /info/memory], terminationMessagePolicy: FallbackToLogsOnError,
   volumeMounts: [{name: info, mountPath: /info}]}
volumes:
- name: info
  downwardAPI:
    items:
    - {path: cpu, resourceFieldRef: {containerName: main, resource: limits.cpu}}
    - {path: memory, resourceFieldRef: {containerName: main, resource: limits.memory, divisor: 1Ti}}`},

	// The hook of the sidecar begins with the termination: main ends only when it has run.
	"deleted-with-prestop-of-sidecar": {
		actWhen: ready, act: deletePod(nil), settled: all(terminated("main"), terminated("side")), removed: true, spec: `
terminationGracePeriodSeconds: 60
initContainers:
- {name: side, args: [pause], restartPolicy: Always, volumeMounts: [{name: s, mountPath: /s}],
   lifecycle: {preStop: {exec: {command: [/testpod, note, /s/stopping, now]}}}}
containers: [{name: main, args: [await, /s/stopping], volumeMounts: [{name: s, mountPath: /s}], startupProbe: ` + delayedProbe + `}]
volumes: [{name: s, emptyDir: {}}]`,
	},

	"volume-missing-claim": {settled: waiting("main", "ContainerCreating"), event: "FailedMount", spec: `
containers: [{name: main, args: [pause], volumeMounts: [{name: data, mountPath: /data}]}]
volumes: [{name: data, persistentVolumeClaim: {claimName: absent}}]`},

	"volume-unknown-driver": {settled: waiting("main", "ContainerCreating"), event: "FailedMount", spec: `
containers: [{name: main, args: [pause], volumeMounts: [{name: data, mountPath: /data}]}]
volumes: [{name: data, csi: {driver: absent.example.com}}]`},

	"runtime-class-without-handler": {settled: waiting("main", "ContainerCreating"), event: "FailedCreatePodSandBox", spec: `
runtimeClassName: unknown-handler
containers: [{name: main, args: [pause]}]`},

	"runtime-class": {settled: ready, spec: `
runtimeClassName: second-handler
containers: [{name: main, args: [pause]}]`},

	"runtime-class-missing": {unbound: true, settled: waiting("main", "ContainerCreating"), event: "FailedCreatePodSandBox", spec: `
runtimeClassName: gone
containers: [{name: main, args: [pause]}]`},

	"runtime-class-created-late": {
		unbound: true, actWhen: waiting("main", "ContainerCreating"), actAfter: "FailedCreatePodSandBox",
		act: createRuntimeClass(containerd.SecondHandler), settled: ready, spec: `
runtimeClassName: late-` + nodePlaceholder + `
containers: [{name: main, args: [pause]}]`,
	},

	"ephemeral-storage": {settled: ready, spec: `
containers: [{name: main, args: [pause], resources: {requests: {ephemeral-storage: 1Mi}, limits: {ephemeral-storage: 1Gi}}}]`},

	"host-port": {settled: ready, spec: `
containers: [{name: main, args: [pause], ports: [{containerPort: 80, hostPort: 31777}, {containerPort: 81, hostPort: 31778, hostIP: 127.0.0.1}]}]`},

	"host-port-taken": {after: "host-port", settled: phase(v1.PodFailed), event: "NodePorts", spec: `
containers: [{name: main, args: [pause], ports: [{containerPort: 80, hostPort: 31778}]}]`},

	"host-port-of-other-protocol": {after: "host-port", settled: ready, spec: `
containers: [{name: main, args: [pause], ports: [{containerPort: 80, hostPort: 31777, protocol: UDP}]}]`},

	"out-of-memory": {settled: phase(v1.PodFailed), spec: `
restartPolicy: Never
containers: [{name: main, args: [exhaust, "128"], resources: {limits: {memory: 48Mi}}}]`},

	"cluster-level-resource": {settled: ready, spec: `
containers: [{name: main, args: [pause], resources: {limits: {example.com/licence: 1}}}]`},

	"hugepages": {settled: phase(v1.PodFailed), event: "OutOfhugepages-2Mi", spec: `
containers: [{name: main, args: [pause], resources: {requests: {cpu: 1m}, limits: {hugepages-2Mi: 4Mi, memory: 32Mi}}}]`},

	"too-much-cpu": {settled: phase(v1.PodFailed), event: "OutOfcpu", spec: `
containers: [{name: main, args: [pause], resources: {requests: {cpu: "1000"}}}]`},

	"too-much-memory": {settled: phase(v1.PodFailed), event: "OutOfmemory", spec: `
initContainers: [{name: first, args: [exit, "0"], resources: {requests: {memory: 100Ti}}}]
containers: [{name: main, args: [pause], resources: {requests: {memory: 1Mi}}}]`},

	"pod-level-resources": {settled: ready, spec: `
resources: {requests: {cpu: 20m, memory: 32Mi}, limits: {cpu: 200m, memory: 64Mi}}
containers: [{name: main, args: [pause]}, {name: other, args: [pause], resources: {limits: {memory: 16Mi}}}]`},

	"pod-level-guaranteed": {settled: ready, spec: `
resources: {limits: {cpu: 100m, memory: 64Mi}}
containers: [{name: main, args: [pause]}]`},

	"node-selector-mismatch": {settled: phase(v1.PodFailed), event: "NodeAffinity", spec: `
nodeSelector: {example.com/disk: ssd}
containers: [{name: main, args: [pause]}]`},

	"sysctl-forbidden": {settled: phase(v1.PodFailed), event: "SysctlForbidden", spec: `
securityContext: {sysctls: [{name: kernel.msgmax, value: "65536"}]}
containers: [{name: main, args: [pause]}]`},

	"other-os": {settled: phase(v1.PodFailed), event: "PodOSNotSupported", spec: `
os: {name: windows}
containers: [{name: main, args: [pause]}]`},

	"groups-policy": withFeatures(scenario{settled: phase(v1.PodFailed), event: "SupplementalGroupsPolicyNotSupported", spec: `
securityContext: {supplementalGroupsPolicy: Strict}
containers: [{name: main, args: [pause]}]`}, ready),

	"recursive-read-only": withFeatures(scenario{settled: waiting("main", "CreateContainerConfigError"), spec: `
containers:
- {name: main, args: [pause], volumeMounts: [{name: host, mountPath: /host, readOnly: true, recursiveReadOnly: Enabled}]}
volumes: [{name: host, hostPath: {path: /usr}}]`}, ready),

	"apparmor": {settled: phase(v1.PodFailed), event: "AppArmor", spec: `
securityContext: {appArmorProfile: {type: RuntimeDefault}}
containers: [{name: main, args: [pause]}]`},

	"windows-options": {settled: ready, spec: `
securityContext: {windowsOptions: {runAsUserName: ContainerUser}}
containers: [{name: main, args: [pause]}]`},

	"user-namespace": {settled: waiting("main", "ContainerCreating"), event: "FailedCreatePodSandBox", spec: `
hostUsers: false
containers: [{name: main, args: [pause]}]`},
}

// imageUsers are the users of images, by the name of the image.
var imageUsers = map[string]string{
	"uid": "1000", "uid-gid": "1000:4000", "unknown-uid": "1234", "unknown-uid-gid": "1234:4000", "name": "web", "name-group": "web:admin",
	"root-gid": "0:3000",
}

func userImage(name string) string { return "herald.test/user-" + name + ":1" }

// printIDs returns containers that print user and groups, one per image.
func printIDs(images ...string) (list string) {
	for _, name := range images {
		list += fmt.Sprintf("\n- {name: %s, image: %q, imagePullPolicy: Never, args: [exit, \"1\", --print-ids], "+
			"terminationMessagePolicy: FallbackToLogsOnError}", name, userImage(name))
	}
	return list
}

// withFeatures returns the scenario, or on a containerd that reports what its handlers support, since 2.0, one that settles
// otherwise.
func withFeatures(sc scenario, settled condition) scenario {
	if containerd.DefaultVersion() == containerd.Version2 {
		sc.settled, sc.event = settled, ""
	}
	return sc
}
