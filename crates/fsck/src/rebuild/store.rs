//! The store of the OST that is rebuilt.

use crate::{format::identity::Identity, media::Media, slabs::Slabs};

/// Where everything is read from.
pub(super) struct Store<'a> {
    pub(super) media: &'a Media,
    pub(super) identity: &'a Identity,
    pub(super) slabs: &'a Slabs,
}
