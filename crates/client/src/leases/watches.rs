//! Files whose size is watched, and who is notified. Pure; the watching: `size_watches`.

use std::{cell::RefCell, collections::BTreeSet, rc::Rc};

use forebay_env::Boxed;
use forebay_proto::Fid;

/// Hears how large a file is now, and was known to be before.
pub(crate) type Hook = Rc<dyn Fn(Fid, u64, u64) -> Boxed<'static, ()>>;

/// See the module.
#[derive(Default)]
pub(crate) struct Watches {
    pub hook: RefCell<Option<Hook>>,
    pub files: RefCell<BTreeSet<Fid>>,
}
