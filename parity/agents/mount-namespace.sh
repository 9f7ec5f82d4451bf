# Runs "$2"... in a mount namespace where the kubelet can write to the paths that it cannot be configured to avoid,
# without changing the machine: /var becomes an overlay, and the kernel settings that it sets become private copies.
# All writes go to the directory $1. Mounts are private to the namespace, except those below $1/root.
set -e
dir=$1
shift
# Nothing that is mounted here may appear outside, even if the machine's mounts are shared with this namespace.
for parent in / /var /proc; do
	! mountpoint -q "$parent" || mount --make-private "$parent"
done
mkdir -p "$dir/var" "$dir/var-work" "$dir/sys"
mount -t overlay -o "lowerdir=/var,upperdir=$dir/var,workdir=$dir/var-work" overlay /var
for setting in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
	copy="$dir/sys/${setting##*/}"
	cat "/proc/sys/$setting" >"$copy"
	mount --bind "$copy" "/proc/sys/$setting"
done
exec "$@"
