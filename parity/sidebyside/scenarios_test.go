package sidebyside_test

import (
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/parity/containerd"
)

// delayedProbe passes when the container has had time to handle signals.
const delayedProbe = `{exec: {command: [/testpod, exit, "0"]}, timeoutSeconds: 10, periodSeconds: 1, initialDelaySeconds: 3}`

// longMessage exceeds the limits of termination messages and of logs used in their place.
var longMessage = strings.Repeat("0123456789", 1000)

// scenarios are all pods.
var scenarios = mergeScenarios(podScenarios, nodeScenarios)

func mergeScenarios(groups ...map[string]scenario) map[string]scenario {
	merged := map[string]scenario{}
	for _, group := range groups {
		maps.Copy(merged, group)
	}
	return merged
}

// podScenarios are what users do with pods.
var podScenarios = map[string]scenario{
	"plain": {settled: ready, spec: `
containers: [{name: main, args: [pause]}]`},

	"probed": {settled: ready, spec: `
containers:
- {name: main, args: [serve], ports: [{name: http, containerPort: 8080}],
   readinessProbe: {httpGet: {port: http, path: /readyz}, periodSeconds: 1}, livenessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}}`},

	"never-ready": {settled: all(running("main"), notReady), spec: `
containers:
- {name: main, args: [serve], readinessProbe: {httpGet: {port: 8080, path: /absent}, periodSeconds: 1}}
- {name: command, args: [pause],
   readinessProbe: {exec: {command: [/testpod, exit, "1", --print, "no luck"]}, timeoutSeconds: 10, periodSeconds: 1}}
- {name: tcp, args: [pause], readinessProbe: {tcpSocket: {port: 7}, periodSeconds: 1}}`},

	"liveness-fails": {settled: all(restarted("main"), running("main")), spec: `
terminationGracePeriodSeconds: 60
containers:
- name: main
  args: [pause]
  livenessProbe: {exec: {command: [/testpod, exit, "1"]}, timeoutSeconds: 10, periodSeconds: 1, initialDelaySeconds: 3, failureThreshold: 1}`},

	"startup-delayed": {settled: ready, spec: `
containers:
- {name: main, args: [pause], volumeMounts: [{name: s, mountPath: /s}],
   startupProbe: {exec: {command: [/testpod, flip, /s/flip]}, timeoutSeconds: 10, periodSeconds: 1}}
volumes: [{name: s, emptyDir: {}}]`},

	"startup-fails": {settled: all(restarted("main"), running("main")), spec: `
terminationGracePeriodSeconds: 60
containers:
- name: main
  args: [pause]
  startupProbe: {exec: {command: [/testpod, exit, "1"]}, timeoutSeconds: 10, periodSeconds: 1, initialDelaySeconds: 3, failureThreshold: 1}`},

	"job-succeeds": {settled: phase(v1.PodSucceeded), spec: `
restartPolicy: Never
containers: [{name: main, args: [exit, "0", --message, well]}]`},

	"job-fails": {settled: phase(v1.PodFailed), spec: `
restartPolicy: Never
containers: [{name: main, args: [exit, "3", --message, no luck]}, {name: other, args: [exit, "0"]}]`},

	"job-fails-with-log": {settled: phase(v1.PodFailed), spec: `
restartPolicy: Never
containers: [{name: main, args: [exit, "4", --print, out of ink], terminationMessagePolicy: FallbackToLogsOnError}]`},

	"job-succeeds-on-failure": {settled: phase(v1.PodSucceeded), spec: `
restartPolicy: OnFailure
containers: [{name: main, args: [exit, "0"]}]`},

	"job-fails-on-failure": {slow: true, settled: crashLoop("main"), spec: `
restartPolicy: OnFailure
containers: [{name: main, args: [exit, "5"]}, {name: done, args: [exit, "0"]}, {name: runs, args: [pause]}]`},

	"crash-loop": {slow: true, settled: crashLoop("main"), spec: `
containers: [{name: main, args: [exit, "7", --message, broken]}]`},

	"completes-always": {slow: true, settled: crashLoop("main"), spec: `
containers: [{name: main, args: [exit, "0"]}]`},

	"restart-rules": {slow: true, settled: crashLoop("main"), spec: `
restartPolicy: Never
containers:
- name: main
  args: [exit, "42"]
  restartPolicy: Never
  restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]`},

	"init": {settled: ready, spec: `
initContainers: [{name: first, args: [exit, "0"]}, {name: second, args: [exit, "0", --message, set]}]
containers: [{name: main, args: [pause]}]`},

	"init-fails": {settled: phase(v1.PodFailed), spec: `
restartPolicy: Never
initContainers: [{name: first, args: [exit, "1"]}, {name: second, args: [exit, "0"]}]
containers: [{name: main, args: [pause]}]`},

	"init-crash-loop": {slow: true, settled: crashLoop("first"), spec: `
initContainers: [{name: first, args: [exit, "1"]}]
containers: [{name: main, args: [pause]}]`},

	"sidecar": {settled: ready, spec: `
initContainers:
- {name: side, args: [serve, --port, "7000"], restartPolicy: Always,
   startupProbe: {tcpSocket: {port: 7000}, periodSeconds: 1, timeoutSeconds: 10, failureThreshold: 60},
   readinessProbe: {httpGet: {port: 7000, path: /readyz}, periodSeconds: 1, timeoutSeconds: 10}}
containers: [{name: main, args: [pause]}]`},

	"job-with-sidecar": {settled: phase(v1.PodSucceeded), spec: `
restartPolicy: Never
terminationGracePeriodSeconds: 60
initContainers: [{name: side, args: [pause], restartPolicy: Always}, {name: other, args: [pause], restartPolicy: Always}]
containers: [{name: main, args: [exit, "0", --after, 3s]}]`},

	"image-never-pulled": {settled: waiting("main", "ErrImageNeverPull"), spec: `
containers: [{name: main, image: "herald.test/absent:1", imagePullPolicy: Never}]`},

	"image-missing": {slow: true, settled: waiting("main", "ImagePullBackOff"), spec: `
containers: [{name: main, image: "127.0.0.1:1/absent:1"}, {name: other, args: [pause]}]`},

	"image-invalid-name": {settled: waiting("main", "InvalidImageName"), spec: `
containers: [{name: main, image: "UPPER:1"}]`},

	"env": {settled: ready, spec: `
containers:
- name: main
  args: [pause]
  env:
  - {name: COLOUR, valueFrom: {configMapKeyRef: {name: settings, key: colour}}}
  - {name: DOOR, valueFrom: {secretKeyRef: {name: passwords, key: door}}}
  - {name: NONE, valueFrom: {secretKeyRef: {name: absent, key: door, optional: true}}}
  - {name: ADDRESS, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
  - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
  envFrom: [{configMapRef: {name: settings}}, {secretRef: {name: absent, optional: true}}]`},

	"env-missing-configmap": {settled: waiting("main", "CreateContainerConfigError"), spec: `
containers: [{name: main, args: [pause], env: [{name: X, valueFrom: {configMapKeyRef: {name: absent, key: x}}}]}]`},

	"env-missing-key": {settled: waiting("main", "CreateContainerConfigError"), spec: `
containers: [{name: main, args: [pause], env: [{name: X, valueFrom: {secretKeyRef: {name: passwords, key: x}}}]}]`},

	"envfrom-missing-secret": {settled: waiting("main", "CreateContainerConfigError"), spec: `
containers: [{name: main, args: [pause], envFrom: [{secretRef: {name: absent}}]}]`},

	"volumes": {settled: ready, spec: `
containers:
- name: main
  args: [pause]
  volumeMounts:
  - {name: map, mountPath: /map, readOnly: true}
  - {name: map, mountPath: /single, subPath: colour}
  - {name: secret, mountPath: /secret}
  - {name: none, mountPath: /none}
  - {name: memory, mountPath: /memory}
  - {name: mixed, mountPath: /mixed, readOnly: true, recursiveReadOnly: IfPossible}
volumes:
- {name: map, configMap: {name: settings}}
- {name: secret, secret: {secretName: passwords}}
- {name: none, configMap: {name: absent, optional: true}}
- {name: memory, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
- name: mixed
  projected:
    sources:
    - {serviceAccountToken: {path: token}}
    - {downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}`},

	"volume-missing-configmap": {settled: waiting("main", "ContainerCreating"), event: "FailedMount", spec: `
containers: [{name: main, args: [pause], volumeMounts: [{name: map, mountPath: /map}]}]
volumes: [{name: map, configMap: {name: absent}}]`},

	"volume-missing-secret": {settled: waiting("main", "ContainerCreating"), event: "FailedMount", spec: `
containers: [{name: main, args: [pause], volumeMounts: [{name: map, mountPath: /map}]}]
volumes: [{name: map, secret: {secretName: absent}}]`},

	"host-network": {settled: ready, spec: `
hostNetwork: true
dnsPolicy: ClusterFirstWithHostNet
containers: [{name: main, args: [pause]}]`},

	"deadline": {slow: true, settled: phase(v1.PodFailed), spec: `
activeDeadlineSeconds: 25
terminationGracePeriodSeconds: 60
containers: [{name: main, args: [pause]}]`},

	"deleted": {actWhen: all(running("main"), terminated("other")), act: deletePod(nil), settled: terminated("main"), removed: true, spec: `
restartPolicy: OnFailure
containers:
- {name: main, args: [pause], lifecycle: {preStop: {exec: {command: [/testpod, sleep, 100ms]}}}}
- {name: other, args: [exit, "0"]}`},

	"deleted-ignores-sigterm": {actWhen: ready, act: deletePod(nil), settled: terminated("main"), removed: true, spec: `
terminationGracePeriodSeconds: 2
containers: [{name: main, args: [sleep, 1h, --ignore-term], startupProbe: ` + delayedProbe + `}]`},

	"deleted-by-force": {actWhen: ready, act: deletePod(new(int64(0))), settled: ready, removed: true, spec: `
containers: [{name: main, args: [pause]}]`},

	"deleted-prestop-fails": {actWhen: ready, act: deletePod(nil), settled: terminated("main"), removed: true, spec: `
terminationGracePeriodSeconds: 60
containers: [{name: main, args: [pause], lifecycle: {preStop: {exec: {command: [/testpod, exit, "1", --after, 1s]}}}}]`},

	"deleted-before-start": {
		slow: true, actWhen: waiting("main", "ImagePullBackOff"), act: deletePod(nil), settled: deleting, removed: true, spec: `
terminationGracePeriodSeconds: 5
containers: [{name: main, image: "127.0.0.1:1/absent:1"}]`,
	},

	"poststart-fails": {slow: true, settled: crashLoop("main"), spec: `
terminationGracePeriodSeconds: 60
containers: [{name: main, args: [pause], lifecycle: {postStart: {exec: {command: [/testpod, exit, "1", --after, 2s]}}}}]`},

	"poststart-tcp": {slow: true, killedEarly: true, settled: crashLoop("main"), event: "FailedPostStartHook", spec: `
terminationGracePeriodSeconds: 1
containers: [{name: main, args: [sleep, 1h, --ignore-term], lifecycle: {postStart: {tcpSocket: {port: 80}}}}]`},

	"deleted-prestop-tcp": {
		actWhen: ready, act: deletePod(nil), settled: terminated("main"), event: "FailedPreStopHook", removed: true, spec: `
terminationGracePeriodSeconds: 2
containers: [{name: main, args: [sleep, 1h, --ignore-term], startupProbe: ` + delayedProbe + `,
  lifecycle: {preStop: {tcpSocket: {port: 80}}}}]`,
	},

	"debugged": {actWhen: ready, act: addEphemeralContainers, settled: all(running("shell"), terminated("once")), spec: `
containers: [{name: main, args: [pause]}]`},

	"guaranteed": {settled: ready, spec: `
containers: [{name: main, args: [pause], resources: {limits: {cpu: 100m, memory: 32Mi}}}]`},

	"burstable": {settled: ready, spec: `
initContainers: [{name: first, args: [exit, "0"], resources: {requests: {cpu: 10m}}}]
containers:
- {name: main, args: [pause], resources: {requests: {cpu: 50m, memory: 16Mi}, limits: {memory: 32Mi}}}
- {name: other, args: [pause]}`},

	"gated": {actWhen: running("main"), act: openGate("example.com/gate"), settled: ready, spec: `
readinessGates: [{conditionType: example.com/gate}]
containers: [{name: main, args: [pause]}]`},

	"gated-forever": {settled: all(running("main"), containersReady, notReady), spec: `
readinessGates: [{conditionType: example.com/gate}]
containers: [{name: main, args: [pause]}]`},

	"labelled": {actWhen: ready, act: addLabel("more"), settled: all(ready, labelled("more")), spec: `
containers: [{name: main, args: [pause]}]`},

	"image-changed": {actWhen: ready, act: changeImage("main", containerd.SandboxImage), settled: all(ready, restarted("main")), spec: `
terminationGracePeriodSeconds: 60
containers: [{name: main, args: [pause], startupProbe: ` + delayedProbe + `}]`},

	"user": {settled: ready, spec: `
securityContext: {runAsUser: 1000, runAsGroup: 2000, fsGroup: 3000, supplementalGroups: [4000]}
containers:
- {name: main, args: [pause], volumeMounts: [{name: scratch, mountPath: /scratch}]}
- {name: other, args: [pause], securityContext: {runAsUser: 1001}}
volumes: [{name: scratch, emptyDir: {}}]`},

	"user-nonroot-violation": {settled: waiting("main", "CreateContainerConfigError"), spec: `
securityContext: {runAsNonRoot: true}
containers: [{name: main, args: [pause]}]`},

	"command-missing": {slow: true, settled: crashLoop("main"), spec: `
containers: [{name: main, command: [/absent]}]`},

	"command-missing-once": {settled: phase(v1.PodFailed), spec: `
restartPolicy: Never
containers: [{name: main, command: [/absent]}]`},

	"hostname-and-dns": {settled: ready, spec: `
hostname: till
subdomain: shop
hostAliases: [{ip: 10.1.2.3, hostnames: [oracle]}]
dnsPolicy: None
dnsConfig: {nameservers: [10.0.0.11], searches: [shop.test]}
containers: [{name: main, args: [pause]}]`},

	"sidecar-crashes": {slow: true, settled: crashLoop("side"), spec: `
initContainers: [{name: side, args: [exit, "1", --after, 1s], restartPolicy: Always}]
containers: [{name: main, args: [pause]}]`},

	"subpathexpr-missing-variable": {settled: waiting("main", "CreateContainerConfigError"), spec: `
containers: [{name: main, args: [pause], volumeMounts: [{name: s, mountPath: /s, subPathExpr: $(NOPE)}]}]
volumes: [{name: s, emptyDir: {}}]`},

	"hostpath-missing": {settled: waiting("main", "ContainerCreating"), event: "FailedMount", spec: `
containers: [{name: main, args: [pause], volumeMounts: [{name: s, mountPath: /s}]}]
volumes: [{name: s, hostPath: {path: /absent, type: Directory}}]`},

	"job-fails-with-long-log": {settled: phase(v1.PodFailed), spec: `
restartPolicy: Never
containers: [{name: main, args: [exit, "4", --print, ` + longMessage + `], terminationMessagePolicy: FallbackToLogsOnError}]`},

	"job-fails-with-long-message": {settled: phase(v1.PodFailed), spec: `
restartPolicy: Never
containers: [{name: main, args: [exit, "4", --message, ` + longMessage + `]}]`},

	"pull-secret-missing": {settled: ready, kubeletEvent: "FailedToRetrieveImagePullSecret", spec: `
imagePullSecrets: [{name: absent}]
containers: [{name: main, args: [pause]}]`},

	"pull-secret-missing-pull-fails": {slow: true, settled: waiting("main", "ImagePullBackOff"), kubeletEvent: "FailedToRetrieveImagePullSecret", spec: `
imagePullSecrets: [{name: absent}]
containers: [{name: main, image: "127.0.0.1:1/absent:2"}]`},

	"static": {static: true, settled: ready, spec: `
containers: [{name: main, args: [pause]}]`},

	"static-job": {static: true, settled: phase(v1.PodFailed), spec: `
restartPolicy: Never
containers: [{name: main, args: [exit, "1"]}]`},

	"probe-hangs": {settled: all(running("main"), notReady), spec: `
containers:
- {name: main, args: [pause], readinessProbe: {exec: {command: [/testpod, sleep, 1h]}, periodSeconds: 1, timeoutSeconds: 1}}`},

	"volume-missing-key": {settled: waiting("main", "ContainerCreating"), event: "FailedMount", spec: `
containers: [{name: main, args: [pause], volumeMounts: [{name: map, mountPath: /map}]}]
volumes: [{name: map, configMap: {name: settings, items: [{key: absent, path: x}]}}]`},
}
