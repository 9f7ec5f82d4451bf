package manifest_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/heraldnode/herald/source/manifest"
)

// scalars are texts of which the versions of YAML make different things.
var scalars = []string{
	"yes", "no", "on", "off", "y", "n", "Yes", "NO", "true", "True", "null", "~", "Null", "010", "0o10", "0x10", "0b10",
	"1_000", "1e3", "1E3", ".5", "1.", "+1", "-0", "1:30", "190:20:30", "2020-01-01", "2020-01-01T00:00:00Z", "=", "<<",
	"0777", "08", "1e400", "9223372036854775808", "18446744073709551616", "0.1", "1.0", "-1", "0", "1000000", "!!str 5",
	"!!int '5'", "'5'", "\"5\"", "a b", "a#b", "5 # five", "", "{}", "[]", "|\n    x", ">-\n    x\n    y",
}

// TestAManifestMeansWhatItMeansToTheKubelet compares with sigs.k8s.io/yaml, which the kubelet uses, what becomes of a
// plain text where a string, a number, a boolean or a quantity is wanted.
func TestAManifestMeansWhatItMeansToTheKubelet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(
			rapid.SampledFrom(scalars),
			rapid.StringMatching(`[-+]?[0-9_.:eExobinfaNyY]{1,8}`),
			rapid.StringMatching(`[a-zA-Z~=.]{1,5}`),
		).Draw(t, "text")
		field := rapid.SampledFrom([]string{"hostname", "priority", "hostPID", "cpu"}).Draw(t, "field")
		input := web + container + "  " + field + ": " + text + "\n"
		if field == "cpu" {
			input = web + container + "  overhead:\n    cpu: " + text + "\n"
		}
		want, wanted := kubelets(input)
		pods, err := manifest.Decode([]byte(input), fromFile)
		if !wanted {
			if err == nil {
				t.Fatalf("%s: accepted, which cannot be read as a pod", text)
			}
			return
		}
		if err != nil {
			if strings.Contains(err.Error(), "Invalid value") || strings.Contains(err.Error(), "is not a quantity") {
				return
			}
			t.Fatalf("%s: %v, but the kubelet reads %+v", text, err, want)
		}
		got, cpu := pods[0].Spec, want.Overhead.Cpu().DeepCopy()
		cpu.RoundUp(resource.Milli) // as defaults do
		if got.Hostname != want.Hostname || got.HostPID != want.HostPID || number(got.Priority) != number(want.Priority) ||
			got.Overhead.Cpu().Cmp(cpu) != 0 {
			t.Fatalf("%s: read as %+v, by the kubelet as %+v", text, got, want)
		}
	})
}

// kubelets is the spec as the kubelet's way of decoding has it, if it can be decoded.
func kubelets(input string) (v1.PodSpec, bool) {
	var pod v1.Pod
	text, err := yaml.YAMLToJSON([]byte(input))
	if err != nil || json.Unmarshal(text, &pod) != nil {
		return v1.PodSpec{}, false
	}
	return pod.Spec, true
}

func number(n *int32) string {
	if n == nil {
		return "none"
	}
	return strconv.Itoa(int(*n))
}
