package handover_test

import (
	"bytes"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/heraldnode/herald/parity/internal/program"
)

// TestConvert_EveryField converts a configuration in which every field of this Kubernetes version is set: each is converted, or
// reported with a reason.
func TestConvert_EveryField(t *testing.T) {
	herald, err := program.Herald(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	config := reflect.New(reflect.TypeFor[kubeletconfig.KubeletConfiguration]())
	setSample(config.Elem(), 0)
	sample := config.Interface().(*kubeletconfig.KubeletConfiguration)
	sample.TypeMeta = metav1.TypeMeta{APIVersion: "kubelet.config.k8s.io/v1beta1", Kind: "KubeletConfiguration"}
	sample.ClusterDNS = []string{"10.0.0.10"}
	text, err := yaml.Marshal(sample)
	if err != nil {
		t.Fatal(err)
	}
	var converted, reported bytes.Buffer
	command := exec.CommandContext(t.Context(), herald, "config", "convert", "-")
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(text), &converted, &reported
	if err := command.Run(); err != nil {
		t.Fatalf("%v: %s\n%s", err, &reported, text)
	}
	fields := reflect.TypeFor[kubeletconfig.KubeletConfiguration]()
	for i := range fields.NumField() {
		name, _, _ := strings.Cut(fields.Field(i).Tag.Get("json"), ",")
		if name == "" { // the type
			continue
		}
		isConverted := strings.Contains("\n"+converted.String(), "\n"+name+":")
		isReported := strings.Contains(reported.String(), ": "+name+": ignored: ") || strings.Contains(reported.String(), ": "+name+".") ||
			strings.Contains(reported.String(), ": "+name+"[")
		if !isConverted && !isReported {
			t.Errorf("%s is neither converted nor reported", name)
		}
	}
	if t.Failed() {
		t.Logf("configuration:\n%s\nreport:\n%s\nconverted:\n%s", text, &reported, &converted)
	}
}

// setSample sets a value, and all that it contains, to something that is not the default.
func setSample(value reflect.Value, depth int) {
	if depth > 6 { // quantities have pointers to themselves
		return
	}
	switch value.Type() {
	case reflect.TypeFor[metav1.Duration]():
		value.Set(reflect.ValueOf(metav1.Duration{Duration: time.Minute}))
		return
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.TypeMeta]():
		return
	}
	switch value.Kind() {
	case reflect.String:
		value.SetString("sample")
	case reflect.Bool:
		value.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		value.SetInt(7)
	case reflect.Uint, reflect.Uint32, reflect.Uint64:
		value.SetUint(7)
	case reflect.Float64:
		value.SetFloat(0.5)
	case reflect.Pointer:
		value.Set(reflect.New(value.Type().Elem()))
		setSample(value.Elem(), depth+1)
	case reflect.Slice:
		value.Set(reflect.MakeSlice(value.Type(), 1, 1))
		setSample(value.Index(0), depth+1)
	case reflect.Map:
		key, entry := reflect.New(value.Type().Key()).Elem(), reflect.New(value.Type().Elem()).Elem()
		setSample(key, depth+1)
		setSample(entry, depth+1)
		value.Set(reflect.MakeMap(value.Type()))
		value.SetMapIndex(key, entry)
	case reflect.Struct:
		for i := range value.NumField() {
			if value.Type().Field(i).IsExported() {
				setSample(value.Field(i), depth+1)
			}
		}
	}
}
