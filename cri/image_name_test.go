package cri_test

import (
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestANameOfAnImageIsCheckedBeforeItIsAskedFor(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("a", 64)
	cases := map[string]string{ // what the runtime is asked for, "" if nothing
		"busybox":                  "busybox:latest",
		"host":                     "host:latest",
		"busybox:1.36":             "busybox:1.36",
		"team/app":                 "team/app:latest",
		"127.0.0.1:5000/app":       "127.0.0.1:5000/app:latest",
		"my_host.io/app":           "my_host.io/app:latest",
		"localhost/app":            "localhost/app:latest",
		"[fd00::1]:5000/app:v1":    "[fd00::1]:5000/app:v1",
		"Registry/app":             "Registry/app:latest", // a host, as no path has capitals
		"app" + digest:             "app" + digest,
		"reg.io/a/b__c/d-e.f:V1_x": "reg.io/a/b__c/d-e.f:V1_x",
		"reg.io/app:v1" + digest:   "reg.io/app:v1" + digest,
		strings.Repeat("a", 63):    strings.Repeat("a", 63) + ":latest",
		strings.Repeat("a/", 120):  "",

		"":                                     "",
		" busybox":                             "",
		"App":                                  "",
		"reg.io/App":                           "",
		"app:":                                 "",
		"app:-v1":                              "",
		"app:" + strings.Repeat("v", 129):      "",
		"app@sha256:beef":                      "",
		"app@md5:" + strings.Repeat("a", 32):   "",
		"app//x":                               "",
		"-app":                                 "",
		"reg.io:port/app":                      "",
		"https://reg.io/app":                   "",
		"a..b/c:1":                             "",
		strings.Repeat("a", 64):                "",
		"reg.io/" + strings.Repeat("a", 256):   "",
		"app\n":                                "",
		"reg.io/app:v1@sha256:" + digest[1:70]: "",
	}
	for image, want := range cases {
		t.Run(image, func(t *testing.T) {
			inWorld(t, func(w *world) {
				err := w.start(w.Context(), wants(image))
				if want == "" {
					if reasonOf(err) != "InvalidImageName" || w.pulls() != 0 {
						w.Errorf("it ended with %s: %v", reasonOf(err), err)
					}
					prefix := "Warning InspectFailed spec.containers{web}: Failed to apply default image tag "
					if story := w.events(); !strings.HasPrefix(story[0], prefix) {
						w.Errorf("events: %q", story)
					}
					return
				}
				if err != nil {
					w.Fatal(err)
				}
				asked := requests[*runtimeapi.PullImageRequest](w.fake)[0].Image
				if asked.Image != want || asked.UserSpecifiedImage != image {
					w.Errorf("asked for %v", asked)
				}
			})
		})
	}
}
