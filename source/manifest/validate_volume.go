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

func (v *validator) validateVolumes(at *field.Path) {
	names := make(map[string]bool)
	for i := range v.spec.Volumes {
		volume, at := &v.spec.Volumes[i], at.Index(i)
		v.requireValid(at.Child("name"), volume.Name, validation.IsDNS1123Label)
		requireUnique(v, at.Child("name"), names, volume.Name)
		for _, other := range volumeSources(volume)[1:] {
			v.forbidden(at.Child(other), "a volume must have only one source")
		}
		v.validateLocalSource(at, &volume.VolumeSource)
		v.validateNetworkSource(at, volume)
	}
}

// validateLocalSource validates the sources that are local to the node.
func (v *validator) validateLocalSource(at *field.Path, source *v1.VolumeSource) {
	if source.EmptyDir != nil {
		v.validateEmptyDir(at.Child("emptyDir"), source.EmptyDir)
	}
	if source.HostPath != nil {
		v.validateHostPath(at.Child("hostPath"), source.HostPath)
	}
	if source.Image != nil {
		at := at.Child("image")
		v.validateImage(at.Child("reference"), source.Image.Reference)
		v.validatePullPolicy(at.Child("pullPolicy"), source.Image.PullPolicy)
	}
	if source.DownwardAPI != nil {
		at := at.Child("downwardAPI")
		v.validateMode(at.Child("defaultMode"), source.DownwardAPI.DefaultMode)
		for i, file := range source.DownwardAPI.Items {
			v.validateDownwardFile(at.Child("items").Index(i), file)
		}
	}
	if source.Projected != nil {
		v.validateProjected(at.Child("projected"), source.Projected)
	}
}

func (v *validator) validateEmptyDir(at *field.Path, dir *v1.EmptyDirVolumeSource) {
	if dir.SizeLimit != nil && dir.SizeLimit.Sign() < 0 {
		v.invalid(at.Child("sizeLimit"), dir.SizeLimit.String(), "must not be negative")
	}
	if !strings.HasPrefix(string(dir.Medium), string(v1.StorageMediumHugePagesPrefix)) {
		requireOneOf(v, at.Child("medium"), dir.Medium, v1.StorageMediumDefault, v1.StorageMediumMemory, v1.StorageMediumHugePages)
	}
}

func (v *validator) validateHostPath(at *field.Path, host *v1.HostPathVolumeSource) {
	if host.Path == "" {
		v.required(at.Child("path"), "")
		return
	}
	if !path.IsAbs(host.Path) {
		v.invalid(at.Child("path"), host.Path, "must be an absolute path")
	}
	v.forbidBacksteps(at.Child("path"), host.Path)
	requireOneOf(v, at.Child("type"), *host.Type,
		v1.HostPathUnset, v1.HostPathDirectoryOrCreate, v1.HostPathDirectory, v1.HostPathFileOrCreate, v1.HostPathFile,
		v1.HostPathSocket, v1.HostPathCharDev, v1.HostPathBlockDev)
}

// validateProjected validates downward API sources, the only ones without an API object.
func (v *validator) validateProjected(at *field.Path, projected *v1.ProjectedVolumeSource) {
	v.validateMode(at.Child("defaultMode"), projected.DefaultMode)
	paths := make(map[string]bool)
	for i, source := range projected.Sources {
		if source.DownwardAPI == nil {
			continue
		}
		for j, file := range source.DownwardAPI.Items {
			at := at.Child("sources").Index(i).Child("downwardAPI", "items").Index(j)
			v.validateDownwardFile(at, file)
			requireUnique(v, at.Child("path"), paths, file.Path)
		}
	}
}

func (v *validator) validateDownwardFile(at *field.Path, file v1.DownwardAPIVolumeFile) {
	v.require(at.Child("path"), file.Path)
	v.requireRelativePath(at.Child("path"), file.Path)
	if strings.HasPrefix(file.Path, "..") && !strings.HasPrefix(file.Path, "../") && file.Path != ".." {
		v.invalid(at.Child("path"), file.Path, "must not start with '..'")
	}
	v.validateMode(at.Child("mode"), file.Mode)
	switch {
	case file.FieldRef == nil && file.ResourceFieldRef == nil:
		v.required(at, "must have one of fieldRef and resourceFieldRef")
	case file.FieldRef != nil && file.ResourceFieldRef != nil:
		v.forbidden(at.Child("resourceFieldRef"), "may not be set together with fieldRef")
	}
	if file.FieldRef != nil {
		v.validateFieldRef(at.Child("fieldRef"), file.FieldRef, volumeFields)
	}
	if file.ResourceFieldRef != nil {
		if file.ResourceFieldRef.ContainerName == "" {
			v.required(at.Child("resourceFieldRef", "containerName"), "")
		}
		v.validateResourceFieldRef(at.Child("resourceFieldRef"), file.ResourceFieldRef)
	}
}

// validateNetworkSource validates storage that a node can use without the API server. Whether it can be mounted depends on
// the runtime.
func (v *validator) validateNetworkSource(at *field.Path, volume *v1.Volume) {
	v.validateRequiredParts(at, &volume.VolumeSource)
	if nfs := volume.NFS; nfs != nil && nfs.Path != "" && !path.IsAbs(nfs.Path) {
		v.invalid(at.Child("nfs", "path"), nfs.Path, "must be an absolute path")
	}
	if git := volume.GitRepo; git != nil {
		v.requireRelativePath(at.Child("gitRepo", "directory"), git.Directory)
	}
	if disk := volume.AzureDisk; disk != nil {
		v.validateAzureDisk(at.Child("azureDisk"), disk)
	}
	if iscsi := volume.ISCSI; iscsi != nil {
		v.validateISCSI(at.Child("iscsi"), volume)
	}
	if fc := volume.FC; fc != nil {
		v.validateFC(at.Child("fc"), fc)
	}
	if flex := volume.FlexVolume; flex != nil {
		v.validateFlexOptions(at.Child("flexVolume", "options"), flex.Options)
	}
	v.validateRemovedSource(at, &volume.VolumeSource)
}

// validateRequiredParts requires the fields that identify a source.
func (v *validator) validateRequiredParts(at *field.Path, source *v1.VolumeSource) {
	need := func(kind, name string, missing bool) {
		if missing {
			v.required(at.Child(kind, name), "")
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
		v.validateByte(at.Child("gcePersistentDisk", "partition"), s.Partition)
	}
	if s := source.AWSElasticBlockStore; s != nil {
		need("awsElasticBlockStore", "volumeID", s.VolumeID == "")
		v.validateByte(at.Child("awsElasticBlockStore", "partition"), s.Partition)
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

// validateByte requires a number from 0 to 255: a partition or a logical unit.
func (v *validator) validateByte(at *field.Path, value int32) {
	v.invalid(at, value, validation.IsInRange(int(value), 0, 255)...)
}

var iscsiName = regexp.MustCompile(`^(.*iqn\.\d{4}-\d{2}\.[[:alnum:].-]+:[^,;*&$|\s]+|eui.[[:alnum:]]{16}|naa.[[:alnum:]]{32})$`)

func (v *validator) validateISCSI(at *field.Path, volume *v1.Volume) {
	s := volume.ISCSI
	v.require(at.Child("targetPortal"), s.TargetPortal)
	v.requireValid(at.Child("iqn"), s.IQN, validateISCSIName)
	v.validateByte(at.Child("lun"), s.Lun)
	if (s.DiscoveryCHAPAuth || s.SessionCHAPAuth) && s.SecretRef == nil {
		v.required(at.Child("secretRef"), "")
	}
	if s.InitiatorName != nil {
		v.invalid(at.Child("initiatorName"), *s.InitiatorName, validateISCSIName(*s.InitiatorName)...)
		if len(volume.Name)+1+len(s.TargetPortal) > 64 {
			v.invalid(at.Child("initiatorName"), *s.InitiatorName,
				"may be set only if volume name and targetPortal have at most 63 characters in total")
		}
	}
}

func validateISCSIName(name string) []string {
	prefixed := strings.HasPrefix(name, "iqn") || strings.HasPrefix(name, "eui") || strings.HasPrefix(name, "naa")
	if prefixed && iscsiName.MatchString(name) {
		return nil
	}
	return []string{"must be an iqn, eui or naa name"}
}

func (v *validator) validateFC(at *field.Path, fc *v1.FCVolumeSource) {
	targets := at.Child("targetWWNs")
	switch {
	case len(fc.TargetWWNs) == 0 && len(fc.WWIDs) == 0:
		v.required(targets, "must have either targetWWNs or wwids")
	case len(fc.TargetWWNs) > 0 && len(fc.WWIDs) > 0:
		v.forbidden(targets, "may not be set together with wwids")
	case len(fc.TargetWWNs) > 0 && fc.Lun == nil:
		v.required(at.Child("lun"), "must be set with targetWWNs")
	}
	if len(fc.TargetWWNs) > 0 && fc.Lun != nil {
		v.validateByte(at.Child("lun"), *fc.Lun)
	}
}

func (v *validator) validateAzureDisk(at *field.Path, disk *v1.AzureDiskVolumeSource) {
	v.require(at.Child("diskName"), disk.DiskName)
	requireOneOfIfSet(v, at.Child("cachingMode"), disk.CachingMode,
		v1.AzureDataDiskCachingNone, v1.AzureDataDiskCachingReadOnly, v1.AzureDataDiskCachingReadWrite)
	requireOneOfIfSet(v, at.Child("kind"), disk.Kind, v1.AzureSharedBlobDisk, v1.AzureDedicatedBlobDisk, v1.AzureManagedDisk)
	prefix := "https://"
	if *disk.Kind == v1.AzureManagedDisk {
		prefix = "/subscriptions/"
	}
	v.requireValid(at.Child("diskURI"), disk.DataDiskURI, func(uri string) []string {
		if strings.HasPrefix(uri, prefix) {
			return nil
		}
		return []string{"must start with " + prefix + " for this kind of disk"}
	})
}

// validateFlexOptions rejects option names that are reserved for Kubernetes.
func (v *validator) validateFlexOptions(at *field.Path, options map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(options)) {
		domain, _, _ := strings.Cut(key, "/")
		domain = "." + strings.ToLower(domain)
		if strings.HasSuffix(domain, ".kubernetes.io") || strings.HasSuffix(domain, ".k8s.io") {
			v.invalid(at.Key(key), key, "kubernetes.io and k8s.io are reserved")
		}
	}
}

// validateRemovedSource validates sources whose drivers were removed from Kubernetes, but not from its API.
func (v *validator) validateRemovedSource(at *field.Path, source *v1.VolumeSource) {
	if s := source.Flocker; s != nil {
		if (s.DatasetName == "") == (s.DatasetUUID == "") {
			v.required(at.Child("flocker"), "must have either datasetName or datasetUUID")
		}
		if strings.Contains(s.DatasetName, "/") {
			v.invalid(at.Child("flocker", "datasetName"), s.DatasetName, "must not contain '/'")
		}
	}
	if s := source.Quobyte; s != nil {
		v.require(at.Child("quobyte", "volume"), s.Volume)
		v.requireValid(at.Child("quobyte", "registry"), s.Registry, validateHostPortList)
		if len(s.Tenant) > 64 {
			v.add(field.TooLong(at.Child("quobyte", "tenant"), "", 64))
		}
	}
	if s := source.StorageOS; s != nil {
		v.requireValid(at.Child("storageos", "volumeName"), s.VolumeName, validation.IsDNS1123Label)
		if s.VolumeNamespace != "" {
			v.invalid(at.Child("storageos", "volumeNamespace"), s.VolumeNamespace,
				validation.IsDNS1123Label(s.VolumeNamespace)...)
		}
	}
}

var hostPort = regexp.MustCompile(`^([^:\[\]]*|\[[^\[\]]*\]):[^:\[\]]*$`)

func validateHostPortList(list string) []string {
	for pair := range strings.SplitSeq(list, ",") {
		if !hostPort.MatchString(pair) {
			return []string{"must be host:port pairs separated by commas"}
		}
	}
	return nil
}
