//! Loads the server's memory from its rows at startup.

use bytes::Bytes;
use forebay_env::Env;
use forebay_proto::{DecodeError, Errno, ErrorReply, TargetKind, Transno};
use forebay_store::{Store, StoreResult, Txn};
use forebay_target::store_error;

use crate::{
    bootstrap::{self, Owner},
    halt::damaged,
    keys::{self, Key},
    limits,
    memory::Memory,
    opens::{OpenChange, decode_handle},
    ops::lease_sequence,
    placement::{Table, weigh},
};

/// Writes the first rows of a new MDT, durably. An MDT that has them is left unchanged.
pub async fn bootstrap(
    env: &Env,
    store: &Store,
    owner: Owner,
    osts: impl Iterator<Item = u32>,
) -> Result<(), ErrorReply> {
    let identity = store.identity();
    if identity.target.kind != TargetKind::Mdt {
        let message = format!("{} is not a metadata target; serve it as what it is", identity.target);
        return Err(ErrorReply::new(Errno::EINVAL, message));
    }
    let key = keys::superblock();
    if store.load(key.as_ref()).await.map_err(store_error)?.is_some() {
        return Ok(());
    }
    let table = weigh(&osts.map(|ost| (ost, None)).collect(), &Default::default(), &Table::default());
    write(env, store, owner, &table).await.map_err(store_error)
}

async fn write(env: &Env, store: &Store, owner: Owner, table: &Table) -> StoreResult<()> {
    let first = [keys::inode(forebay_proto::Fid::ROOT), keys::inode_count(), keys::placement(Transno(0))];
    store.prefetch(&first).await?;
    let mut txn: Txn = store.begin();
    bootstrap::write(&mut txn, owner, env.random_u64(), env.unix_time().0);
    txn.put(keys::placement(Transno(0)), table.encode());
    txn.apply()?;
    store.sync().await
}

/// Builds the memory from the rows.
pub async fn memory(store: &Store) -> Result<Memory, ErrorReply> {
    let superblock = required(store, keys::superblock(), bootstrap::decode_superblock).await?;
    let mut memory = Memory::new(store.identity().target.index, superblock);
    memory.inodes = required(store, keys::inode_count(), bootstrap::decode_counter).await?;
    if let Some(row) = store.load(keys::next_sequence().as_ref()).await.map_err(store_error)? {
        memory.next_sequence =
            bootstrap::decode_counter(&row).map_err(|error| damaged(keys::next_sequence().as_ref(), error))?;
    }
    each_row(store, keys::HANDLE, |key, value| {
        let (fid, session, handle) = keys::handle_of(key).ok_or(BAD_KEY)?;
        let (flags, client) = decode_handle(value)?;
        memory.opens.follow(OpenChange::Opened {
            fid,
            session,
            handle,
            flags,
            client,
            made: false,
            transno: Transno(0),
        });
        Ok(())
    })
    .await?;
    each_row(store, keys::LEASE, |key, value| {
        let sequence = keys::sequence_of(key).ok_or(BAD_KEY)?;
        memory.sequences.insert(sequence, lease_sequence::decode_lease(value)?);
        Ok(())
    })
    .await?;
    each_row(store, keys::TRUNCATE, |key, _| {
        memory.truncating.insert(keys::fid_of(key).ok_or(BAD_KEY)?);
        Ok(())
    })
    .await?;
    each_row(store, keys::PLACEMENT, |key, value| {
        memory.placement.push(keys::placement_of(key).ok_or(BAD_KEY)?, &Table::decode(value)?);
        Ok(())
    })
    .await?;
    Ok(memory)
}

const BAD_KEY: DecodeError = DecodeError::new("the key is too short");

async fn required<T>(
    store: &Store,
    key: Key,
    decode: impl Fn(&[u8]) -> Result<T, DecodeError>,
) -> Result<T, ErrorReply> {
    let row = store.load(key.as_ref()).await.map_err(store_error)?;
    let row = row.ok_or_else(|| damaged(key.as_ref(), DecodeError::new("it is missing")))?;
    decode(&row).map_err(|error| damaged(key.as_ref(), error))
}

/// Calls `each` for all rows whose keys begin with `kind`.
pub(crate) async fn each_row(
    store: &Store,
    kind: u8,
    mut each: impl FnMut(&[u8], &[u8]) -> Result<(), DecodeError>,
) -> Result<(), ErrorReply> {
    let (mut from, to) = (vec![kind], keys::after(&[kind]));
    loop {
        let rows: Vec<(Bytes, Bytes)> = store.scan(&from, &to, limits::SCAN_ROWS).await.map_err(store_error)?;
        for (key, value) in &rows {
            each(key, value).map_err(|error| {
                ErrorReply::new(Errno::EIO, format!("a row of kind {kind:#x} is damaged ({error}); run forebay fsck"))
            })?;
        }
        match rows.last() {
            Some((last, _)) if rows.len() == limits::SCAN_ROWS => {
                from = last.to_vec();
                from.push(0);
            }
            _ => return Ok(()),
        }
    }
}
