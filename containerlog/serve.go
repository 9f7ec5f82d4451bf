package containerlog

import (
	"errors"
	"io"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
)

// writeTimeout is how long a client may take to read what was sent to it. It is long because people page through logs, and bounded
// because a client that never reads holds files open.
const writeTimeout = 30 * time.Minute

// Serve answers a request for the log of a container of the pod, whose status is that of the node. The query has the options.
func (l *Logs) Serve(w http.ResponseWriter, r *http.Request, pod *v1.Pod, container string) {
	options, err := ParseOptions(r.URL.Query())
	if err == nil {
		options.Container = container
		var stream *Stream
		if stream, err = l.Open(r.Context(), pod, options); err == nil {
			defer stream.Close()
			stream.serve(w, r)
			return
		}
	}
	WriteError(w, err)
}

// WriteError writes an error of Open or ParseOptions in the kubelet's form: the message alone as plain text.
func WriteError(w http.ResponseWriter, err error) {
	response := &Error{Code: http.StatusInternalServerError, Message: err.Error()}
	errors.As(err, &response)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(response.Code)
	_, _ = io.WriteString(w, response.Message)
}

// serve copies the stream to the client. It panics with http.ErrAbortHandler if the log was cut, so that the client does not take
// what it has for all (LOG-31).
func (s *Stream) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("X-Content-Type-Options", "nosniff") // a browser must not run what a container writes
	controller := http.NewResponseController(w)
	err := s.Copy(r.Context(), deadlineWriter{w, controller}, controller.Flush)
	if err == nil {
		return
	}
	s.logs.config.Logger.Debug("Aborted log", "podUID", s.uid, "containerID", s.id, "err", err)
	panic(http.ErrAbortHandler)
}

// deadlineWriter gives each write its own deadline.
type deadlineWriter struct {
	io.Writer
	controller *http.ResponseController
}

func (w deadlineWriter) Write(content []byte) (int, error) {
	_ = w.controller.SetWriteDeadline(time.Now().Add(writeTimeout)) // an httptest.ResponseRecorder has no deadlines
	return w.Writer.Write(content)
}
