package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
)

// observeTimeout bounds the wait for a new observation of a pod.
const observeTimeout = 10 * time.Second

// Proxy connects clients with streams of the runtime. All methods are safe for concurrent use.
type Proxy struct {
	config   Config
	sessions *sessions

	terminatedGrace time.Duration // a test shortens it
}

// New returns a Proxy without streams.
func New(config Config) (*Proxy, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Proxy{config: config, sessions: newSessions(config), terminatedGrace: terminatedGrace}, nil
}

// Target is what the path of a request names.
type Target struct {
	Namespace, Pod string
	// UID is optional. Only port-forward compares it with that of the pod (STR-3).
	UID types.UID
	// Container is empty for port-forward.
	Container string
}

// ServeExec runs the command in the query with the client's streams. It returns when the stream has ended.
func (p *Proxy) ServeExec(w http.ResponseWriter, r *http.Request, target Target) {
	p.serve(w, r, target, func(r *http.Request) (opener, error) {
		o, err := parseOptions(r.URL.Query())
		command := r.URL.Query()["command"]
		return func(ctx context.Context, pod *v1.Pod) (remote, error) {
			url, err := p.withContainer(ctx, pod, target.Container, func(id observed.ContainerID) (string, error) {
				return p.config.Runtime.StreamExec(ctx, &runtimeapi.ExecRequest{
					ContainerId: id.ID, Cmd: command, Tty: o.tty, Stdin: o.stdin, Stdout: o.stdout, Stderr: o.stderr,
				})
			})
			if errors.Is(err, errNotRunning) {
				err = fmt.Errorf("container not found (%q)", target.Container)
			}
			return remote{url: url, options: o}, err
		}, err
	})
}

// ServeAttach connects the client with the main process of a container. It returns when the stream has ended.
func (p *Proxy) ServeAttach(w http.ResponseWriter, r *http.Request, target Target) {
	p.serve(w, r, target, func(r *http.Request) (opener, error) {
		o, err := parseOptions(r.URL.Query())
		return func(ctx context.Context, pod *v1.Pod) (remote, error) {
			tty, found := hasTTY(pod, target.Container)
			url, err := p.withContainer(ctx, pod, target.Container, func(id observed.ContainerID) (string, error) {
				return p.config.Runtime.StreamAttach(ctx, &runtimeapi.AttachRequest{
					ContainerId: id.ID, Tty: tty, Stdin: o.stdin, Stdout: o.stdout, Stderr: o.stderr,
				})
			})
			if !found || errors.Is(err, errNotRunning) {
				err = fmt.Errorf("container %s not found in pod %s", target.Container, fullName(pod))
			}
			return remote{url: url, options: options{stdin: o.stdin, stdout: o.stdout, stderr: o.stderr, tty: tty}}, err
		}, err
	})
}

// ServePortForward connects the client with ports of a pod. It returns when the stream has ended.
func (p *Proxy) ServePortForward(w http.ResponseWriter, r *http.Request, target Target) {
	p.serve(w, r, target, func(r *http.Request) (opener, error) {
		ports, err := parsePorts(r)
		return func(ctx context.Context, pod *v1.Pod) (remote, error) {
			if target.UID != "" && target.UID != pod.UID {
				return remote{}, &Error{Code: http.StatusNotFound, Message: "pod not found"}
			}
			sandbox, err := p.findSandbox(ctx, pod)
			if err != nil {
				return remote{}, err
			}
			url, err := p.config.Runtime.StreamPortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: sandbox, Port: ports})
			return remote{url: url, isPortForward: true}, err
		}, err
	})
}

// ServeRun runs a command without a stream and responds with its output. The kubelet labels it as JSON, whatever it is.
func (p *Proxy) ServeRun(w http.ResponseWriter, r *http.Request, target Target) {
	pod, found := p.config.Pod(target.Namespace, target.Pod)
	if !found {
		writeError(w, errPodNotFound)
		return
	}
	command := strings.Split(r.URL.Query().Get("cmd"), " ")
	var exitCode int
	output, err := p.withContainer(r.Context(), pod, target.Container, func(id observed.ContainerID) (_ string, err error) {
		var output []byte
		output, exitCode, err = p.config.Runtime.Exec(r.Context(), id, command)
		return string(output), err
	})
	switch {
	case errors.Is(err, errNotRunning):
		err = fmt.Errorf("container not found (%q)", target.Container)
	case err == nil && exitCode != 0:
		err = fmt.Errorf("command '%s' exited with %d: %s", strings.Join(command, " "), exitCode, output)
	}
	if err != nil {
		writeError(w, &Error{Code: http.StatusInternalServerError, Message: err.Error()})
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, output)
}

// remote is a stream that the runtime has prepared.
type remote struct {
	url string
	options
	isPortForward bool
}

// opener asks the runtime for a stream of the pod.
type opener func(ctx context.Context, pod *v1.Pod) (remote, error)

// serve answers a request for a stream. What is wrong with the request is told before the runtime is asked: a URL that is not used
// occupies a place in the runtime for a minute (STR-6).
func (p *Proxy) serve(w http.ResponseWriter, r *http.Request, target Target, parse func(*http.Request) (opener, error)) {
	if !isUpgrade(r.Header) {
		writeError(w, &Error{Code: http.StatusBadRequest, Message: "Upgrade request required"})
		return
	}
	if r.ProtoMajor != 1 {
		writeError(w, &Error{Code: http.StatusInternalServerError, Message: "a stream needs HTTP/1.1"}) // SRV-6
		return
	}
	open, err := parse(r)
	if err != nil {
		writeError(w, &Error{Code: http.StatusBadRequest, Message: err.Error()})
		return
	}
	pod, found := p.config.Pod(target.Namespace, target.Pod)
	if !found {
		writeError(w, errPodNotFound)
		return
	}
	ctx, end, err := p.sessions.begin(r.Context(), podid.UID(pod.UID))
	if err != nil {
		writeError(w, err)
		return
	}
	defer end(nil)
	stream, err := open(ctx, pod)
	if err != nil {
		writeError(w, err)
		return
	}
	if err := p.connect(w, r.WithContext(ctx), stream); err != nil {
		p.config.Logger.Debug("Stream failed", "pod", fullName(pod), "container", target.Container, "err", err)
		writeError(w, err)
	}
}

var errNotRunning = errors.New("the container is not running")

// withContainer calls open with the running instance of a container. The node's own observation names it: nothing is listed (STR-19). If
// the observation is outdated, because the container has just started or was restarted, the pod is observed once more.
func (p *Proxy) withContainer(
	ctx context.Context, pod *v1.Pod, name string, open func(observed.ContainerID) (string, error),
) (string, error) {
	uid := podid.UID(pod.UID)
	last, found := runningContainer(p.config.PodCache.Get(uid), name)
	var err error
	if found {
		var url string
		if url, err = open(last); grpcstatus.Code(err) != codes.NotFound {
			return url, err
		}
	}
	newer, observeErr := p.observe(ctx, uid)
	if observeErr != nil {
		return "", observeErr
	}
	id, isRunning := runningContainer(newer, name)
	switch {
	case !isRunning:
		return "", errNotRunning
	case id == last:
		return "", err
	default:
		return open(id)
	}
}

// findSandbox returns the pod's sandbox, from a newer observation if need be.
func (p *Proxy) findSandbox(ctx context.Context, pod *v1.Pod) (string, error) {
	uid := podid.UID(pod.UID)
	if id, found := readySandbox(p.config.PodCache.Get(uid)); found {
		return id, nil
	}
	newer, err := p.observe(ctx, uid)
	if err != nil {
		return "", err
	}
	if id, found := readySandbox(newer); found {
		return id, nil
	}
	return "", fmt.Errorf("pod not found (%q)", fullName(pod))
}

func (p *Proxy) observe(ctx context.Context, uid podid.UID) (*observed.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	return p.config.PodCache.GetNewerThan(ctx, uid, time.Now())
}
