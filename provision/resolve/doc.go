// Package resolve resolves the references in a pod's spec: fields of the pod, resources of a container, $(NAME) in a value,
// the variables of services, and the files of config maps and secrets.
//
// It is pure. Objects of the API server and information about the node are arguments.
package resolve
