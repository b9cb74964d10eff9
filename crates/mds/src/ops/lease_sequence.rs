//! Leases a sequence of fids to a client.
//!
//! Invariant: the lease is durable before it is replied (the server waits for the commit): a fid is never assigned
//! twice.

use forebay_proto::{
    DecodeError, FidSequence, Reader, Uuid,
    message::{LeaseSequence, LeaseSequenceReply},
};

use crate::{bootstrap, halt::Step, keys, keys::Key, tx::Tx};

const VERSION: u8 = 1;

/// Rows worth prefetching together.
pub fn keys(_request: &LeaseSequence) -> [Key; 1] {
    [keys::next_sequence()]
}

/// Always succeeds.
pub fn apply(tx: &mut Tx<'_>, _request: &LeaseSequence) -> Step<LeaseSequenceReply> {
    tx.need_space()?;
    let sequence = FidSequence(tx.memory.next_sequence);
    tx.put(keys::next_sequence(), &bootstrap::encode_counter(sequence.0 + 1));
    let client = tx.origin.client;
    tx.put_with(keys::lease(sequence), |out| {
        out.push(VERSION);
        out.extend_from_slice(&client.0);
    });
    tx.effects.lease = Some((sequence, client));
    Ok(LeaseSequenceReply { mdt_index: tx.memory.mdt_index, sequence })
}

/// Reads a lease's row: the client that holds the lease.
pub fn decode_lease(bytes: &[u8]) -> Result<Uuid, DecodeError> {
    let mut r = Reader::new(bytes);
    if r.u8()? != VERSION {
        return Err(DecodeError::new("lease: a version this program does not know"));
    }
    Ok(Uuid(r.array()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::World;

    #[test]
    fn a_lease_is_a_row_that_names_the_client() {
        let mut world = World::new();
        world.memory.next_sequence = 5;
        let reply = world.run(|tx| apply(tx, &LeaseSequence {}));
        assert_eq!((reply.mdt_index, reply.sequence), (0, FidSequence(5)));
        let row = world.rows.get(keys::lease(reply.sequence).as_ref()).unwrap();
        assert_eq!(decode_lease(row), Ok(Uuid::from_random(0, 1)));
        let next = world.rows.get(keys::next_sequence().as_ref()).unwrap();
        assert_eq!(bootstrap::decode_counter(next), Ok(6));
    }
}
