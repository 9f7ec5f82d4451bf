package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The files of a sandbox's or container's folder.
const (
	sandboxFile   = "sandbox.json"
	containerFile = "container.json"
	aliveFile     = "alive"
	startedFile   = "started.json"
	exitFile      = "exit.json"
	shimLogFile   = "shim.log"
	rootFolder    = "root"
)

// sandboxRecord is sandbox.json.
type sandboxRecord struct {
	ID      string     `json:"id"`
	Created time.Time  `json:"created"`
	Stopped bool       `json:"stopped"`
	Config  wireConfig `json:"config"` // a PodSandboxConfig
}

// containerRecord is container.json: all that the shim needs.
type containerRecord struct {
	ID      string     `json:"id"`
	Sandbox string     `json:"sandbox"`
	Created time.Time  `json:"created"`
	Config  wireConfig `json:"config"` // a ContainerConfig
	LogPath string     `json:"logPath,omitempty"`
}

// wireConfig is a CRI message as it is sent: JSON would lose bytes of variables that are not UTF-8.
type wireConfig []byte

// startedRecord is started.json.
type startedRecord struct {
	Started time.Time `json:"started"`
	Main    identity  `json:"main"`
	Shim    identity  `json:"shim"`
}

// exitRecord is exit.json.
type exitRecord struct {
	Finished time.Time `json:"finished"`
	Code     int32     `json:"code"`
	Reason   string    `json:"reason"`
	Message  string    `json:"message,omitempty"`
}

// The words of containerd for why a container is not running, and the exit codes that go with them.
const (
	reasonCompleted  = "Completed"
	reasonError      = "Error"
	reasonStartError = "StartError"
	reasonUnknown    = "Unknown"

	codeStartError = 128
	codeKilled     = 137
)

func encodeConfig(config proto.Message) (wireConfig, error) {
	return proto.Marshal(config)
}

func (r *containerRecord) config() (*runtimeapi.ContainerConfig, error) {
	config := &runtimeapi.ContainerConfig{}
	return config, decodeConfig(r.Config, config)
}

func (r *sandboxRecord) config() (*runtimeapi.PodSandboxConfig, error) {
	config := &runtimeapi.PodSandboxConfig{}
	return config, decodeConfig(r.Config, config)
}

func decodeConfig(encoded wireConfig, config proto.Message) error {
	if err := proto.Unmarshal(encoded, config); err != nil {
		return fmt.Errorf("decode config: %w: %w", errCorrupt, err)
	}
	return nil
}

// writeRecord makes the file hold the record, completely or not at all, through a power cut.
func writeRecord(file string, record any) error {
	data, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("encode %s: %w", file, err)
	}
	if err := replaceFile(file, data); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}

func replaceFile(file string, data []byte) error {
	temporary, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*.tmp")
	if err != nil {
		return err
	}
	_, err = temporary.Write(data)
	err = errors.Join(err, temporary.Sync(), temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary.Name()))
	}
	return syncFolder(filepath.Dir(file))
}

// syncFolder has nothing to do on file systems that do not know the syncing of a folder.
func syncFolder(folder string) error {
	opened, err := os.Open(folder)
	if err != nil {
		return err
	}
	err = opened.Sync()
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EINVAL) {
		err = nil
	}
	return errors.Join(err, opened.Close())
}

// errCorrupt says that a file does not hold what was written to it.
var errCorrupt = errors.New("corrupt")

// readRecord fails with fs.ErrNotExist when there is no such file, and with errCorrupt when it is not a record.
func readRecord[T any](file string) (*T, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	record := new(T)
	if err := json.Unmarshal(data, record); err != nil {
		return nil, fmt.Errorf("decode %s: %w: %w", file, errCorrupt, err)
	}
	return record, nil
}
