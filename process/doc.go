// Package process implements a small CRI v1 server whose containers are processes of the host. It serves demos, tests and
// hosts without a container engine. The rest of Herald talks to it as it talks to containerd.
//
// There is no isolation. A container sees the host's files, network, processes and users, and runs as the agent's user. A
// pod that asks for something the runtime cannot provide is rejected with the name of the field (SandboxLimitations,
// ContainerLimitations). The isolation that every pod gets by default elsewhere (PID and IPC namespaces, masked paths, a
// resolv.conf, CPU shares, an OOM score) is not a request of the pod and is silently omitted.
//
// A container gets:
//   - Image: the only image is "host", the host's own file system. It has no entrypoint, so a container must set a command.
//   - Environment: the container's own, plus PATH if it has none, HERALD_CONTAINER_ID, HERALD_ROOT and, with a termination
//     log, HERALD_TERMINATION_LOG.
//   - Mounts: there is no mount namespace. Each container has a private directory, HERALD_ROOT, which is also its default
//     working directory. Each mount is a symbolic link below it: a volume mounted at /data is $HERALD_ROOT/data. A link
//     cannot make anything read-only. A read-only mount is accepted only below Config.PodsRoot, where the agent rewrites
//     the files anyway (secrets, config maps, tokens).
//   - Standard streams: stdout and stderr go to the log in the CRI format and to the clients that are attached. stdin is empty unless
//     the container asks for it. With tty, the streams are a pseudo-terminal.
//   - Statistics: of its cgroup if it has a scope of its own, and else of its processes in /proc, whose shared memory counts for
//     each.
//   - Lifetime: all processes that a container started end with it, whatever their process group or session. The same
//     holds for commands of Exec and ExecSync (BUG-37).
//
// Each container is supervised by a shim: the server's program, executed again (IsShim, ShimMain). The shim outlives the
// server, writes the log and records the exit code. All state is kept in files below Config.Root:
//
//	sandboxes/ID/sandbox.json      written by RunPodSandbox and StopPodSandbox
//	containers/ID/container.json   written last by CreateContainer; without it, the directory is not a container
//	containers/ID/alive            FIFO, created by StartContainer; the shim holds the write end while it lives
//	containers/ID/attach           socket, on which the shim connects clients with the container's streams
//	containers/ID/started.json     written by the shim
//	containers/ID/exit.json        written by the shim, or by the server for a shim that died without writing it
//	corrupt/ID                     a directory that could not be loaded; its processes were killed (F18)
//
// Exec, Attach and PortForward return URLs like http://unix/exec/TOKEN, which are served on a second socket, Config.StreamSocket, with
// the same permissions as the first. A token is valid once, for a minute. Commands of Exec run in a shim of their own, which ends
// with the server. Attached clients are connected through the server to the container's shim; they lose the connection when the
// server stops, and the container keeps its terminal and its open input.
//
// A restarted server derives each container's state from these files, whichever process was killed:
//
//	                alive without writer and no exit.json: kill what runs, record exit code 137, reason Unknown (F26)
//	                  |
//	CREATED ──────────┴──> RUNNING ───────> EXITED
//	container.json         started.json     exit.json
package process
