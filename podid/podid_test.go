package podid_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/podid"
)

func TestFullNameIsParsedOnlyWhenItHasOneUnderscoreAndTwoParts(t *testing.T) {
	tests := map[string]struct {
		written string
		want    podid.FullName
		bad     bool
	}{
		"name and namespace": {written: "web_shop", want: podid.FullName{Namespace: "shop", Name: "web"}},
		"no underscore":      {written: "web", bad: true},
		"no name":            {written: "_shop", bad: true},
		"no namespace":       {written: "web_", bad: true},
		"two underscores":    {written: "web_shop_x", bad: true},
		"empty":              {written: "", bad: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := podid.ParseFullName(test.written)
			if errors.Is(err, podid.ErrInvalidFullName) != test.bad || got != test.want {
				t.Fatalf("ParseFullName(%q) = %v, %v; want %v, bad %v", test.written, got, err, test.want, test.bad)
			}
		})
	}
}

func TestFullNameSurvivesWritingAndReading(t *testing.T) {
	label := rapid.StringMatching(`[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?`)
	rapid.Check(t, func(t *rapid.T) {
		want := podid.FullName{Namespace: label.Draw(t, "namespace"), Name: label.Draw(t, "name")}
		got, err := podid.ParseFullName(want.String())
		if err != nil || got != want {
			t.Fatalf("%v became %v, %v", want, got, err)
		}
	})
}

func TestFullNameOfAllocatesNothing(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"}}
	index := map[podid.FullName]*v1.Pod{podid.FullNameOf(pod): pod}
	if n := testing.AllocsPerRun(100, func() { _ = index[podid.FullNameOf(pod)] }); n != 0 {
		t.Fatalf("a look-up by full name made %v allocations", n)
	}
}

func TestOriginIsReadFromTheAnnotations(t *testing.T) {
	tests := map[string]struct {
		annotations    map[string]string
		static, mirror bool
	}{
		"none at all is an ordinary pod": {},
		"from the API server":            {annotations: map[string]string{podid.SourceAnnotation: "api"}},
		"from a file":                    {annotations: map[string]string{podid.SourceAnnotation: "file"}, static: true},
		"from a URL":                     {annotations: map[string]string{podid.SourceAnnotation: "http"}, static: true},
		"a mirror, even with no value":   {annotations: map[string]string{podid.MirrorAnnotation: ""}, mirror: true},
		"a mirror seen by the API source": {
			annotations: map[string]string{podid.MirrorAnnotation: "h", podid.SourceAnnotation: "api"}, mirror: true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: test.annotations}}
			if podid.IsStatic(pod) != test.static || podid.IsMirror(pod) != test.mirror {
				t.Fatalf("static %v, mirror %v; want %v, %v", podid.IsStatic(pod), podid.IsMirror(pod), test.static, test.mirror)
			}
		})
	}
}

func TestPM21AMirrorReflectsOnlyThePodWithItsNameAndHash(t *testing.T) {
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
		"not a mirror":       {pod("web", "shop", podid.HashAnnotation, "h1"), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := podid.IsMirrorOf(test.mirror, static); got != test.want {
				t.Fatalf("IsMirrorOf = %v, want %v", got, test.want)
			}
		})
	}
}
