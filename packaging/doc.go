// Package packaging builds Debian and RPM packages of Herald, with a list of what they contain in SPDX. The same commit and the same
// version of Go give the same bytes, on every machine.
package packaging
