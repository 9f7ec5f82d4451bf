package manifest

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkNetworkSource looks at storage that a node can reach without the API server. Which of it can be mounted is for the
// runtime to say.
func (c *checker) checkNetworkSource(at *field.Path, volume *v1.Volume) {
	c.checkRequiredParts(at, &volume.VolumeSource)
	if nfs := volume.NFS; nfs != nil && nfs.Path != "" && !path.IsAbs(nfs.Path) {
		c.invalid(at.Child("nfs", "path"), nfs.Path, "must be an absolute path")
	}
	if git := volume.GitRepo; git != nil {
		c.descending(at.Child("gitRepo", "directory"), git.Directory)
	}
	if disk := volume.AzureDisk; disk != nil {
		c.checkAzureDisk(at.Child("azureDisk"), disk)
	}
	if iscsi := volume.ISCSI; iscsi != nil {
		c.checkISCSI(at.Child("iscsi"), volume)
	}
	if fc := volume.FC; fc != nil {
		c.checkFC(at.Child("fc"), fc)
	}
	if flex := volume.FlexVolume; flex != nil {
		c.checkFlexOptions(at.Child("flexVolume", "options"), flex.Options)
	}
	c.checkUnusualSource(at, &volume.VolumeSource)
}

// checkRequiredParts looks for the parts without which a source names nothing.
func (c *checker) checkRequiredParts(at *field.Path, source *v1.VolumeSource) {
	need := func(kind, name string, missing bool) {
		if missing {
			c.required(at.Child(kind, name), "")
		}
	}
	if s := source.NFS; s != nil {
		need("nfs", "server", s.Server == "")
		need("nfs", "path", s.Path == "")
	}
	if s := source.GitRepo; s != nil {
		need("gitRepo", "repository", s.Repository == "")
	}
	if s := source.GCEPersistentDisk; s != nil {
		need("gcePersistentDisk", "pdName", s.PDName == "")
		c.checkByte(at.Child("gcePersistentDisk", "partition"), s.Partition)
	}
	if s := source.AWSElasticBlockStore; s != nil {
		need("awsElasticBlockStore", "volumeID", s.VolumeID == "")
		c.checkByte(at.Child("awsElasticBlockStore", "partition"), s.Partition)
	}
	if s := source.RBD; s != nil {
		need("rbd", "monitors", len(s.CephMonitors) == 0)
		need("rbd", "image", s.RBDImage == "")
	}
	if s := source.CephFS; s != nil {
		need("cephfs", "monitors", len(s.Monitors) == 0)
	}
	if s := source.Cinder; s != nil {
		need("cinder", "volumeID", s.VolumeID == "")
	}
	if s := source.VsphereVolume; s != nil {
		need("vsphereVolume", "volumePath", s.VolumePath == "")
	}
	if s := source.PhotonPersistentDisk; s != nil {
		need("photonPersistentDisk", "pdID", s.PdID == "")
	}
	if s := source.PortworxVolume; s != nil {
		need("portworxVolume", "volumeID", s.VolumeID == "")
	}
	if s := source.ScaleIO; s != nil {
		need("scaleIO", "gateway", s.Gateway == "")
		need("scaleIO", "system", s.System == "")
		need("scaleIO", "volumeName", s.VolumeName == "")
	}
	if s := source.FlexVolume; s != nil {
		need("flexVolume", "driver", s.Driver == "")
	}
}

// checkByte requires a number that fits into a byte: a partition or a logical unit.
func (c *checker) checkByte(at *field.Path, value int32) {
	c.invalid(at, value, validation.IsInRange(int(value), 0, 255)...)
}

var iscsiName = regexp.MustCompile(`^(.*iqn\.\d{4}-\d{2}\.[[:alnum:].-]+:[^,;*&$|\s]+|eui.[[:alnum:]]{16}|naa.[[:alnum:]]{32})$`)

func (c *checker) checkISCSI(at *field.Path, volume *v1.Volume) {
	s := volume.ISCSI
	c.present(at.Child("targetPortal"), s.TargetPortal)
	c.named(at.Child("iqn"), s.IQN, isISCSIName)
	c.checkByte(at.Child("lun"), s.Lun)
	if (s.DiscoveryCHAPAuth || s.SessionCHAPAuth) && s.SecretRef == nil {
		c.required(at.Child("secretRef"), "")
	}
	if s.InitiatorName != nil {
		c.invalid(at.Child("initiatorName"), *s.InitiatorName, isISCSIName(*s.InitiatorName)...)
		if len(volume.Name)+1+len(s.TargetPortal) > 64 {
			c.invalid(at.Child("initiatorName"), *s.InitiatorName,
				"may be set only if the names of volume and targetPortal have at most 63 characters together")
		}
	}
}

func isISCSIName(name string) []string {
	prefixed := strings.HasPrefix(name, "iqn") || strings.HasPrefix(name, "eui") || strings.HasPrefix(name, "naa")
	if prefixed && iscsiName.MatchString(name) {
		return nil
	}
	return []string{"must be an iqn, eui or naa name"}
}

func (c *checker) checkFC(at *field.Path, fc *v1.FCVolumeSource) {
	targets := at.Child("targetWWNs")
	switch {
	case len(fc.TargetWWNs) == 0 && len(fc.WWIDs) == 0:
		c.required(targets, "either targetWWNs or wwids")
	case len(fc.TargetWWNs) > 0 && len(fc.WWIDs) > 0:
		c.forbidden(targets, "may not be set together with wwids")
	case len(fc.TargetWWNs) > 0 && fc.Lun == nil:
		c.required(at.Child("lun"), "with targetWWNs")
	}
	if len(fc.TargetWWNs) > 0 && fc.Lun != nil {
		c.checkByte(at.Child("lun"), *fc.Lun)
	}
}

func (c *checker) checkAzureDisk(at *field.Path, disk *v1.AzureDiskVolumeSource) {
	c.present(at.Child("diskName"), disk.DiskName)
	oneOfIfSet(c, at.Child("cachingMode"), disk.CachingMode,
		v1.AzureDataDiskCachingNone, v1.AzureDataDiskCachingReadOnly, v1.AzureDataDiskCachingReadWrite)
	oneOfIfSet(c, at.Child("kind"), disk.Kind, v1.AzureSharedBlobDisk, v1.AzureDedicatedBlobDisk, v1.AzureManagedDisk)
	prefix := "https://"
	if *disk.Kind == v1.AzureManagedDisk {
		prefix = "/subscriptions/"
	}
	c.named(at.Child("diskURI"), disk.DataDiskURI, func(uri string) []string {
		if strings.HasPrefix(uri, prefix) {
			return nil
		}
		return []string{"must start with " + prefix + " for this kind of disk"}
	})
}

// checkFlexOptions keeps options out of the names that Kubernetes uses for its own.
func (c *checker) checkFlexOptions(at *field.Path, options map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(options)) {
		domain, _, _ := strings.Cut(key, "/")
		domain = "." + strings.ToLower(domain)
		if strings.HasSuffix(domain, ".kubernetes.io") || strings.HasSuffix(domain, ".k8s.io") {
			c.invalid(at.Key(key), key, "kubernetes.io and k8s.io are reserved")
		}
	}
}

// checkUnusualSource looks at sources whose drivers are gone from Kubernetes but not from its API.
func (c *checker) checkUnusualSource(at *field.Path, source *v1.VolumeSource) {
	if s := source.Flocker; s != nil {
		if (s.DatasetName == "") == (s.DatasetUUID == "") {
			c.required(at.Child("flocker"), "either datasetName or datasetUUID")
		}
		if strings.Contains(s.DatasetName, "/") {
			c.invalid(at.Child("flocker", "datasetName"), s.DatasetName, "must not contain '/'")
		}
	}
	if s := source.Quobyte; s != nil {
		c.present(at.Child("quobyte", "volume"), s.Volume)
		c.named(at.Child("quobyte", "registry"), s.Registry, isHostPortList)
		if len(s.Tenant) > 64 {
			c.add(field.TooLong(at.Child("quobyte", "tenant"), "", 64))
		}
	}
	if s := source.StorageOS; s != nil {
		c.named(at.Child("storageos", "volumeName"), s.VolumeName, validation.IsDNS1123Label)
		if s.VolumeNamespace != "" {
			c.invalid(at.Child("storageos", "volumeNamespace"), s.VolumeNamespace,
				validation.IsDNS1123Label(s.VolumeNamespace)...)
		}
	}
}

var hostPort = regexp.MustCompile(`^([^:\[\]]*|\[[^\[\]]*\]):[^:\[\]]*$`)

func isHostPortList(list string) []string {
	for pair := range strings.SplitSeq(list, ",") {
		if !hostPort.MatchString(pair) {
			return []string{"must be host:port pairs separated by commas"}
		}
	}
	return nil
}
