# Waits until standard input is closed, then removes everything that belongs to the containerd directory $1.
# If something cannot be removed, the directory stays with cleanup.log in it and the exit code is 1.
dir=$1
trap '' HUP INT TERM
cat >/dev/null
exec >"$dir/cleanup.log" 2>&1

# pids prints the processes that have a program like $1 and a path in the directory among their arguments.
pids() {
	grep -lsz "^$dir/" /proc/[0-9]*/cmdline | xargs -r grep -lszE "^(.*/)?$1\$" | cut -d / -f 3
}

# mounts prints the mount points in the directory, innermost first.
mounts() {
	while read -r _ _ _ _ point _; do
		case $point in "$dir"/*) echo "$point" ;; esac
	done </proc/self/mountinfo | sort -r
}

# until_none passes the output of "$2"... to the command $1 until it is empty; it fails after 10 s.
until_none() {
	act=$1
	shift
	for _ in $(seq 100); do
		found=$("$@")
		[ -n "$found" ] || return 0
		$act $found 2>/dev/null
		sleep 0.1
	done
	echo "left after $act:" $found
	return 1
}

left=0

# The shims reap the containers, so they are killed after them.
until_none 'kill -9' pids '(containerd|ctr)' || left=1
for container in "$dir"/runc/*/*; do
	[ ! -d "$container" ] || runc --root "${container%/*}" delete --force "${container##*/}" || left=1
done
sockets=$(grep -hos '/run/containerd/s/[0-9a-f]*' "$dir"/state/*/*/*/address "$dir"/state/*/*/*/bootstrap.json)
until_none 'kill -9' pids '(containerd-shim-.*|runc)' || left=1
rm -f $sockets

until_none umount mounts || left=1

if [ -f "$dir/bridge" ]; then
	ip link delete "$(cat "$dir/bridge")" && rm "$dir/bridge" || left=1
fi
for sandbox in "$dir"/root/*.cri/sandboxes/*; do
	rm -f /var/lib/cni/results/*-"${sandbox##*/}"-*
done

[ $left = 0 ] && rm -rf --one-file-system "$dir"
