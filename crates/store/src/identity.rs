//! The identity file: what a target's directory says it is.
//!
//! 512 bytes, sealed by a checksum. A reader refuses a format version or an incompatible feature bit that it does not
//! know. Its error names the bit, so that the operator can find the release that reads it.

use forebay_proto::{Reader, TargetId, TargetKind, Uuid, Writer, crc::crc64};

use crate::{StoreError, StoreErrorKind, StoreResult, limits};

/// Name of the file within the target's directory.
pub(crate) const FILE: &str = "identity";
/// First bytes of the file.
pub(crate) const MAGIC: [u8; 8] = *b"FBYIDENT";
/// Version of the whole format of a store.
pub(crate) const FORMAT_VERSION: u32 = 1;
/// Size of the file.
pub(crate) const BYTES: usize = 512;
/// Incompatible feature bits that this version reads and writes.
pub(crate) const INCOMPAT_KNOWN: u64 = MIRRORED;
/// Incompatible feature bit: this is one of two copies. A program that wrote only to this one would leave the other
/// behind.
pub(crate) const MIRRORED: u64 = 1;
/// Read-only-compatible feature bits that this version writes.
pub(crate) const RO_COMPAT_KNOWN: u64 = 0;

/// What a target's directory says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster it belongs to.
    pub cluster: Uuid,
    /// The target's own id, new at each format.
    pub uuid: Uuid,
    /// Its kind and number.
    pub target: TargetId,
    /// Bytes of a slab.
    pub slab_bytes: u64,
    /// Bytes of the device's full stripe.
    pub stripe_bytes: u64,
    /// Bytes of the data device.
    pub data_bytes: u64,
    /// Bytes of the journal.
    pub journal_bytes: u64,
    /// Raised by `fsck --repair`; sessions of an older generation are evicted.
    pub generation: u32,
    /// Feature bits.
    pub features: Features,
}

/// Feature bits: a reader that does not know a bit may use the store (compat), may only read it (ro_compat), or must
/// leave it alone (incompat).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// A reader may ignore unknown bits.
    pub compat: u64,
    /// A reader that does not know all bits may only read.
    pub ro_compat: u64,
    /// A reader that does not know all bits must not use the store.
    pub incompat: u64,
}

impl Identity {
    /// True if the store has two copies of its parts.
    pub fn is_mirrored(&self) -> bool {
        self.features.incompat & MIRRORED != 0
    }

    /// The file's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.bytes(&MAGIC);
        w.u32(FORMAT_VERSION);
        w.u32(BYTES as u32);
        w.u64(self.features.compat);
        w.u64(self.features.ro_compat);
        w.u64(self.features.incompat);
        w.bytes(&self.cluster.0);
        w.bytes(&self.uuid.0);
        w.u32(match self.target.kind {
            TargetKind::Mdt => 1,
            TargetKind::Ost => 2,
        });
        w.u32(self.target.index);
        w.u64(self.slab_bytes);
        w.u64(self.stripe_bytes);
        w.u32(limits::SECTOR as u32);
        w.u32(self.generation);
        w.u64(self.data_bytes);
        w.u64(self.journal_bytes);
        let mut bytes = w.into_vec();
        bytes.resize(BYTES - 8, 0);
        let sum = crc64(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads the file's bytes. Errors: `Foreign` (no Forebay target), `Unsupported` (newer), `Corrupt`.
    pub fn decode(bytes: &[u8]) -> StoreResult<Self> {
        if bytes.get(..8) != Some(&MAGIC) {
            return Err(StoreError::new(StoreErrorKind::Foreign, "the identity file is not that of a Forebay target"));
        }
        if bytes.get(8..12) != Some(&FORMAT_VERSION.to_le_bytes()) {
            return Err(StoreError::new(
                StoreErrorKind::Unsupported,
                format!("the target has another format version than {FORMAT_VERSION}; use the release that wrote it"),
            ));
        }
        let damaged =
            || StoreError::corrupt("the identity file is damaged; restore it from a copy, or see `forebay fsck`");
        let (body, sum) = bytes.get(..BYTES).ok_or_else(damaged)?.split_at(BYTES - 8);
        if crc64(body).to_le_bytes() != sum {
            return Err(damaged());
        }
        let identity = Self::fields(&body[16..]).map_err(|_| damaged())?;
        identity.refuse_unknown_features()?;
        identity.validate()?;
        Ok(identity)
    }

    fn fields(body: &[u8]) -> Result<Self, forebay_proto::DecodeError> {
        let mut r = Reader::new(body);
        let features = Features { compat: r.u64()?, ro_compat: r.u64()?, incompat: r.u64()? };
        let (cluster, uuid) = (Uuid(r.array()?), Uuid(r.array()?));
        let (kind, index) = (r.u32()?, r.u32()?);
        let kind = match kind {
            1 => TargetKind::Mdt,
            2 => TargetKind::Ost,
            _ => return Err(forebay_proto::DecodeError::new("target kind is neither MDT (1) nor OST (2)")),
        };
        let (slab_bytes, stripe_bytes) = (r.u64()?, r.u64()?);
        let (_sector, generation) = (r.u32()?, r.u32()?);
        let target = TargetId { kind, index };
        let (data_bytes, journal_bytes) = (r.u64()?, r.u64()?);
        Ok(Self { cluster, uuid, target, slab_bytes, stripe_bytes, data_bytes, journal_bytes, generation, features })
    }

    fn refuse_unknown_features(&self) -> StoreResult<()> {
        let unknown = self.features.incompat & !INCOMPAT_KNOWN | self.features.ro_compat & !RO_COMPAT_KNOWN;
        if unknown == 0 {
            return Ok(());
        }
        let words = format!(
            "{} has contents of a newer release: features {unknown:#x}, which this one does not know. Serve it with the \
             release that served it last, or a newer one",
            self.target
        );
        Err(StoreError::new(StoreErrorKind::Unsupported, words))
    }

    /// Refuses sizes that no store can have.
    pub(crate) fn validate(&self) -> StoreResult<()> {
        let sectors = |bytes: u64| bytes != 0 && bytes.is_multiple_of(limits::SECTOR);
        if !sectors(self.slab_bytes)
            || self.slab_bytes < limits::SLAB_BYTES_MIN
            || self.slab_bytes > limits::SLAB_BYTES_MAX
        {
            return Err(StoreError::invalid("the slab size must be a multiple of 4096 between 128 KiB and 1 GiB"));
        }
        if !sectors(self.stripe_bytes) || !self.slab_bytes.is_multiple_of(self.stripe_bytes) {
            return Err(StoreError::invalid("the slab size must be a multiple of the full stripe, and that of 4096"));
        }
        let slabs = self.data_bytes.saturating_sub(self.stripe_bytes) / self.slab_bytes;
        if slabs < limits::SLABS_MIN || slabs > u64::from(u32::MAX / 2) {
            return Err(StoreError::invalid(format!(
                "{slabs} slabs of {} bytes on a data device of {} bytes: at least {} are needed; use smaller slabs or a larger device",
                self.slab_bytes,
                self.data_bytes,
                limits::SLABS_MIN
            )));
        }
        if !sectors(self.journal_bytes) || self.journal_bytes < limits::JOURNAL_BYTES_MIN {
            return Err(StoreError::invalid(format!(
                "the journal must be a multiple of 4096 and at least {} bytes",
                limits::JOURNAL_BYTES_MIN
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn sample() -> Identity {
        Identity {
            cluster: Uuid([1; 16]),
            uuid: Uuid([2; 16]),
            target: TargetId::ost(3),
            slab_bytes: 16 << 20,
            stripe_bytes: 1 << 20,
            data_bytes: 1 << 30,
            journal_bytes: 16 << 20,
            generation: 7,
            features: Features::default(),
        }
    }

    #[test]
    fn identity_survives_its_bytes() {
        assert_eq!(Identity::decode(&sample().encode()).unwrap(), sample());
    }

    #[test]
    fn identity_has_the_bytes_of_the_format_page() {
        let bytes = sample().encode();
        assert_eq!(bytes.len(), 512);
        assert_eq!(&bytes[..16], b"FBYIDENT\x01\0\0\0\0\x02\0\0");
        assert_eq!((&bytes[40..56], &bytes[56..72]), (&[1; 16][..], &[2; 16][..]));
        assert_eq!(bytes[72..80], [2, 0, 0, 0, 3, 0, 0, 0]);
        assert_eq!(bytes[96..104], [0, 16, 0, 0, 7, 0, 0, 0]);
        assert_eq!(crc64(&bytes), crc64(&sample().encode()));
    }

    #[test]
    fn foreign_newer_and_damaged_identities_are_refused_with_words() {
        let kind = |bytes: &[u8]| Identity::decode(bytes).unwrap_err().kind;
        assert_eq!(kind(b"hello"), StoreErrorKind::Foreign);
        let mut newer = sample().encode();
        newer[8] = 2;
        assert_eq!(kind(&newer), StoreErrorKind::Unsupported);
        let mut rotten = sample().encode();
        rotten[90] ^= 1;
        assert_eq!(kind(&rotten), StoreErrorKind::Corrupt);
        assert_eq!(kind(&sample().encode()[..100]), StoreErrorKind::Corrupt);
    }

    #[test]
    fn an_unknown_incompatible_feature_is_named() {
        let identity = Identity { features: Features { incompat: 1 << 5, ..Features::default() }, ..sample() };
        let error = Identity::decode(&identity.encode()).unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Unsupported);
        assert!(error.message.contains("0x20"), "{error}");
        let harmless = Identity { features: Features { compat: 1, ..Features::default() }, ..sample() };
        assert!(Identity::decode(&harmless.encode()).is_ok());
    }
}
