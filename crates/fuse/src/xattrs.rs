//! Extended attributes. The kernel first asks for the length with size 0, then for the value with a large enough size.

use bytes::Bytes;
use forebay_client::{ClientResult, LAYOUT_XATTR, mode::S_ISGID};
use forebay_proto::{Errno, Fid};

use crate::{
    caller::{Asker, decided},
    layout,
    server::Server,
};

const LABEL: &[u8] = b"security.selinux";

/// What the kernel asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sized {
    Length(u32),
    Value(Bytes),
}

/// `value` for a caller whose buffer has `room` bytes. 0: the caller asks for the length.
fn sized(value: Bytes, room: u32) -> ClientResult<Sized> {
    match room {
        0 => Ok(Sized::Length(value.len() as u32)),
        room if value.len() > room as usize => Err(Errno::ERANGE.into()),
        _ => Ok(Sized::Value(value)),
    }
}

/// POSIX access control lists; the kernel transfers them as attributes.
fn is_acl(name: &[u8]) -> bool {
    name == b"system.posix_acl_access" || name == b"system.posix_acl_default"
}

/// Of the attributes under `system.`, only access control lists are supported.
fn is_supported(name: &[u8]) -> bool {
    !name.starts_with(b"system.") || is_acl(name)
}

impl Server {
    pub async fn getxattr(&self, ino: u64, name: &[u8], room: u32) -> ClientResult<Sized> {
        if !is_supported(name) {
            return Err(Errno::EOPNOTSUPP.into());
        }
        if name == layout::NAME {
            return sized(self.get_layout(ino).await?, room);
        }
        if name == layout::MIGRATE {
            return sized(self.migrate_start(ino).await?, room);
        }
        if name == layout::POOLS {
            return sized(self.get_pools().await?, room);
        }
        let value = self.of_gone(ino, self.client.getxattr(&decided(), self.fid(ino), name).await);
        sized(self.labels.told(name, value)?, room)
    }

    /// Only user 0 sees names under `trusted.`, as only it sees their values.
    pub async fn listxattr(&self, asker: Asker, ino: u64, room: u32) -> ClientResult<Sized> {
        let names = match self.client.listxattr(self.fid(ino)).await {
            Err(error) if error.errno == Errno::ESTALE && self.races.attr(ino).is_some() => Vec::new(),
            names => names?,
        };
        let shown = names.iter().filter(|name| asker.is_root() || !name.starts_with(b"trusted."));
        sized(shown.flat_map(|name| name.iter().copied().chain([0])).collect(), room)
    }

    pub async fn setxattr(&self, asker: Asker, ino: u64, name: &[u8], value: &[u8], flags: i32) -> ClientResult<()> {
        if !is_supported(name) {
            return Err(Errno::EOPNOTSUPP.into());
        }
        if name == layout::NAME {
            return self.set_layout(asker, ino, value).await;
        }
        if name == layout::MIGRATE {
            return self.migrate(asker, ino, value).await;
        }
        if name == LAYOUT_XATTR {
            // Only the owner may set a layout; the kernel has checked write permission only.
            let fid = self.fid(ino);
            return asker
                .make(0, async |caller| self.client.setxattr(caller, fid, name, value, flags as u32).await)
                .await;
        }
        let fid = self.fid(ino);
        if is_acl(name) {
            // The asker's groups decide whether set-group-id stays.
            let set = async |caller: &_| self.client.setxattr(caller, fid, name, value, flags as u32).await;
            return match asker.make(S_ISGID, set).await {
                Err(error) if error.errno == Errno::EPERM && self.is_still_permitted(asker, fid).await? => {
                    set(&decided()).await
                }
                done => done,
            };
        }
        self.check_xattr(asker, fid, name).await?;
        let set = self.client.setxattr(&decided(), fid, name, value, flags as u32).await;
        match set {
            Err(error) if error.errno == Errno::ESTALE && self.races.attr(ino).is_some() => match flags {
                // The file is gone, so nobody sees its attributes: it has none to replace, and a new one is accepted.
                libc::XATTR_REPLACE => Err(Errno::ENODATA.into()),
                _ => Ok(()),
            },
            set => set,
        }
    }

    pub async fn removexattr(&self, asker: Asker, ino: u64, name: &[u8]) -> ClientResult<()> {
        if !is_supported(name) {
            return Err(Errno::EOPNOTSUPP.into());
        }
        self.check_xattr(asker, self.fid(ino), name).await?;
        self.of_gone(ino, self.client.removexattr(&decided(), self.fid(ino), name).await)
    }

    /// Access control lists and labels need the owner. The kernel sets and removes other attributes itself on behalf of
    /// a writer, or checks the current permissions.
    async fn check_xattr(&self, asker: Asker, fid: Fid, name: &[u8]) -> ClientResult<()> {
        let is_for_owners = is_acl(name) || name == LABEL;
        let is_allowed = !is_for_owners || self.is_still_permitted(asker, fid).await?;
        if is_allowed { Ok(()) } else { Err(Errno::EPERM.into()) }
    }

    /// For an inode that is gone, and held for a thread that looked it up without a handle: the attribute does not
    /// exist.
    fn of_gone<T>(&self, ino: u64, result: ClientResult<T>) -> ClientResult<T> {
        result.map_err(|error| match error.errno {
            Errno::ESTALE if self.races.attr(ino).is_some() => Errno::ENODATA.into(),
            _ => error,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_told_by_length_then_given_if_there_is_room() {
        let value = Bytes::from_static(b"four");
        assert_eq!(sized(value.clone(), 0), Ok(Sized::Length(4)));
        assert_eq!(sized(value.clone(), 3), Err(Errno::ERANGE.into()));
        assert_eq!(sized(value.clone(), 4), Ok(Sized::Value(value)));
    }
}
