package page

import (
	"net/http"
	"time"
)

// writeTimeout bounds how long a browser may take for one part of a stream. A stream as a whole may last.
const writeTimeout = time.Minute

// patientWriter extends the write deadline of a response with each write.
type patientWriter struct{ http.ResponseWriter }

func (w patientWriter) Write(content []byte) (int, error) {
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(writeTimeout)) // a recorder has no deadlines
	return w.ResponseWriter.Write(content)
}

// Unwrap returns the writer for http.ResponseController.
func (w patientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
