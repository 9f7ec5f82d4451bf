# Waits until standard input is closed, then ends and removes all that belongs to the containerd folder $1.
# If something withstands, the folder stays with sweep.log in it and the exit code is 1.
folder=$1
trap '' HUP INT TERM
cat >/dev/null
exec >"$folder/sweep.log" 2>&1

# pids prints the processes that have a program like $1 and a path in the folder among their arguments.
pids() {
	grep -lsz "^$folder/" /proc/[0-9]*/cmdline | xargs -r grep -lszE "^(.*/)?$1\$" | cut -d / -f 3
}

# mounts prints what is mounted in the folder, the innermost first.
mounts() {
	while read -r _ _ _ _ point _; do
		case $point in "$folder"/*) echo "$point" ;; esac
	done </proc/self/mountinfo | sort -r
}

# until_none gives what "$2"... finds to the command $1 until nothing is found; after 10 s it fails.
until_none() {
	act=$1
	shift
	for _ in $(seq 100); do
		found=$("$@")
		[ -n "$found" ] || return 0
		$act $found 2>/dev/null
		sleep 0.1
	done
	echo "withstood $act:" $found
	return 1
}

left=0

# The shims bury the containers, so they go after them.
until_none 'kill -9' pids '(containerd|ctr)' || left=1
for container in "$folder"/runc/*/*; do
	[ ! -d "$container" ] || runc --root "${container%/*}" delete --force "${container##*/}" || left=1
done
sockets=$(grep -hos '/run/containerd/s/[0-9a-f]*' "$folder"/state/*/*/*/address "$folder"/state/*/*/*/bootstrap.json)
until_none 'kill -9' pids '(containerd-shim-.*|runc)' || left=1
rm -f $sockets

until_none umount mounts || left=1

if [ -f "$folder/bridge" ]; then
	ip link delete "$(cat "$folder/bridge")" && rm "$folder/bridge" || left=1
fi
for sandbox in "$folder"/root/*.cri/sandboxes/*; do
	rm -f /var/lib/cni/results/*-"${sandbox##*/}"-*
done

[ $left = 0 ] && rm -rf --one-file-system "$folder"
