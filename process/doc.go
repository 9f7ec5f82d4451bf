// Package process is a small CRI v1 server whose containers are process groups of the machine itself: for a demo, for tests,
// and for machines without a container engine. The rest of Herald talks to it as it talks to containerd.
//
// It isolates nothing. A container sees the machine's files, network, processes and users, and runs as the agent's own
// user. What a pod asks for and cannot have is refused by the name of its field (SandboxLimitations, ContainerLimitations); the
// isolation that every pod gets by default elsewhere (its own PID and IPC namespace, masked paths, a resolv.conf, CPU
// shares, an OOM score) is not a request of the pod and is left out without a word.
//
// What a container is given:
//   - The image must be "host": the machine itself. It has no command of its own, so a container must name one.
//   - The environment is the container's own, and PATH if that has none. HERALD_CONTAINER_ID and HERALD_ROOT are added,
//     and HERALD_TERMINATION_LOG when there is a termination log.
//   - There is no mount namespace. Each container has a private folder, named by HERALD_ROOT and its working directory
//     unless it names another, in which each mount is a symbolic link at its container path: what is mounted at /data is
//     $HERALD_ROOT/data, or data from the working directory. A link cannot make anything read-only: a read-only mount is
//     accepted only of a file below Config.PodsRoot, which the agent writes anew anyway (secrets, config maps, tokens).
//   - Standard output and error go to the log in the CRI's format; standard input is empty.
//   - What a container started ends with it, in whatever process group or session it is. The same holds for a command of
//     ExecSync: nothing that it left in the background outlives it (BUG-37).
//
// Each container has a supervisor, the shim: the program that runs the server, started again (IsShim, ShimMain). It
// outlives the server, writes the log and keeps the exit code. All that is known lives in files below Config.Root:
//
//	sandboxes/ID/sandbox.json      written at RunPodSandbox and StopPodSandbox
//	containers/ID/container.json   written by CreateContainer, last of all: a folder without it is none
//	containers/ID/alive            a FIFO, made by StartContainer; the shim holds its writing end for life
//	containers/ID/started.json     written by the shim
//	containers/ID/exit.json        written by the shim, or by the server for a shim that died without
//	corrupt/ID                     a folder of those above that could not be taken up; what ran of it was ended (F18)
//
// so that a server that starts anew knows each container's state, whoever was killed when:
//
//	                alive?   nobody holds it and no exit.json: what runs is killed, exit.json says 137, Unknown (F26)
//	                  |
//	CREATED ──────────┴──> RUNNING ───────> EXITED
//	container.json         started.json     exit.json
package process
