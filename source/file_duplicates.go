package source

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/podid"
)

// authored are the pods of one manifest file.
type authored struct {
	path string
	pods []*v1.Pod
}

// settleNames picks one file for each pod name. The file that had the name keeps it for as long as it defines that pod,
// through any edit; otherwise the first of the files gets it (CFG-20). It returns the pods, which file has each name
// now, and a problem for each pod that is left out.
func settleNames(files []authored, before map[podid.FullName]string) (
	pods []*v1.Pod, owners map[podid.FullName]string, problems []Problem,
) {
	owners = map[podid.FullName]string{}
	for _, file := range files {
		for _, pod := range file.pods {
			name := podid.FullNameOf(pod)
			if _, claimed := owners[name]; !claimed || before[name] == file.path {
				owners[name] = file.path
			}
		}
	}
	for _, file := range files {
		for _, pod := range file.pods {
			name := podid.FullNameOf(pod)
			if owners[name] == file.path {
				pods = append(pods, pod)
				continue
			}
			problems = append(problems, Problem{
				Location: file.path,
				Field:    "metadata.name",
				Message: fmt.Sprintf("pod %s in namespace %s is left out, because %s defines it too; remove one of them",
					name.Name, name.Namespace, owners[name]),
			})
		}
	}
	return pods, owners, problems
}
