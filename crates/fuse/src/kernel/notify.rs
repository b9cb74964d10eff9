//! Notifications that invalidate attributes and names in the kernel. (Pages: see `drops`.)
//!
//! Neither notification waits for a lock that a request in flight to this mount may hold, so they may be sent from
//! anywhere. Invalidating one name would wait for the lock of its directory, and the kernel may hold that lock while it
//! waits for our reply. So all names are invalidated at once (Linux 6.16). A kernel that cannot do that may cache no
//! names.

use std::{cell::Cell, io::IoSlice, rc::Rc};

use forebay_env::real::Descriptor;
use fuser::INodeNo;

use super::{Drops, Known};

pub(super) const INVAL_INODE: i32 = 2;
const INC_EPOCH: i32 = 8;
const HEADER_BYTES: usize = 16;

/// Sends notifications to the kernel.
pub(crate) struct Notifier {
    descriptor: Rc<Descriptor>,
    known: Rc<Known>,
    forgets_names: Cell<bool>,
}

impl Notifier {
    pub fn new(descriptor: Rc<Descriptor>, known: Rc<Known>) -> Self {
        let this = Self { descriptor, known, forgets_names: Cell::new(false) };
        this.forgets_names.set(this.forget_names());
        this
    }

    /// The threads that make the kernel drop pages.
    pub fn drops(&self) -> Drops {
        Drops::new(self.descriptor.clone())
    }

    /// Whether the kernel supports invalidating all names.
    pub fn forgets_names(&self) -> bool {
        self.forgets_names.get()
    }

    /// Invalidates the attributes and access control lists of an inode. False: the kernel does not have the inode yet,
    /// and may be about to take it up.
    pub fn forget_attributes(&self, ino: INodeNo) -> bool {
        if !self.known.has(ino.0) {
            return true;
        }
        let mut out = [0; 24];
        out[..8].copy_from_slice(&ino.0.to_ne_bytes());
        // A negative offset: no pages are dropped.
        out[8..16].copy_from_slice(&(-1i64).to_ne_bytes());
        self.send(INVAL_INODE, &out)
    }

    /// Invalidates all names: the kernel looks each up again.
    pub fn forget_names(&self) -> bool {
        self.send(INC_EPOCH, &[])
    }

    fn send(&self, code: i32, out: &[u8]) -> bool {
        let header = header(code, out.len());
        let (header, out) = (IoSlice::new(&header), IoSlice::new(out));
        let slices = if out.is_empty() { &[header][..] } else { &[header, out] };
        self.descriptor.write(slices).is_ok()
    }
}

/// The header of a notification with `out_bytes` of payload.
pub(super) fn header(code: i32, out_bytes: usize) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&((HEADER_BYTES + out_bytes) as u32).to_ne_bytes());
    header[4..8].copy_from_slice(&code.to_ne_bytes());
    header
}
