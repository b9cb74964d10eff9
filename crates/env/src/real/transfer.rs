//! One request of a device in progress: its memory, how much is done, and its reply.
//!
//! Invariant: the memory that [`Transfer::vectors`] names lives and stays in place as long as the transfer.

use std::io;

use bytes::Bytes;

use super::device::Device;
use crate::{AlignedBuf, EnvResult, SECTOR_BYTES, is_aligned, limits::IO_PARTS, sync::oneshot};

/// A request of a shard to a device.
pub(super) enum Request {
    Read { offset: u64, len: usize, reply: oneshot::Sender<EnvResult<AlignedBuf>> },
    Write { offset: u64, parts: Vec<Bytes>, durable: bool, reply: oneshot::Sender<EnvResult<()>> },
    Flush { reply: oneshot::Sender<EnvResult<()>> },
}

/// The system call that a transfer needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    Read,
    Write,
    DurableWrite,
    Flush,
}

pub(super) struct Transfer {
    pub(super) call: Call,
    /// Offset of the remaining bytes.
    pub(super) offset: u64,
    left: usize,
    /// Memory of the remaining bytes.
    vectors: Vec<libc::iovec>,
    first_vector: usize,
    memory: Memory,
}

enum Memory {
    Read { buf: AlignedBuf, reply: oneshot::Sender<EnvResult<AlignedBuf>> },
    Write { _pieces: Vec<Bytes>, reply: oneshot::Sender<EnvResult<()>> },
    Flush { reply: oneshot::Sender<EnvResult<()>> },
}

impl Transfer {
    /// Prepares a request; with `direct`, parts that are not aligned are copied to aligned memory.
    pub(super) fn new(request: Request, direct: bool) -> Self {
        match request {
            Request::Read { offset, len, reply } => {
                let mut buf = AlignedBuf::to_be_filled(len);
                let vectors = vec![libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: len }];
                Self {
                    call: Call::Read,
                    offset,
                    left: len,
                    vectors,
                    first_vector: 0,
                    memory: Memory::Read { buf, reply },
                }
            }
            Request::Write { offset, parts, durable, reply } => {
                let pieces = if direct { gather(parts) } else { limit_parts(parts) };
                let vector = |piece: &Bytes| libc::iovec { iov_base: piece.as_ptr() as _, iov_len: piece.len() };
                let vectors = pieces.iter().map(vector).collect();
                let left = pieces.iter().map(Bytes::len).sum();
                let call = if durable { Call::DurableWrite } else { Call::Write };
                Self { call, offset, left, vectors, first_vector: 0, memory: Memory::Write { _pieces: pieces, reply } }
            }
            Request::Flush { reply } => {
                let memory = Memory::Flush { reply };
                Self { call: Call::Flush, offset: 0, left: 0, vectors: Vec::new(), first_vector: 0, memory }
            }
        }
    }

    /// Memory of the bytes that are left to transfer.
    pub(super) fn vectors(&self) -> &[libc::iovec] {
        &self.vectors[self.first_vector..]
    }

    /// True if no system call is needed.
    pub(super) fn is_empty(&self) -> bool {
        self.call != Call::Flush && self.left == 0
    }

    /// Takes the result of a system call. Returns `Some` with the transfer's result when it is over.
    pub(super) fn take_answer(&mut self, answer: io::Result<usize>) -> Option<io::Result<()>> {
        match answer {
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN)) => None,
            Err(e) => Some(Err(e)),
            Ok(_) if self.call == Call::Flush => Some(Ok(())),
            // A device that transfers nothing: the file was truncated while in use, or the device is gone.
            Ok(0) => Some(Err(io::Error::from_raw_os_error(libc::EIO))),
            Ok(n) => {
                self.advance(n);
                (self.left == 0).then_some(Ok(()))
            }
        }
    }

    fn advance(&mut self, mut n: usize) {
        assert!(n <= self.left, "the system transferred more than it was given");
        self.left -= n;
        self.offset += n as u64;
        while let Some(vector) = self.vectors.get_mut(self.first_vector) {
            if n < vector.iov_len {
                vector.iov_base = vector.iov_base.cast::<u8>().wrapping_add(n).cast();
                vector.iov_len -= n;
                return;
            }
            n -= vector.iov_len;
            self.first_vector += 1;
        }
    }

    /// Replies to the shard, which may have stopped waiting.
    pub(super) fn finish(self, device: &Device, result: io::Result<()>) {
        let call = self.call;
        let result = result.map_err(|e| device.error(call, self.offset, self.left, &e));
        match self.memory {
            Memory::Read { buf, reply } => drop(reply.send(result.map(|()| buf))),
            Memory::Write { reply, .. } => drop(reply.send(result)),
            // A flush that was in flight when another failed may have received a false success.
            Memory::Flush { reply } => drop(reply.send(result.and_then(|()| device.check_flushed()))),
        }
    }
}

/// Parts that a device accepts without a copy stay. Others are copied, together with neighbours until they are whole
/// sectors.
fn gather(parts: Vec<Bytes>) -> Vec<Bytes> {
    let mut pieces = Vec::with_capacity(parts.len());
    let mut run: Vec<Bytes> = Vec::new();
    let mut run_bytes = 0usize;
    for part in parts.into_iter().filter(|part| !part.is_empty()) {
        if run_bytes.is_multiple_of(SECTOR_BYTES) && is_aligned(&part) {
            flush_run(&mut pieces, &mut run);
            run_bytes = 0;
            pieces.push(part);
        } else {
            run_bytes += part.len();
            run.push(part);
        }
    }
    flush_run(&mut pieces, &mut run);
    limit_parts(pieces)
}

fn flush_run(pieces: &mut Vec<Bytes>, run: &mut Vec<Bytes>) {
    if !run.is_empty() {
        pieces.push(copy(run));
        run.clear();
    }
}

/// At most as many parts as one system call takes: the last ones are merged.
fn limit_parts(mut parts: Vec<Bytes>) -> Vec<Bytes> {
    if parts.len() > IO_PARTS {
        let rest = parts.split_off(IO_PARTS - 1);
        parts.push(copy(&rest));
    }
    parts
}

fn copy(parts: &[Bytes]) -> Bytes {
    let mut buf = AlignedBuf::to_be_filled(parts.iter().map(Bytes::len).sum());
    let mut at = 0;
    for part in parts {
        buf[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    buf.freeze()
}

#[cfg(test)]
mod tests {
    use super::{gather, limit_parts};
    use crate::{AlignedBuf, is_aligned};
    use bytes::Bytes;

    #[test]
    fn aligned_parts_stay_where_they_are_and_others_are_copied_with_their_neighbours() {
        let aligned = AlignedBuf::zeroed(8192).freeze();
        let odd = Bytes::from(vec![7u8; 4096]).slice(1..);
        let head = Bytes::from(vec![1u8; 100]);
        let tail = Bytes::from(vec![2u8; 3996]);
        let pieces =
            gather(vec![aligned.clone(), head, aligned.clone(), tail, aligned.clone(), odd, Bytes::from_static(b"x")]);
        assert_eq!(pieces.iter().map(Bytes::len).collect::<Vec<_>>(), [8192, 12288, 8192, 4096]);
        assert!(pieces.iter().all(|piece| is_aligned(piece)));
        assert_eq!(pieces[0].as_ptr(), aligned.as_ptr());
        assert_eq!((pieces[1][99], pieces[1][100], pieces[1][8292]), (1, 0, 2));
        assert_eq!((pieces[3][4094], pieces[3][4095]), (7, b'x'));
    }

    #[test]
    fn more_parts_than_a_system_call_takes_become_fewer() {
        let parts: Vec<Bytes> = (0..3000u32).map(|i| AlignedBuf::padded_copy(&i.to_le_bytes()).freeze()).collect();
        let limited = limit_parts(parts.clone());
        assert_eq!(limited.len(), 1024);
        assert_eq!(limited.concat(), parts.concat());
    }
}
