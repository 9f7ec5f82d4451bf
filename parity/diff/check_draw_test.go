package diff_test

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// drawVisit draws a probe as somebody might write it, and a server as somebody might run it.
func drawVisit(d *drawer) visit {
	v := visit{Get: v1.HTTPGetAction{
		Path: oneOf(d, "", "/", "healthz", "/a?b=c", "/a?b=%20#frag", "?q", "#f", "/%zz", "/a b", "//user:pw@x/y", "/é", "*",
			"/a/../b//c", "http://other.example/x", "mailto:x", "http:", ":80", "/a\x7f", "/%2F", "/a;b", "a:b", "/a?b c"),
		Host:   oneOf(d, "", "", "", "localhost", "127.0.0.1", "LOCALHOST", "no such host"),
		Scheme: oneOf(d, "", v1.URISchemeHTTP, v1.URISchemeHTTP, v1.URISchemeHTTPS, "http", "FTP"),
	}}
	switch d.IntN(20) {
	case 0:
		v.Get.Port = intstr.FromString(oneOf(d, "web", "other", "80x", "-1", "99999999999", "65536"))
	case 1:
		v.Get.Port = intstr.FromInt32(oneOf(d, int32(-1), 65536, 1<<30))
	}
	for range d.IntN(4) {
		v.Get.HTTPHeaders = append(v.Get.HTTPHeaders, v1.HTTPHeader{Name: drawHeaderName(d), Value: drawHeaderValue(d)})
	}
	for range 1 + d.IntN(3) {
		v.Replies = append(v.Replies, drawReply(d))
	}
	return v
}

func drawHeaderName(d *drawer) string {
	return oneOf(d, "Host", "host", "User-Agent", "user-agent", "Accept", "accept", "X-A", "x-a", "Cookie", "Authorization",
		"Connection", "Content-Length", "Transfer-Encoding", "Trailer", "Expect", "Accept-Encoding", "Range", "Referer", "Te", "Bad Name", "")
}

func drawHeaderValue(d *drawer) string {
	return oneOf(d, "", "", "a", "text/html", "shop.example", "shop.example:8080", "close", "keep-alive", "ü", " padded ", "a, b", "5",
		"chunked", "two\r\nlines", "nul\x00", "tab\t", "100-continue", "[::1]:80", "a b/c")
}

func drawReply(d *drawer) reply {
	if d.chance(5) {
		return reply{Deaf: d.chance(50), Text: oneOf(d, "", "garbage\r\n\r\n", "HTTP/1.1 ")}
	}
	code := oneOf(d, 200, 200, 204, 301, 302, 302, 303, 304, 307, 308, 400, 404, 500, 503, 100+d.IntN(500))
	body := oneOf(d, "", "body", "\xff\xfe", "\x1f\x8b\x08", strings.Repeat("x", 10<<10-1+d.IntN(3)))
	var headers []string
	if d.chance(60) {
		headers = append(headers, "Location: "+oneOf(d, "/", "/x?y=z#f", "x", "?q", "//127.0.0.1:1/", "http://elsewhere.example/", "http://",
			"HTTP://localhost/", "https://127.0.0.1:1/", "/%zz", "http://[::1", "ftp://127.0.0.1/", "/a b", "mailto:x"))
	}
	if d.chance(10) {
		headers = append(headers, oneOf(d, "Set-Cookie: a=b", "Connection: keep-alive", "Content-Encoding: gzip", "Trailer: X"))
	}
	r := reasonable(code, body, headers...)
	switch d.IntN(12) {
	case 0:
		r.Text = strings.Replace(r.Text, "HTTP/1.1", "HTTP/1.0", 1)
	case 1:
		r.Text = r.Text[:d.IntN(len(r.Text))]
	case 2:
		r.Text = strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", d.IntN(9)) + r.Text
	case 3:
		r.Text = strings.Replace(r.Text, "Content-Length", "X-Length", 1)
	}
	return r
}
