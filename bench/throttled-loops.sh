#!/usr/bin/env bash
# Files as block devices of a limited rate, each way: loop devices, and a control group (blkio, version 1) whose processes are
# held to it. As root. Requests of up to 256 KiB pass one at a time; with larger ones keep 8 or more in flight, or the limit is
# not reached. Requests longer than 1,280 KiB are split, and counted twice (Linux 6.18).
# usage: throttled-loops.sh up DIR MB_S FILE...    makes DIR/0, DIR/1, ...: links to the devices; MB_S: 10^6 bytes a second of each
#        throttled-loops.sh run DIR COMMAND...     runs COMMAND, and what it starts, in the group
#        throttled-loops.sh down DIR               when nothing uses them any more
set -euo pipefail
usage() { sed -n 's/^# \{0,1\}\(usage:\| \{7\}\)/\1/p' "$0" >&2; exit 2; }
what=${1:-}; dir=${2:-}; [ -n "$dir" ] || usage
group=/sys/fs/cgroup/blkio/forebay-$(realpath -m "$dir" | md5sum | cut -c1-12)
case $what in
  up)
    rate=${3:-}; shift 3 || usage
    if [ ! -e /sys/fs/cgroup/blkio/blkio.throttle.write_bps_device ]; then
      echo "no blkio controller of control groups, version 1, at /sys/fs/cgroup/blkio: mount it, or boot with systemd.unified_cgroup_hierarchy=0" >&2
      exit 1
    fi
    mkdir -p "$dir" "$group"
    number=0
    for file in "$@"; do
      device=$(losetup --direct-io=on --sector-size 4096 --find --show "$file")
      ln -s "$device" "$dir/$number" || { losetup -d "$device"; exit 1; }
      for way in read write; do
        echo "$(lsblk -dno MAJ:MIN "$device" | tr -d ' ') $((rate * 1000000))" > "$group/blkio.throttle.${way}_bps_device"
      done
      number=$((number + 1))
    done
    ;;
  run)
    shift 2; [ $# -gt 0 ] || usage
    echo $$ > "$group/cgroup.procs"
    exec "$@"
    ;;
  down)
    status=0
    for link in "$dir"/*; do
      if [ -L "$link" ]; then losetup -d "$(readlink "$link")" && rm "$link" || status=1; fi
    done
    [ ! -d "$group" ] || rmdir "$group" || status=1
    [ ! -d "$dir" ] || rmdir "$dir" || status=1
    exit $status
    ;;
  *) usage ;;
esac
