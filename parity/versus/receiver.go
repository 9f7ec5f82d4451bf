package versus

import (
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Message is what a receiver was told about one alert.
type Message struct {
	// Side is who told.
	Side string `json:"side"`
	// At is when the message arrived.
	At       time.Time         `json:"at"`
	Labels   map[string]string `json:"labels"`
	Firing   bool              `json:"firing"`
	StartsAt time.Time         `json:"startsAt"`
	EndsAt   time.Time         `json:"endsAt"` // in the future if it fires; zero from a webhook then
}

// receiver is Alertmanager for each Prometheus, and a webhook for each agent. It records every message.
type receiver struct {
	server  *http.Server
	address string

	mu       sync.Mutex // guards messages
	messages []Message
}

func startReceiver() (*receiver, error) {
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	r := &receiver{address: listener.Addr().String()}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{side}/api/v2/alerts", r.fromPrometheus)
	mux.HandleFunc("POST /{side}/webhook", r.fromHerald)
	r.server = &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = r.server.Serve(listener) }() // returns only on Close
	return r, nil
}

// postedAlert has the fields that Alertmanager's API and its webhooks have in common.
type postedAlert struct {
	Status   string            `json:"status"` // only in webhooks
	Labels   map[string]string `json:"labels"`
	StartsAt time.Time         `json:"startsAt"`
	EndsAt   time.Time         `json:"endsAt"`
}

func (r *receiver) fromPrometheus(w http.ResponseWriter, req *http.Request) {
	at := time.Now()
	var alerts []postedAlert
	if err := json.NewDecoder(req.Body).Decode(&alerts); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for _, a := range alerts {
		r.record(req, at, a, a.EndsAt.After(at))
	}
}

func (r *receiver) fromHerald(w http.ResponseWriter, req *http.Request) {
	at := time.Now()
	var message struct {
		Alerts []postedAlert `json:"alerts"`
	}
	if err := json.NewDecoder(req.Body).Decode(&message); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for _, a := range message.Alerts {
		r.record(req, at, a, a.Status == "firing")
	}
}

func (r *receiver) record(req *http.Request, at time.Time, a postedAlert, firing bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.messages = append(r.messages, Message{
		Side: req.PathValue("side"), At: at, Labels: a.Labels, Firing: firing, StartsAt: a.StartsAt, EndsAt: a.EndsAt,
	})
}

// about returns the messages of a side about an alert, in the order of their arrival.
func (r *receiver) about(side string, a alertID) []Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(func(yield func(Message) bool) {
		for _, m := range r.messages {
			if m.Side == side && a.matches(m.Labels) && !yield(m) {
				return
			}
		}
	})
}

func (r *receiver) all() []Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.messages)
}

// alertID selects the alert of one object: a pod, or a node.
type alertID struct{ name, pod, node string }

func (a alertID) matches(labels map[string]string) bool {
	return labels["alertname"] == a.name && (a.pod == "" || labels["pod"] == a.pod) && (a.node == "" || labels["node"] == a.node)
}

func (a alertID) String() string { return strings.TrimSpace(a.name + " " + a.pod + a.node) }
