//! A device's thread without io_uring: one request at a time by plain system calls.

use std::{collections::VecDeque, io, os::fd::AsRawFd};

use super::{
    device::Device,
    device_queue::DeviceQueue,
    open::OpenedDisk,
    transfer::{Call, Transfer},
};

/// Serves requests until the queue is closed and empty.
pub(super) fn serve(queue: &DeviceQueue, disk: &OpenedDisk) {
    let mut waiting = VecDeque::new();
    loop {
        let closed = queue.take(&mut waiting);
        if waiting.is_empty() && closed {
            return;
        }
        for request in waiting.drain(..) {
            transfer(&queue.device, disk, Transfer::new(request, disk.direct));
        }
        if queue.fall_asleep(closed) {
            sleep(queue);
        }
    }
}

fn transfer(device: &Device, disk: &OpenedDisk, mut transfer: Transfer) {
    if transfer.is_empty() {
        return transfer.finish(device, Ok(()));
    }
    loop {
        let answer = call(disk, &transfer);
        if let Some(result) = transfer.take_answer(answer) {
            return transfer.finish(device, result);
        }
    }
}

fn call(disk: &OpenedDisk, transfer: &Transfer) -> io::Result<usize> {
    let fd = disk.file.as_raw_fd();
    let (vectors, count) = (transfer.vectors().as_ptr(), transfer.vectors().len() as libc::c_int);
    let offset = transfer.offset as libc::off_t;
    // SAFETY: the vectors name memory that the transfer owns; `fd` is open.
    let answer = unsafe {
        match transfer.call {
            Call::Read => libc::preadv(fd, vectors, count, offset),
            Call::Write => libc::pwritev(fd, vectors, count, offset),
            Call::DurableWrite => libc::pwritev2(fd, vectors, count, offset, libc::RWF_DSYNC),
            Call::Flush => libc::fdatasync(fd) as isize,
        }
    };
    usize::try_from(answer).map_err(|_| io::Error::last_os_error())
}

/// Waits to be woken; an interruption counts as a wake-up.
pub(super) fn sleep(queue: &DeviceQueue) {
    let mut count = [0u8; 8];
    // SAFETY: eight writable bytes.
    unsafe { libc::read(queue.wake_fd(), count.as_mut_ptr().cast(), count.len()) };
}
