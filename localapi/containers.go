package localapi

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/heraldnode/herald/internal/streamwriter"
)

// subresource is a subresource of pods that Config.Containers serves.
type subresource struct {
	name, kind string // kind is that of the options
	verbs      []string
	// path is that of the kubelet's server, which names the container unless wholePod is set.
	path     string
	wholePod bool
	// translate returns the kubelet's parameters.
	translate func(query url.Values) url.Values
}

// subresources are in the order of discovery documents (KCT-4).
var subresources = []subresource{
	{name: "attach", kind: "PodAttachOptions", verbs: streamVerbs, path: "attach", translate: streamParameters},
	{name: "exec", kind: "PodExecOptions", verbs: streamVerbs, path: "exec", translate: streamParameters},
	{name: "log", kind: "Pod", verbs: []string{"get"}, path: "containerLogs", translate: logParameters},
	{
		name: "portforward", kind: "PodPortForwardOptions", verbs: streamVerbs, path: "portForward", wholePod: true,
		translate: portParameters,
	},
}

// streamVerbs are those of a web socket, which is a GET, and of SPDY, which is a POST.
var streamVerbs = []string{"create", "get"}

// subresourceOf returns the subresource of pods with the name if it is served, or nil.
func (s *Server) subresourceOf(k *kind, name string) *subresource {
	index := slices.IndexFunc(subresources, func(sub subresource) bool { return sub.name == name })
	if s.config.Containers == nil || k != kinds["pods"] || index < 0 {
		return nil
	}
	return &subresources[index]
}

// podSubresources returns the subresources of a kind that are served.
func (s *Server) podSubresources(k *kind) []subresource {
	if s.config.Containers == nil || k != kinds["pods"] {
		return nil
	}
	return subresources
}

func (sub *subresource) allows(method string) bool {
	verb := map[string]string{http.MethodGet: "get", http.MethodPost: "create"}[method]
	return slices.Contains(sub.verbs, verb)
}

// serveContainers passes the request to Config.Containers in the form of the kubelet's server (KCT-18).
func (s *Server) serveContainers(w http.ResponseWriter, r *http.Request, req *request, sub *subresource) {
	if !sub.allows(r.Method) {
		writeNotAllowed(w, req, r.Method)
		return
	}
	if !s.waitForSync(r.Context()) {
		writeError(w, apierrors.NewServiceUnavailable("the pods of this node are not known yet"))
		return
	}
	pod, found := s.store.get(req.kind, key{req.namespace, req.name}).(*v1.Pod)
	if !found {
		writeError(w, apierrors.NewNotFound(req.resource(), req.name))
		return
	}
	query := r.URL.Query()
	path := []string{"", sub.path, pod.Namespace, pod.Name}
	if !sub.wholePod {
		container, err := chooseContainer(pod, query.Get("container"))
		if err != nil {
			writeError(w, err)
			return
		}
		path = append(path, container)
	}
	translated := r.Clone(r.Context())
	translated.URL = &url.URL{Path: strings.Join(path, "/"), RawQuery: sub.translate(query).Encode()}
	translated.RequestURI = translated.URL.RequestURI()
	translated.Header.Del("Authorization") // the runtime must not see it
	writer := &statusWriter{ResponseWriter: w, request: req}
	defer writer.finish()
	streamwriter.Handler(s.config.Containers, streamWriteTimeout).ServeHTTP(writer, translated)
}

// chooseContainer returns the container that a request means (KCT-17).
func chooseContainer(pod *v1.Pod, name string) (string, *apierrors.StatusError) {
	names := containerNames(pod)
	switch {
	case name != "" && !slices.Contains(names, name):
		return "", apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", name, pod.Name))
	case name != "":
		return name, nil
	case len(pod.Spec.Containers) == 1:
		return pod.Spec.Containers[0].Name, nil
	default:
		return "", apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s, choose one of: %s", pod.Name, names))
	}
}

// containerNames returns the names in the order of the API server's message.
func containerNames(pod *v1.Pod) []string {
	var names []string
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			names = append(names, containers[i].Name)
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		names = append(names, pod.Spec.EphemeralContainers[i].Name)
	}
	return names
}

// isSet reports whether a boolean parameter is true, as the API server reads it.
func isSet(query url.Values, name string) bool {
	return query.Has(name) && query.Get(name) != "0" && !strings.EqualFold(query.Get(name), "false")
}

func streamParameters(query url.Values) url.Values {
	translated := url.Values{}
	for api, kubelet := range map[string]string{"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"} {
		if isSet(query, api) {
			translated.Set(kubelet, "1")
		}
	}
	if commands := query["command"]; len(commands) > 0 {
		translated["command"] = commands
	}
	return translated
}

func logParameters(query url.Values) url.Values {
	translated := url.Values{}
	for _, name := range []string{"follow", "previous", "timestamps"} {
		if isSet(query, name) {
			translated.Set(name, "true")
		}
	}
	for _, name := range []string{"sinceSeconds", "sinceTime", "tailLines", "limitBytes", "stream"} {
		if value := query.Get(name); value != "" {
			translated.Set(name, value)
		}
	}
	return translated
}

func portParameters(query url.Values) url.Values {
	translated := url.Values{}
	if ports := query["ports"]; len(ports) > 0 {
		translated.Set("port", strings.Join(ports, ","))
	}
	return translated
}

// streamWriteTimeout is how long a client may take to read what is sent to it.
const streamWriteTimeout = time.Minute

// maxErrorText bounds the text of an error that becomes a Status.
const maxErrorText = 50000

// statusWriter makes a Status of an error, which the kubelet's server writes as text (KCT-13). Other responses pass through, also
// connections that are taken over.
type statusWriter struct {
	http.ResponseWriter

	request *request
	code    int // of the error; 0 if there is none
	text    bytes.Buffer
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(code int) {
	if code >= http.StatusBadRequest {
		w.code = code
		return
	}
	w.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (w *statusWriter) Write(data []byte) (int, error) {
	if w.code == 0 {
		return w.ResponseWriter.Write(data)
	}
	w.text.Write(data[:min(len(data), maxErrorText-w.text.Len())])
	return len(data), nil
}

// Flush implements http.Flusher.
func (w *statusWriter) Flush() {
	if w.code == 0 {
		_ = http.NewResponseController(w.ResponseWriter).Flush() // fails if the client has gone
	}
}

// Hijack implements http.Hijacker.
func (w *statusWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

// finish writes the Status of an error with the reasons of the API server.
func (w *statusWriter) finish() {
	if w.code == 0 {
		return
	}
	text := strings.TrimSpace(w.text.String())
	for _, name := range []string{"Content-Length", "Content-Encoding", "Transfer-Encoding", "X-Content-Type-Options"} {
		w.Header().Del(name)
	}
	var err *apierrors.StatusError
	switch w.code {
	case http.StatusBadRequest:
		err = apierrors.NewBadRequest(text)
	case http.StatusInternalServerError:
		err = apierrors.NewInternalError(errors.New(text))
	default:
		err = apierrors.NewGenericServerResponse(w.code, "", w.request.resource(), w.request.name, text, 0, false)
		err.ErrStatus.Message = text
	}
	writeError(w.ResponseWriter, err)
}
