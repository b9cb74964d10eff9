#!/usr/bin/env bash
# A local ext4 to measure against: default options, with a journal, on a loop image with direct I/O. As root.
# usage: ext4-loop.sh up DIR [SIZE_GIB]   makes DIR/image, mounts it at DIR/mnt       ext4-loop.sh down DIR
set -euo pipefail
dir=${2:?"usage: ext4-loop.sh up|down DIR [SIZE_GIB]"}; size=${3:-20}
case ${1:-} in
  up)
    mkdir -p "$dir/mnt"
    if [ ! -e "$dir/image" ]; then
      fallocate -l "${size}G" "$dir/image"
      # written once, so that no measurement pays for unwritten extents
      dd if=/dev/zero of="$dir/image" bs=8M count=$((size * 128)) conv=notrunc oflag=direct status=none
      mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 "$dir/image"
    fi
    mountpoint -q "$dir/mnt" || mount "$(losetup --direct-io=on --find --show "$dir/image")" "$dir/mnt"
    ;;
  down)
    device=$(findmnt -n -o SOURCE "$dir/mnt"); umount "$dir/mnt"; losetup -d "$device"
    ;;
  *) echo "usage: ext4-loop.sh up|down DIR [SIZE_GIB]" >&2; exit 2 ;;
esac
