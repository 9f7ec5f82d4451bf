package manifest

import (
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (c *checker) checkVolumes(at *field.Path) {
	names := make(map[string]bool)
	for i := range c.spec.Volumes {
		volume, at := &c.spec.Volumes[i], at.Index(i)
		c.named(at.Child("name"), volume.Name, validation.IsDNS1123Label)
		unique(c, at.Child("name"), names, volume.Name)
		for _, more := range volumeSources(volume)[1:] {
			c.forbidden(at.Child(more), "a volume has one source only")
		}
		c.checkLocalSource(at, &volume.VolumeSource)
		c.checkNetworkSource(at, volume)
	}
}

// checkLocalSource looks at the sources that need nothing but the node.
func (c *checker) checkLocalSource(at *field.Path, source *v1.VolumeSource) {
	if source.EmptyDir != nil {
		c.checkEmptyDir(at.Child("emptyDir"), source.EmptyDir)
	}
	if source.HostPath != nil {
		c.checkHostPath(at.Child("hostPath"), source.HostPath)
	}
	if source.Image != nil {
		at := at.Child("image")
		c.checkImage(at.Child("reference"), source.Image.Reference)
		c.checkPullPolicy(at.Child("pullPolicy"), source.Image.PullPolicy)
	}
	if source.DownwardAPI != nil {
		at := at.Child("downwardAPI")
		c.mode(at.Child("defaultMode"), source.DownwardAPI.DefaultMode)
		for i, file := range source.DownwardAPI.Items {
			c.checkDownwardFile(at.Child("items").Index(i), file)
		}
	}
	if source.Projected != nil {
		c.checkProjected(at.Child("projected"), source.Projected)
	}
}

func (c *checker) checkEmptyDir(at *field.Path, dir *v1.EmptyDirVolumeSource) {
	if dir.SizeLimit != nil && dir.SizeLimit.Sign() < 0 {
		c.invalid(at.Child("sizeLimit"), dir.SizeLimit.String(), "must not be negative")
	}
	if !strings.HasPrefix(string(dir.Medium), string(v1.StorageMediumHugePagesPrefix)) {
		oneOf(c, at.Child("medium"), dir.Medium, v1.StorageMediumDefault, v1.StorageMediumMemory, v1.StorageMediumHugePages)
	}
}

func (c *checker) checkHostPath(at *field.Path, host *v1.HostPathVolumeSource) {
	if host.Path == "" {
		c.required(at.Child("path"), "")
		return
	}
	if !path.IsAbs(host.Path) {
		c.invalid(at.Child("path"), host.Path, "must be an absolute path")
	}
	c.noBacksteps(at.Child("path"), host.Path)
	oneOf(c, at.Child("type"), *host.Type,
		v1.HostPathUnset, v1.HostPathDirectoryOrCreate, v1.HostPathDirectory, v1.HostPathFileOrCreate, v1.HostPathFile,
		v1.HostPathSocket, v1.HostPathCharDev, v1.HostPathBlockDev)
}

// checkProjected looks at the sources that need no API object, which are those of the downward API.
func (c *checker) checkProjected(at *field.Path, projected *v1.ProjectedVolumeSource) {
	c.mode(at.Child("defaultMode"), projected.DefaultMode)
	paths := make(map[string]bool)
	for i, source := range projected.Sources {
		if source.DownwardAPI == nil {
			continue
		}
		for j, file := range source.DownwardAPI.Items {
			at := at.Child("sources").Index(i).Child("downwardAPI", "items").Index(j)
			c.checkDownwardFile(at, file)
			unique(c, at.Child("path"), paths, file.Path)
		}
	}
}

func (c *checker) checkDownwardFile(at *field.Path, file v1.DownwardAPIVolumeFile) {
	c.present(at.Child("path"), file.Path)
	c.descending(at.Child("path"), file.Path)
	if strings.HasPrefix(file.Path, "..") && !strings.HasPrefix(file.Path, "../") && file.Path != ".." {
		c.invalid(at.Child("path"), file.Path, "must not start with '..'")
	}
	c.mode(at.Child("mode"), file.Mode)
	switch {
	case file.FieldRef == nil && file.ResourceFieldRef == nil:
		c.required(at, "one of fieldRef and resourceFieldRef")
	case file.FieldRef != nil && file.ResourceFieldRef != nil:
		c.forbidden(at.Child("resourceFieldRef"), "may not be set together with fieldRef")
	}
	if file.FieldRef != nil {
		c.checkFieldRef(at.Child("fieldRef"), file.FieldRef, volumeFields)
	}
	if file.ResourceFieldRef != nil {
		if file.ResourceFieldRef.ContainerName == "" {
			c.required(at.Child("resourceFieldRef", "containerName"), "")
		}
		c.checkResourceFieldRef(at.Child("resourceFieldRef"), file.ResourceFieldRef)
	}
}
