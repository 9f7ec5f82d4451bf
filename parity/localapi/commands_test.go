package localapi_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/heraldnode/herald/heraldtest"
)

// command is a kubectl command line, and a regular expression that its output must match.
type command struct {
	line, want string
	fails      bool
}

// reads are commands that work, or fail for another reason than that the node is read-only.
var reads = []command{
	{"get pods", `(?m)^web-n1 +1/1 +Running +0 `, false},
	{"get pods -o wide", `(?m)^NAME +READY +STATUS +RESTARTS +AGE +IP +NODE +NOMINATED NODE +READINESS GATES\n(?s:.*)web-n1 .* n1 +<none>`, false},
	{"get pods -A -o wide --show-labels", `(?m)^default +web-n1 .* n1 +<none> +<none> +app=web$`, false},
	{"get all -o name", `pod/crash-n1\npod/web-n1`, false},
	{"get pods -l app=web -o name", `^pod/web-n1\n$`, false},
	{"get pods -l app!=web,app -o name", `^pod/crash-n1\n$`, false},
	{"get pods -l app=none", `No resources found`, false},
	{"get pods --field-selector metadata.name=web-n1 -o jsonpath={.items[*].status.phase}", `^Running$`, false},
	{"get pods --field-selector spec.nodeName!=n1", `No resources found`, false},
	{"get pods --field-selector spec.image=x", "field label not supported: spec.image", true},
	{"get pods --sort-by=.metadata.name -o custom-columns=N:.metadata.name --no-headers", `^crash-n1\nweb-n1\n$`, false},
	{"get pods --chunk-size=1 -o name", `^pod/crash-n1\npod/web-n1\n$`, false},
	{"get pod web-n1 -o go-template={{.metadata.name}}/{{.status.phase}}", `^web-n1/Running$`, false},
	{"get pod web-n1 -o yaml", `(?m)^kind: Pod$`, false},
	{"get pods -o yaml", `(?m)^kind: List$`, false},
	{"get pod absent", `pods "absent" not found`, true},
	{"get nodes -o wide", `(?m)^n1 +Ready +<none> .* process://`, false},
	{"get ns", `(?m)^default +Active`, false},
	{"get deployments", `doesn't have a resource type "deployments"`, true},
	{"get --raw /healthz", `^ok$`, false},
	{"get --raw /livez", `^ok$`, false},
	{"get --raw /nothing", `\(NotFound\)`, true},
	{"describe pod web-n1", `(?s)Name: +web-n1\n.*Events:.*Started`, false},
	{"describe pod crash-n1", `(?s)Exit Code: +3\n.*BackOff`, false},
	{"describe pods", `(?s)Name: +crash-n1\n.*Name: +web-n1\n`, false},
	{"describe node n1", `(?s)Name: +n1\n.*Ready +True.*Non-terminated Pods: +\(2 in total\)`, false},
	{"events", `(?m)BackOff +Pod/crash-n1`, false},
	{"events --types=Warning", `(?m)^.*Warning +BackOff`, false},
	{"events --for pod/web-n1", `Started +Pod/web-n1`, false},
	{"get events --field-selector involvedObject.name=web-n1", `pod/web-n1`, false},
	{"api-resources", `(?m)^pods +po +v1 +true +Pod$`, false},
	{"api-versions", `(?m)^v1$`, false},
	{"version", `Server Version: v1\.36`, false},
	{"explain pod.spec", `(?s)KIND: +Pod.*containers\t<\[\]Container> -required-`, false},
	{"explain pod.spec.containers.livenessProbe", `(?s)KIND: +Pod.*failureThreshold\t<integer>`, false},
	{"explain node.status --recursive", `(?s)nodeInfo\t<NodeSystemInfo>.*kubeletVersion\t<string>`, false},
	{"auth can-i list pods", "^yes", false},
	{"auth can-i delete pods", "^no", true},
	{"auth can-i create deployments.apps", `(?m)^no`, true},
	{"auth can-i --list", `(?m)^pods +\[\] +\[\] +\[get list watch\]`, false},
	{"auth whoami", "herald:owner", false},
	{"wait pod/web-n1 --for=condition=Ready --timeout=2m", `pod/web-n1 condition met`, false},
	{"wait pod -l app=web --for=jsonpath={.status.phase}=Running --timeout=2m", `pod/web-n1 condition met`, false},
	{"wait pod/absent --for=create --timeout=1s", "timed out", true},
}

// readOnly is the answer to a request that would change a pod (KCT-30). kubectl edit prints the message only.
const readOnly = `(?s)(MethodNotAllowed|could not be patched).*this node is read-only; its pods come from its manifests`

// writes are commands that are refused. pod.yaml is a new pod, web.yaml has a changed label of an existing one.
var writes = []string{
	"create -f pod.yaml",
	"create -f pod.yaml --validate=false",
	"run x --image=y",
	"apply -f pod.yaml",
	"apply -f web.yaml",
	"apply -f pod.yaml --server-side",
	"apply -f web.yaml --server-side --force-conflicts",
	"replace -f web.yaml",
	"edit pod web-n1",
	`patch pod web-n1 -p {"metadata":{"labels":{"a":"b"}}}`,
	`patch pod web-n1 --type=merge -p {"metadata":{"labels":{"a":"b"}}}`,
	`patch pod web-n1 --type=json -p [{"op":"remove","path":"/metadata/labels"}]`,
	"label pod web-n1 a=b",
	"annotate pod web-n1 a=b",
	"delete pod web-n1",
	"delete pod web-n1 --force --grace-period=0",
	"delete pods --all",
	"scale pod web-n1 --replicas=2",
}

func TestKubectl(t *testing.T) {
	withKubectls(t, func(t *testing.T, n *node) {
		const host = `{name: main, image: host, command: [sleep, "1000"]}`
		n.writeFile("pod.yaml", fmt.Sprintf(manifest, "new", host, true))
		n.writeFile("web.yaml", strings.Replace(fmt.Sprintf(manifest, "web-n1", host, true), "app: web-n1", "app: other", 1))
		for _, object := range []string{"pod/web-n1", "node/n1"} {
			heraldtest.Eventually(t, func() error { // the agent may not have read the manifests yet
				if out, err := n.kubectl("wait", object, "--for=condition=Ready", "--timeout=1m"); err != nil {
					return fmt.Errorf("wait: %w: %s", err, out)
				}
				return nil
			})
		}
		heraldtest.Eventually(t, func() error {
			out, _ := n.kubectl("get", "pod", "crash-n1")
			if !strings.Contains(out, "CrashLoopBackOff") {
				return fmt.Errorf("got %s", out)
			}
			return nil
		})
		commands := append([]command{{"--token=wrong get pods", "logged in", true}}, reads...)
		for _, line := range writes {
			commands = append(commands, command{line, readOnly, true})
		}
		for _, c := range commands {
			out, err := n.kubectl(strings.Fields(c.line)...)
			if !regexp.MustCompile(c.want).MatchString(out) || (err != nil) != c.fails {
				t.Errorf("kubectl %s: got %v and\n%swant it to match %s", c.line, err, out, c.want)
			}
		}
		if out, err := n.kubectl("get", "pods", "--show-labels", "--no-headers"); strings.Count(out, "\n") != 2 || !strings.Contains(out, "app=web") {
			t.Errorf("the pods have changed: %v: %s", err, out)
		}
	})
}
