//! When a certificate is valid: of a new one, and read from one (X.509, RFC 5280, 4.1).

use std::time::Duration;

use rustls::pki_types::CertificateDer;
use time::{Date, Month, PrimitiveDateTime, Time};

use crate::{KeyError, KeyResult};

/// When a certificate is valid, in time since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Not before.
    pub from: Duration,
    /// Not after.
    pub to: Duration,
}

/// How long a node's certificate is valid.
pub const NODE_LIFE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Clocks of hosts may differ by this much.
pub const CLOCKS_APART: Duration = Duration::from_secs(24 * 3600);

impl Validity {
    /// For a node that gets its certificate at `now`.
    pub fn of_a_node(now: Duration) -> Self {
        Self::from_now(now, NODE_LIFE)
    }

    /// For a node that gets a certificate for `life` at `now`.
    pub fn from_now(now: Duration, life: Duration) -> Self {
        Self { from: now.saturating_sub(CLOCKS_APART), to: now + life }
    }

    /// That of a certificate.
    pub fn of(certificate: &CertificateDer<'_>) -> KeyResult<Self> {
        read(certificate).ok_or_else(|| KeyError::new("the certificate does not say when it is valid"))
    }

    /// How long it was meant to be valid when it was signed.
    pub fn life(&self) -> Duration {
        match self.to.saturating_sub(self.from + CLOCKS_APART) {
            life if life.is_zero() => self.to.saturating_sub(self.from),
            life => life,
        }
    }

    /// When a node asks for the next certificate: at two thirds of this one's life.
    pub fn renewed_at(&self) -> Duration {
        self.to - self.life() / 3
    }

    /// True if less than a fifth of its life is left at `now`: renewal has failed for long.
    pub fn ends_soon(&self, now: Duration) -> bool {
        now + self.life() / 5 > self.to
    }
}

const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// In order: version, serial number, algorithm, issuer, validity.
fn read(certificate: &[u8]) -> Option<Validity> {
    let (certificate, _) = element(certificate, SEQUENCE)?;
    let (mut rest, _) = element(certificate, SEQUENCE)?;
    for tag in [0xa0, 0x02, SEQUENCE, SEQUENCE] {
        rest = element(rest, tag)?.1;
    }
    let (validity, _) = element(rest, SEQUENCE)?;
    let (from, rest) = instant(validity)?;
    let (to, _) = instant(rest)?;
    Some(Validity { from, to })
}

/// The content of the element of this tag at the front, and what follows it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&[found, length], rest) = bytes.split_first_chunk::<2>()?;
    let (length, rest) = match length {
        0..=0x7f => (usize::from(length), rest),
        0x81 => rest.split_first().map(|(length, rest)| (usize::from(*length), rest))?,
        0x82 => rest.split_first_chunk::<2>().map(|(length, rest)| (usize::from(u16::from_be_bytes(*length)), rest))?,
        _ => return None,
    };
    rest.split_at_checked(length).filter(|_| found == tag)
}

/// A time, always of UTC and with seconds, and what follows it.
fn instant(bytes: &[u8]) -> Option<(Duration, &[u8])> {
    let (is_short, (text, rest)) = match *bytes.first()? {
        UTC_TIME => (true, element(bytes, UTC_TIME)?),
        _ => (false, element(bytes, GENERALIZED_TIME)?),
    };
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let (year, text) = text.split_at_checked(if is_short { 2 } else { 4 })?;
    let year: i32 = year.parse().ok()?;
    // A year of two digits is between 1950 and 2049.
    let year = if is_short { year + if year < 50 { 2000 } else { 1900 } } else { year };
    let part = |at: usize| text.get(at..at + 2)?.parse::<u8>().ok();
    let date = Date::from_calendar_date(year, Month::try_from(part(0)?).ok()?, part(2)?).ok()?;
    let time = Time::from_hms(part(4)?, part(6)?, part(8)?).ok()?;
    let seconds = PrimitiveDateTime::new(date, time).assume_utc().unix_timestamp();
    Some((Duration::from_secs(u64::try_from(seconds).unwrap_or(0)), rest))
}

#[cfg(test)]
mod tests {
    use forebay_proto::Uuid;

    use super::*;
    use crate::{Authority, NodeKey, NodeName, Role};

    #[test]
    fn a_certificate_says_when_it_is_valid_before_and_after_2050() {
        let authority = Authority::make(Uuid([1; 16])).expect("an authority");
        let node = NodeName::new(authority.cluster(), Role::Client, "n1").expect("a name");
        let seconds = Duration::from_secs;
        for (from, to) in [(0, 1), (1_800_000_000, 1_900_000_001), (2_500_000_000, 2_600_000_000), (5, 9_223_372_036)] {
            let validity = Validity { from: seconds(from), to: seconds(to) };
            let key = NodeKey::make().expect("a key");
            let certificate = authority.sign(&node, key.public_key(), validity).expect("a certificate");
            assert_eq!(Validity::of(&certificate), Ok(validity));
            for length in 0..certificate.len().min(200) {
                let _ = Validity::of(&CertificateDer::from(certificate[..length].to_vec()));
            }
        }
        assert!(Validity::of(&CertificateDer::from(vec![0x30, 0x83, 1, 2, 3])).is_err());
    }

    #[test]
    fn a_certificate_is_renewed_at_two_thirds_and_ends_soon_in_its_last_fifth() {
        let seconds = Duration::from_secs;
        let validity = Validity { from: seconds(1000), to: seconds(4000) };
        assert_eq!(validity.renewed_at(), seconds(3000));
        assert!(
            !validity.ends_soon(seconds(3400))
                && validity.ends_soon(seconds(3401))
                && validity.ends_soon(seconds(9000))
        );
        let life = Validity::from_now(seconds(1_800_000_000), seconds(60));
        assert_eq!((life.to, life.from), (seconds(1_800_000_060), seconds(1_800_000_000 - 24 * 3600)));
        assert_eq!((life.life(), life.renewed_at()), (seconds(60), seconds(1_800_000_040)));
    }
}
