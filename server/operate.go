package server

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/view"
)

// Operator carries out requests that change something.
type Operator interface {
	// Restart stops a container, which the agent starts again by the pod's rules. It returns when the container has stopped.
	Restart(ctx context.Context, name podid.FullName, container, reason string) (view.Restart, error)
	// CheckProbe checks probes once, without effect on the pod. An empty container or kind means all.
	CheckProbe(ctx context.Context, name podid.FullName, container string, kind explain.ProbeKind) ([]view.ProbeCheck, error)
}

const (
	maxBody   = 64 << 10
	maxReason = 1024
)

// authorized refuses requests of clients that may only read.
func (s *Server) authorized(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := s.checkClient(r); err != nil {
			writeError(w, http.StatusForbidden, err.Error())
			return
		}
		if mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || mediaType != "application/json" {
			writeError(w, http.StatusUnsupportedMediaType, "the content type must be application/json")
			return
		}
		next(w, r)
	}
}

// authorizedDelete is authorized for requests without a body. A browser does not send a DELETE for another site unasked.
func (s *Server) authorizedDelete(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := s.checkClient(r); err != nil {
			writeError(w, http.StatusForbidden, err.Error())
			return
		}
		next(w, r)
	}
}

// checkClient returns an error if the client is neither root nor the agent's user, and has no token.
func (s *Server) checkClient(r *http.Request) error {
	if uid, isSocket := peerOf(r.Context()); isSocket {
		if agent := os.Geteuid(); uid != 0 && int(uid) != agent {
			return fmt.Errorf("user %d may not do this: it takes root or the agent's user %d", uid, agent)
		}
		return nil
	}
	if s.config.Token == "" {
		return errors.New("this is possible on the agent's unix socket only")
	}
	token, isBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !isBearer || subtle.ConstantTimeCompare([]byte(token), []byte(s.config.Token)) != 1 {
		return errors.New("over TCP this takes the bearer token in kubectl/token of the data directory; or use the unix socket")
	}
	return nil
}

// operation is the body of a request. Restarts have a reason, checks of probes have a kind.
type operation struct {
	Namespace string            `json:"namespace"`
	Pod       string            `json:"pod"`
	Container string            `json:"container"`
	Reason    string            `json:"reason,omitempty"`
	Kind      explain.ProbeKind `json:"kind,omitempty"`
}

// decodeOperation decodes the body and checks that pod and container exist. It writes the response if not.
func (s *Server) decodeOperation(w http.ResponseWriter, r *http.Request) (o operation, pod view.PodView, ok bool) {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&o); err != nil {
		writeError(w, http.StatusBadRequest, "decode the body: "+err.Error())
		return o, pod, false
	}
	if o.Namespace == "" || o.Pod == "" || len(o.Reason) > maxReason {
		writeError(w, http.StatusBadRequest, fmt.Sprintf("namespace and pod are required, and a reason has at most %d bytes", maxReason))
		return o, pod, false
	}
	pod, found := s.config.Inspector.Pod(r.Context(), o.name())
	if !found {
		writeError(w, http.StatusNotFound, s.notFound(r.Context(), o.name()))
		return o, pod, false
	}
	if o.Container != "" && !hasContainer(&pod, o.Container) {
		writeError(w, http.StatusNotFound, fmt.Sprintf("pod %s has no container %q, only %s", o.name().Key(), o.Container, containers(&pod)))
		return o, pod, false
	}
	return o, pod, true
}

func (o *operation) name() podid.FullName { return podid.FullName{Namespace: o.Namespace, Name: o.Pod} }

func hasContainer(pod *view.PodView, name string) bool {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == name {
			return true
		}
	}
	return false
}

// containers returns the names of the pod's containers for a message.
func containers(pod *view.PodView) string {
	var names []string
	for i := range pod.Spec.Containers {
		names = append(names, pod.Spec.Containers[i].Name)
	}
	return strings.Join(names, ", ")
}

func (s *Server) serveRestart(w http.ResponseWriter, r *http.Request) {
	o, pod, ok := s.decodeOperation(w, r)
	if !ok {
		return
	}
	if o.Container == "" {
		if len(pod.Spec.Containers) != 1 {
			writeError(w, http.StatusBadRequest, "container is required: one of "+containers(&pod))
			return
		}
		o.Container = pod.Spec.Containers[0].Name
	}
	s.operate(w, r, func(ctx context.Context) (any, error) {
		return s.config.Operator.Restart(ctx, o.name(), o.Container, o.Reason)
	})
}

func (s *Server) serveProbe(w http.ResponseWriter, r *http.Request) {
	o, _, ok := s.decodeOperation(w, r)
	if !ok {
		return
	}
	switch o.Kind {
	case "", explain.Startup, explain.Readiness, explain.Liveness:
	default:
		writeError(w, http.StatusBadRequest, fmt.Sprintf("kind: %q must be startup, readiness or liveness", o.Kind))
		return
	}
	s.operate(w, r, func(ctx context.Context) (any, error) {
		checks, err := s.config.Operator.CheckProbe(ctx, o.name(), o.Container, o.Kind)
		if checks == nil {
			checks = []view.ProbeCheck{}
		}
		return view.ProbeCheckList{APIVersion: view.APIVersion, Kind: "ProbeCheckList", Items: checks}, err
	})
}

// operate runs an operation, which may take as long as a grace period, and writes its result.
func (s *Server) operate(w http.ResponseWriter, r *http.Request, run func(context.Context) (any, error)) {
	controller := http.NewResponseController(w)
	_ = controller.SetWriteDeadline(time.Time{}) // an httptest.ResponseRecorder has no deadlines
	result, err := run(r.Context())
	_ = controller.SetWriteDeadline(time.Now().Add(writeTimeout))
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		writeError(w, http.StatusGatewayTimeout, err.Error())
	case err != nil:
		writeError(w, http.StatusConflict, err.Error())
	default:
		s.writeJSON(w, result)
	}
}
