package check

import (
	"fmt"
	"net/http"
	"strings"
)

// sendable says what keeps a request from being sent as its spec says it. What is sent all the same would be another
// request: of a header that is none, nothing or more than one line; of one without a host, the node's own (PRB-30).
func sendable(request *http.Request) error {
	switch scheme := request.URL.Scheme; {
	case scheme != "http" && scheme != "https":
		return fmt.Errorf("%q is no scheme that can be asked: want http or https", scheme)
	case request.URL.Host == "":
		return fmt.Errorf("%q has no host: let the path begin with a slash", request.URL)
	}
	for name, values := range request.Header {
		if name == "" || strings.ContainsFunc(name, isNoTokenRune) {
			return fmt.Errorf("%q cannot be the name of a header", name)
		}
		for _, value := range values {
			if strings.ContainsFunc(value, isControl) {
				return fmt.Errorf("header %s: %q has characters that no header can have", name, value)
			}
		}
	}
	return nil
}

// isNoTokenRune reports whether a name cannot have the character (RFC 9110, 5.6.2).
func isNoTokenRune(r rune) bool {
	alphanumeric := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
	return !alphanumeric && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }
