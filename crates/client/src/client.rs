//! The client's one object.

use std::rc::Rc;

use forebay_proto::{Uuid, message::ClusterMap};

/// A mounted file system. Cheap to clone; belongs to one shard.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Rc<Inner>,
}

pub(crate) struct Inner {}

impl Client {
    /// The cluster's uuid.
    pub fn cluster(&self) -> Uuid {
        todo!()
    }

    /// The map the client works with.
    pub fn map(&self) -> Rc<ClusterMap> {
        todo!()
    }
}
