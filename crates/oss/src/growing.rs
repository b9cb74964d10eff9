//! Sizes of files once all admitted changes are applied: the next append lies behind those.
//!
//! An estimate, as a change may still fail: the caller checks again when its own change is applied.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use forebay_proto::{Fid, Transno};

type Ends = BTreeMap<Fid, BTreeMap<Transno, u64>>;

/// See the module.
#[derive(Default)]
pub struct Growing(Rc<RefCell<Ends>>);

/// An admitted change, until it is applied or given up.
pub struct Grows {
    ends: Rc<RefCell<Ends>>,
    fid: Fid,
    transno: Transno,
}

impl Growing {
    /// The change `transno` makes the file at least `file_bytes` long.
    pub fn to(&self, fid: Fid, transno: Transno, file_bytes: u64) -> Grows {
        self.0.borrow_mut().entry(fid).or_default().insert(transno, file_bytes);
        Grows { ends: self.0.clone(), fid, transno }
    }

    /// The largest size that an admitted change gives the file; 0 if there is none.
    pub fn end(&self, fid: Fid) -> u64 {
        self.0.borrow().get(&fid).and_then(|ends| ends.values().max().copied()).unwrap_or(0)
    }
}

impl Drop for Grows {
    fn drop(&mut self) {
        let mut all = self.ends.borrow_mut();
        if let Some(ends) = all.get_mut(&self.fid) {
            ends.remove(&self.transno);
            if ends.is_empty() {
                all.remove(&self.fid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_growing_end_of_a_file_is_that_of_its_longest_unfinished_write() {
        let (growing, fid) = (Growing::default(), Fid { high: 0, low: 5 });
        let long = growing.to(fid, Transno(1), 200);
        let short = growing.to(fid, Transno(2), 100);
        assert_eq!((growing.end(fid), growing.end(Fid::ROOT)), (200, 0));
        drop(long);
        assert_eq!(growing.end(fid), 100);
        drop(short);
        assert_eq!(growing.end(fid), 0);
    }
}
