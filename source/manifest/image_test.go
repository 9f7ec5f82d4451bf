package manifest_test

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestOnlyTheLatestTagIsPulledAlways(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0123456789abcdef", 4)
	tests := map[string]v1.PullPolicy{
		"web":                                       v1.PullAlways,
		"web:latest":                                v1.PullAlways,
		"team/web":                                  v1.PullAlways,
		"localhost/web":                             v1.PullAlways,
		"registry.example:5000/team/web":            v1.PullAlways,
		"[2001:db8::1]:5000/web":                    v1.PullAlways,
		"Registry/web":                              v1.PullAlways,
		"team_a.b/web":                              v1.PullAlways,
		"web:latest" + digest:                       v1.PullAlways,
		"web:1.25":                                  v1.PullIfNotPresent,
		"web:LATEST":                                v1.PullIfNotPresent,
		"registry.example:5000/web:v1":              v1.PullIfNotPresent,
		"web" + digest:                              v1.PullIfNotPresent,
		"web:1" + digest:                            v1.PullIfNotPresent,
		"not an image":                              v1.PullIfNotPresent,
		"Web":                                       v1.PullIfNotPresent,
		"web@sha256:short":                          v1.PullIfNotPresent,
		strings.Repeat("0123456789abcdef", 4):       v1.PullIfNotPresent,
		"a.example/" + strings.Repeat("x", 256):     v1.PullIfNotPresent,
		"web:" + strings.Repeat("x", 129):           v1.PullIfNotPresent,
		"a.example/x--y__z.a/b:latest":              v1.PullAlways,
		"a.example/x___y":                           v1.PullIfNotPresent,
		"web@md5:" + strings.Repeat("0", 32):        v1.PullIfNotPresent,
		"web@sha512:" + strings.Repeat("0", 128):    v1.PullIfNotPresent,
		"web:latest@md5:" + strings.Repeat("0", 32): v1.PullIfNotPresent,
	}
	for image, want := range tests {
		pod := decodeOne(t, web+"  containers: [{name: c, image: '"+image+"'}]\n", fromFile)
		if got := pod.Spec.Containers[0].ImagePullPolicy; got != want {
			t.Errorf("%s: %s, want %s", image, got, want)
		}
	}
	given := decodeOne(t, web+"  containers: [{name: c, image: web, imagePullPolicy: Never}]\n", fromFile)
	if got := given.Spec.Containers[0].ImagePullPolicy; got != v1.PullNever {
		t.Errorf("the author's Never became %s", got)
	}
}
