package podid_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/podid"
)

func TestParseFullName(t *testing.T) {
	tests := map[string]struct {
		input     string
		want      podid.FullName
		isInvalid bool
	}{
		"name and namespace": {input: "web_shop", want: podid.FullName{Namespace: "shop", Name: "web"}},
		"no underscore":      {input: "web", isInvalid: true},
		"no name":            {input: "_shop", isInvalid: true},
		"no namespace":       {input: "web_", isInvalid: true},
		"two underscores":    {input: "web_shop_x", isInvalid: true},
		"empty":              {input: "", isInvalid: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := podid.ParseFullName(test.input)
			if errors.Is(err, podid.ErrInvalidFullName) != test.isInvalid || got != test.want {
				t.Fatalf("%q: got %v, %v, want %v, invalid %v", test.input, got, err, test.want, test.isInvalid)
			}
		})
	}
}

func TestFullName_RoundTrip(t *testing.T) {
	label := rapid.StringMatching(`[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?`)
	rapid.Check(t, func(t *rapid.T) {
		want := podid.FullName{Namespace: label.Draw(t, "namespace"), Name: label.Draw(t, "name")}
		got, err := podid.ParseFullName(want.String())
		if err != nil || got != want {
			t.Fatalf("got %v, %v, want %v", got, err, want)
		}
	})
}

func TestFullNameOf_DoesNotAllocate(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"}}
	index := map[podid.FullName]*v1.Pod{podid.FullNameOf(pod): pod}
	if n := testing.AllocsPerRun(100, func() { _ = index[podid.FullNameOf(pod)] }); n != 0 {
		t.Fatalf("got %v allocations, want 0", n)
	}
}

func TestIsStaticIsMirror(t *testing.T) {
	tests := map[string]struct {
		annotations    map[string]string
		static, mirror bool
	}{
		"no annotations":          {},
		"from API server":         {annotations: map[string]string{podid.SourceAnnotation: "api"}},
		"from file":               {annotations: map[string]string{podid.SourceAnnotation: "file"}, static: true},
		"from URL":                {annotations: map[string]string{podid.SourceAnnotation: "http"}, static: true},
		"empty mirror annotation": {annotations: map[string]string{podid.MirrorAnnotation: ""}, mirror: true},
		"mirror from API server": {
			annotations: map[string]string{podid.MirrorAnnotation: "h", podid.SourceAnnotation: "api"}, mirror: true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: test.annotations}}
			if podid.IsStatic(pod) != test.static || podid.IsMirror(pod) != test.mirror {
				t.Fatalf("got static %v, mirror %v, want %v, %v", podid.IsStatic(pod), podid.IsMirror(pod), test.static, test.mirror)
			}
		})
	}
}

func TestPM21_IsMirrorOf(t *testing.T) {
	pod := func(name, namespace, annotation, hash string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: namespace, Annotations: map[string]string{annotation: hash},
		}}
	}
	static := pod("web", "shop", podid.HashAnnotation, "h1")
	tests := map[string]struct {
		mirror *v1.Pod
		want   bool
	}{
		"same name and hash": {pod("web", "shop", podid.MirrorAnnotation, "h1"), true},
		"other hash":         {pod("web", "shop", podid.MirrorAnnotation, "h2"), false},
		"other name":         {pod("db", "shop", podid.MirrorAnnotation, "h1"), false},
		"other namespace":    {pod("web", "bank", podid.MirrorAnnotation, "h1"), false},
		"not a mirror pod":   {pod("web", "shop", podid.HashAnnotation, "h1"), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := podid.IsMirrorOf(test.mirror, static); got != test.want {
				t.Fatalf("got %v, want %v", got, test.want)
			}
		})
	}
}
