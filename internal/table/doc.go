// Package table says of a pod what `kubectl get pods` would say: the same columns, the same words.
//
// The API server computes these columns for kubectl, in code that cannot be imported. A node without an API server needs
// them as much; people know them by heart.
package table
