//! Reads requests from FUSE over io_uring, on the shard.
//!
//! A request comes in three parts: its header, the fixed part of its operation, and the payload. The payload of a write
//! is read into memory that the client may keep. The payload of other requests is a name or two.

use std::{io, rc::Rc};

use forebay_env::{
    Arena, Task,
    real::{FuseHead, FuseRing},
};
use fuser::Errno;

use super::{
    Filesystem, ReplyEmpty,
    device::{Device, Way},
    dispatch::{self, HEADER_BYTES, Header},
};
use crate::limits;

/// Starts the task that serves requests from the ring, until the returned task is aborted. The task ends on its own
/// only if the ring fails.
pub(super) fn begin(
    device: &Rc<Device>,
    ring: Rc<FuseRing>,
    filesystem: &Rc<impl Filesystem + 'static>,
) -> Task<io::Error> {
    let (device, filesystem) = (device.clone(), filesystem.clone());
    let env = device.env.clone();
    env.clone().spawn(async move {
        let signals = async {
            loop {
                env.sleep(limits::INTERRUPT_AFTER).await;
                device.look_for_signals_by_ring();
            }
        };
        forebay_env::sync::select! {
            biased;
            error = serve(&device, &ring, &*filesystem) => match error.raw_os_error() {
                // `/dev/fuse` reports the end of the mount.
                Some(libc::ENOTCONN) => std::future::pending().await,
                _ => error,
            },
            error = signals => error,
        }
    })
}

async fn serve(device: &Rc<Device>, ring: &FuseRing, filesystem: &impl Filesystem) -> io::Error {
    let (mut arena, mut args) = (Arena::new(limits::ARENA_BYTES), Vec::new());
    loop {
        let came = match ring.arrived(device.has_room_for_one_more()).await {
            Ok(came) => came,
            Err(error) => return error,
        };
        for place in came {
            request(device, ring, filesystem, place, &mut arena, &mut args);
        }
        // Let other tasks run: the replies may have given them work.
        device.env.yield_now().await;
    }
}

fn request(
    device: &Rc<Device>,
    ring: &FuseRing,
    filesystem: &impl Filesystem,
    place: usize,
    arena: &mut Arena,
    args: &mut Vec<u8>,
) {
    let head = ring.head(place);
    let header = &head.header()[..HEADER_BYTES];
    let header = Header::parse(header, Way::Ring(place)).expect("a header is so long");
    let malformed = || header.reply::<ReplyEmpty>(device).error(Errno::EIO);
    let Some((operation, payload_bytes)) = pieces(&header, &head) else { return malformed() };
    if header.is_write() {
        match ring.take(place, payload_bytes, arena) {
            Some(data) => dispatch::write(device, filesystem, &header, operation, data),
            None => malformed(),
        }
        return;
    }
    args.clear();
    args.extend_from_slice(operation);
    if !ring.read(place, payload_bytes, args) {
        return malformed();
    }
    dispatch::request(device, filesystem, &header, args);
    if !header.wants_answer() {
        // The ring carries no such requests. If one comes nevertheless, this frees its entry.
        header.reply::<ReplyEmpty>(device).ok();
    }
}

/// The operation's fixed part, and how many bytes follow it; `None` if the lengths contradict each other.
fn pieces<'a>(header: &Header, head: &'a FuseHead) -> Option<(&'a [u8], usize)> {
    let payload_bytes = head.payload_bytes();
    let operation_bytes = header.bytes.checked_sub(HEADER_BYTES)?.checked_sub(payload_bytes)?;
    Some((head.operation(operation_bytes)?, payload_bytes))
}

#[cfg(test)]
mod tests {
    use forebay_env::real::FUSE_HEAD_BYTES;

    use super::*;

    fn lengths(request: u32, payload: u32) -> Option<(usize, usize)> {
        let mut bytes = [0; FUSE_HEAD_BYTES];
        bytes[..4].copy_from_slice(&request.to_ne_bytes());
        bytes[272..276].copy_from_slice(&payload.to_ne_bytes());
        let head = FuseHead::from(bytes);
        let header = Header::parse(&head.header()[..HEADER_BYTES], Way::Ring(0)).expect("a header");
        pieces(&header, &head).map(|(operation, payload)| (operation.len(), payload))
    }

    #[test]
    fn the_fixed_part_is_what_is_neither_header_nor_payload() {
        assert_eq!(lengths(40, 0), Some((0, 0)));
        assert_eq!(lengths(40 + 5, 5), Some((0, 5)));
        assert_eq!(lengths(40 + 40 + (1 << 20), 1 << 20), Some((40, 1 << 20)));
        assert_eq!(lengths(40 + 128 + 3, 3), Some((128, 3)));
    }

    #[test]
    fn lengths_that_contradict_each_other_are_refused() {
        for (request, payload) in [(0, 0), (39, 0), (40, 1), (44, 5), (40 + 129, 0), (u32::MAX, 0), (0, u32::MAX)] {
            assert_eq!(lengths(request, payload), None, "{request} {payload}");
        }
    }
}
