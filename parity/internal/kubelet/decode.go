package kubelet

import (
	_ "unsafe" // for linkname

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	api "k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/capabilities"
)

//go:linkname tryDecodeSinglePod k8s.io/kubernetes/pkg/kubelet/config.tryDecodeSinglePod
func tryDecodeSinglePod(klog.Logger, []byte, func(klog.Logger, *api.Pod) error) (parsed bool, pod *v1.Pod, err error)

//go:linkname applyDefaults k8s.io/kubernetes/pkg/kubelet/config.applyDefaults
func applyDefaults(logger klog.Logger, pod *api.Pod, source string, isFile bool, node types.NodeName) error

// DecodePod reads one manifest as the kubelet's file source does: decoding, defaults, validation.
func DecodePod(data []byte, path, node string) (*v1.Pod, error) {
	capabilities.Initialize(capabilities.Capabilities{AllowPrivileged: true}) // as the kubelet does at its start
	_, pod, err := tryDecodeSinglePod(klog.Logger{}, data, func(logger klog.Logger, pod *api.Pod) error {
		return applyDefaults(logger, pod, path, true, types.NodeName(node))
	})
	return pod, err
}
