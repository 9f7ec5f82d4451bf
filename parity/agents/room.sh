# Gives the kubelet, "$2"..., a mount namespace in which it can write what it always writes, without changing the machine:
# below /var, where some of its folders are fixed, and to the kernel's settings. What it writes there goes to the folder $1.
set -e
folder=$1
shift
mkdir -p "$folder/var" "$folder/var-work" "$folder/sys"
mount -t overlay -o "lowerdir=/var,upperdir=$folder/var,workdir=$folder/var-work" overlay /var
for setting in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
	copy="$folder/sys/${setting##*/}"
	cat "/proc/sys/$setting" >"$copy"
	mount --bind "$copy" "/proc/sys/$setting"
done
exec "$@"
