package heraldtest

import (
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// call is one request, and where it leads.
type call struct {
	*http.Request
	at     key
	status bool // its status is meant, not the object
	format format
}

// answer is what a handler has to say to a call: a code and an object, or an error.
type answer func(call) (int, runtime.Object, error)

// routes is the server's door.
func (s *APIServer) routes() http.Handler {
	mux := http.NewServeMux()
	for _, r := range []*resource{s.pods, s.nodes, s.configMaps, s.secrets, s.services, s.events, s.leases} {
		collection := r.root() + r.name
		if r.namespaced {
			s.handle(mux, "GET "+collection, r, s.list)
			collection = r.root() + "namespaces/{namespace}/" + r.name
		}
		s.handle(mux, "GET "+collection, r, s.list)
		s.handle(mux, "POST "+collection, r, s.create)
		s.handle(mux, "DELETE "+collection+"/{name}", r, s.delete)
		for _, path := range []string{collection + "/{name}", collection + "/{name}/" + statusSubresource} {
			s.handle(mux, "GET "+path, r, s.get)
			s.handle(mux, "PUT "+path, r, s.put)
			s.handle(mux, "PATCH "+path, r, s.patch)
		}
	}
	s.handle(mux, "POST /api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", accountResource(), s.createToken)
	return mux
}

func (s *APIServer) handle(mux *http.ServeMux, pattern string, r *resource, respond answer) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, request *http.Request) {
		s.record(r, request)
		format, err := negotiate(s.codecs, request.Header.Get("Accept"))
		if err != nil {
			format, _ = negotiate(s.codecs, runtime.ContentTypeJSON)
			format.respond(w, 0, nil, err)
			return
		}
		c := call{
			Request: request, format: format,
			at:     key{resource: r, namespace: request.PathValue("namespace"), name: request.PathValue("name")},
			status: subresourceOf(request) == statusSubresource,
		}
		if isWatch(request) {
			s.watch(w, c)
			return
		}
		code, o, err := respond(c)
		format.respond(w, code, o, err)
	})
}

const statusSubresource = "status"

// subresourceOf is what follows the object's name in the path.
func subresourceOf(request *http.Request) string {
	_, after, _ := strings.Cut(request.Pattern, "/{name}/")
	return after
}

func (s *APIServer) get(c call) (int, runtime.Object, error) {
	found, err := s.store.get(c.at)
	return http.StatusOK, found, err
}

func (s *APIServer) create(c call) (int, runtime.Object, error) {
	posted := c.at.resource.empty()
	if err := s.decode(c, posted); err != nil {
		return 0, nil, err
	}
	created, err := s.postNew(c.at, posted)
	return http.StatusCreated, created, err
}

func (s *APIServer) put(c call) (int, runtime.Object, error) {
	wanted := c.at.resource.empty()
	if err := s.decode(c, wanted); err != nil {
		return 0, nil, err
	}
	stored, err := s.store.transition(c.at, func(old object) ([]object, error) {
		if uid := wanted.GetUID(); uid != "" && uid != old.GetUID() {
			return nil, conflict(c.at, fmt.Errorf("the object with UID %s is gone, this one has %s", uid, old.GetUID()))
		}
		return admitUpdate(c.at, c.status, wanted.DeepCopyObject().(object), old)
	})
	return http.StatusOK, stored, err
}

func (s *APIServer) patch(c call) (int, runtime.Object, error) {
	patch, err := readBody(c.Body)
	if err != nil {
		return 0, nil, err
	}
	kind, _, _ := mime.ParseMediaType(c.Header.Get("Content-Type"))
	stored, err := s.store.transition(c.at, func(old object) ([]object, error) {
		updated, err := patched(c.at, types.PatchType(kind), old, patch)
		if err != nil {
			return nil, err
		}
		return admitUpdate(c.at, c.status, updated, old)
	})
	return http.StatusOK, stored, err
}

func (s *APIServer) delete(c call) (int, runtime.Object, error) {
	options := &metav1.DeleteOptions{}
	if err := s.decode(c, options); err != nil {
		return 0, nil, err
	}
	deleted, err := s.store.transition(c.at, func(old object) ([]object, error) {
		return deletion(c.at, old, options)
	})
	return http.StatusOK, deleted, err
}

// decode reads the request's body, in whichever format, into an object; an empty body leaves it as it is.
func (s *APIServer) decode(c call, into runtime.Object) error {
	body, err := readBody(c.Body)
	if err != nil || len(body) == 0 {
		return err
	}
	decoded, _, err := s.codecs.UniversalDeserializer().Decode(body, nil, into)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if decoded != into {
		return apierrors.NewBadRequest("the body holds an object of another kind")
	}
	return nil
}

// maxBody is how much the API server reads of a request.
const maxBody = 3 << 20

func readBody(body io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(body, maxBody+1))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if len(data) > maxBody {
		return nil, apierrors.NewRequestEntityTooLargeError("limit is 3145728")
	}
	return data, nil
}
