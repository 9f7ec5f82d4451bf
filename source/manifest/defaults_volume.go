package manifest

import (
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// volumeSources are the JSON names of the sources that a volume has set; a sound volume has one.
func volumeSources(volume *v1.Volume) []string {
	var set []string
	value := reflect.ValueOf(volume.VolumeSource)
	for i := range value.NumField() {
		if !value.Field(i).IsNil() {
			name, _, _ := strings.Cut(value.Type().Field(i).Tag.Get("json"), ",")
			set = append(set, name)
		}
	}
	return set
}

// setVolumeDefaults completes the sources that a static pod may have; the others are refused (CFG-10).
func setVolumeDefaults(volume *v1.Volume) {
	if len(volumeSources(volume)) == 0 {
		volume.EmptyDir = &v1.EmptyDirVolumeSource{}
	}
	if volume.Image != nil {
		setDefault(&volume.Image.PullPolicy, defaultPullPolicy(volume.Image.Reference))
	}
	if volume.HostPath != nil {
		setPointer(&volume.HostPath.Type, v1.HostPathUnset)
	}
	if volume.DownwardAPI != nil {
		setPointer(&volume.DownwardAPI.DefaultMode, v1.DownwardAPIVolumeSourceDefaultMode)
		setFileDefaults(volume.DownwardAPI.Items)
	}
	if volume.Projected != nil {
		setPointer(&volume.Projected.DefaultMode, v1.ProjectedVolumeSourceDefaultMode)
		for _, source := range volume.Projected.Sources {
			if source.DownwardAPI != nil {
				setFileDefaults(source.DownwardAPI.Items)
			}
		}
	}
	setNetworkVolumeDefaults(&volume.VolumeSource)
}

func setFileDefaults(files []v1.DownwardAPIVolumeFile) {
	for i := range files {
		setFieldRefDefaults(files[i].FieldRef)
	}
}

func setNetworkVolumeDefaults(source *v1.VolumeSource) {
	if source.ISCSI != nil {
		setDefault(&source.ISCSI.ISCSIInterface, "default")
	}
	if source.RBD != nil {
		setDefault(&source.RBD.RBDPool, "rbd")
		setDefault(&source.RBD.RadosUser, "admin")
		setDefault(&source.RBD.Keyring, "/etc/ceph/keyring")
	}
	if source.AzureDisk != nil {
		setPointer(&source.AzureDisk.CachingMode, v1.AzureDataDiskCachingReadWrite)
		setPointer(&source.AzureDisk.FSType, "ext4")
		setPointer(&source.AzureDisk.ReadOnly, false)
		setPointer(&source.AzureDisk.Kind, v1.AzureSharedBlobDisk)
	}
	if source.ScaleIO != nil {
		setDefault(&source.ScaleIO.StorageMode, "ThinProvisioned")
		setDefault(&source.ScaleIO.FSType, "xfs")
	}
}
