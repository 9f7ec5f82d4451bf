package localapi

// For tests.
const MaxChanges = maxChanges

// PodColumns are the columns of a table of pods.
var PodColumns = podColumns
