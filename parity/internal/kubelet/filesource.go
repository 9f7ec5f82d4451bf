// Package kubelet opens those functions of the kubelet that it keeps to itself and that have a counterpart in Herald, so
// that both can be given the same input. It is for comparisons only.
package kubelet

import (
	"time"
	"unsafe" // for linkname

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	api "k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/capabilities"
	"k8s.io/kubernetes/pkg/kubelet/config"
)

// The kubelet's file source is linked only if somebody uses its package.
var _ = config.NewSourceFile

//go:linkname newSourceFile k8s.io/kubernetes/pkg/kubelet/config.newSourceFile
func newSourceFile(path string, node types.NodeName, period time.Duration, updates unsafe.Pointer) unsafe.Pointer

//go:linkname extractFromDir k8s.io/kubernetes/pkg/kubelet/config.(*sourceFile).extractFromDir
func extractFromDir(source unsafe.Pointer, logger klog.Logger, dir string) ([]*v1.Pod, error)

//go:linkname extractFromFile k8s.io/kubernetes/pkg/kubelet/config.(*sourceFile).extractFromFile
func extractFromFile(source unsafe.Pointer, logger klog.Logger, file string) (*v1.Pod, error)

// Manifests is the kubelet's file source without its loop.
type Manifests struct {
	source unsafe.Pointer
	dir    string
}

// NewManifests reads a folder as the kubelet on that node would.
func NewManifests(dir, node string) *Manifests {
	return &Manifests{source: newSourceFile(dir, types.NodeName(node), time.Hour, nil), dir: dir}
}

// List is what the kubelet does every 20 s.
func (m *Manifests) List() ([]*v1.Pod, error) { return extractFromDir(m.source, klog.Logger{}, m.dir) }

// Read is what it does when it is told that a file changed.
func (m *Manifests) Read(file string) (*v1.Pod, error) {
	return extractFromFile(m.source, klog.Logger{}, file)
}

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
