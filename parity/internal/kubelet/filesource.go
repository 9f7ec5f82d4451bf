// Package kubelet exposes unexported functions of the kubelet that have a counterpart in Herald, so that both can be run
// on the same input. It is for comparisons only.
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

// The linker keeps the functions below only if their package is used.
var _ = config.NewSourceFile

//go:linkname newSourceFile k8s.io/kubernetes/pkg/kubelet/config.newSourceFile
func newSourceFile(path string, node types.NodeName, period time.Duration, updates unsafe.Pointer) unsafe.Pointer

//go:linkname extractFromDir k8s.io/kubernetes/pkg/kubelet/config.(*sourceFile).extractFromDir
func extractFromDir(source unsafe.Pointer, logger klog.Logger, dir string) ([]*v1.Pod, error)

// FileSource is the kubelet's file source without its loop.
type FileSource struct {
	source unsafe.Pointer
	dir    string
}

// NewFileSource returns a source that reads dir as the kubelet on that node does.
func NewFileSource(dir, node string) *FileSource {
	return &FileSource{source: newSourceFile(dir, types.NodeName(node), time.Hour, nil), dir: dir}
}

// List reads the whole directory, as the kubelet does every 20 s.
func (s *FileSource) List() ([]*v1.Pod, error) { return extractFromDir(s.source, klog.Logger{}, s.dir) }

//go:linkname tryDecodeSinglePod k8s.io/kubernetes/pkg/kubelet/config.tryDecodeSinglePod
func tryDecodeSinglePod(klog.Logger, []byte, func(klog.Logger, *api.Pod) error) (parsed bool, pod *v1.Pod, err error)

//go:linkname applyDefaults k8s.io/kubernetes/pkg/kubelet/config.applyDefaults
func applyDefaults(logger klog.Logger, pod *api.Pod, source string, isFile bool, node types.NodeName) error

// DecodePod decodes, defaults and validates one manifest as the kubelet's file source does.
func DecodePod(data []byte, path, node string) (*v1.Pod, error) {
	capabilities.Initialize(capabilities.Capabilities{AllowPrivileged: true}) // as the kubelet does when it starts
	_, pod, err := tryDecodeSinglePod(klog.Logger{}, data, func(logger klog.Logger, pod *api.Pod) error {
		return applyDefaults(logger, pod, path, true, types.NodeName(node))
	})
	return pod, err
}
