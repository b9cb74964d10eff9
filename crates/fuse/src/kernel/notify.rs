//! What the kernel is told unasked: to forget attributes, and names. (To drop pages: `drops`.)
//!
//! Neither waits for a lock that a request which waits for us may hold, so they may be sent from anywhere. Forgetting one
//! name would wait for its directory, in which the kernel may be waiting for our answer; so all names are forgotten at once
//! (Linux 6.16), and where the kernel cannot do that it is told none for longer than the moment.

use std::{cell::Cell, io::IoSlice, rc::Rc};

use forebay_env::real::Descriptor;
use fuser::INodeNo;

use super::{Drops, Known};

pub(super) const INVAL_INODE: i32 = 2;
const INC_EPOCH: i32 = 8;
const HEADER_BYTES: usize = 16;

/// Tells the kernel.
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

    /// What has the kernel drop pages.
    pub fn drops(&self) -> Drops {
        Drops::new(self.descriptor.clone())
    }

    /// The kernel can be made to forget names.
    pub fn forgets_names(&self) -> bool {
        self.forgets_names.get()
    }

    /// Attributes of an inode are to be asked for again; access control lists too. False: the kernel does not have the inode, and
    /// may be about to take it up.
    pub fn forget_attributes(&self, ino: INodeNo) -> bool {
        if !self.known.has(ino.0) {
            return true;
        }
        let mut out = [0; 24];
        out[..8].copy_from_slice(&ino.0.to_ne_bytes());
        // Nothing of the pages.
        out[8..16].copy_from_slice(&(-1i64).to_ne_bytes());
        self.send(INVAL_INODE, &out)
    }

    /// All names are to be looked up again.
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

/// What a notification of `out_bytes` begins with.
pub(super) fn header(code: i32, out_bytes: usize) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&((HEADER_BYTES + out_bytes) as u32).to_ne_bytes());
    header[4..8].copy_from_slice(&code.to_ne_bytes());
    header
}
