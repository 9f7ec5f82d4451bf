// Package config is what `herald run` can be told, and how: a file, a folder of drop-ins that are laid over it, and flags that
// win over both.
//
// Reading is strict. Whatever is wrong is named with the file and line, or the flag, that said it, with the field, and with
// what to write instead; all of it at once.
package config
