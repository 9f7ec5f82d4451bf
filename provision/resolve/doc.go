// Package resolve says what the references in a pod's spec stand for: fields of the pod, resources of a container, $(NAME)
// in a value, the variables that describe services, the files that a config map or a secret becomes.
//
// It only decides. What was read from the API server, and what is known of the node, are arguments.
package resolve
