//! Tokens: a text with which one host joins the cluster, once.
//!
//! It holds what the host has to know to trust the MGS (the cluster, the public key of its authority), and a secret by
//! which the MGS knows the token.

use std::{fmt, str::FromStr};

use forebay_proto::Uuid;

use crate::{KeyError, KeyResult, PublicKey};

/// Bytes of a token's secret.
pub const SECRET_BYTES: usize = 16;

/// The hash by which a token's secret is known where it is kept.
pub fn secret_hash(secret: &[u8]) -> [u8; 32] {
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, secret);
    hash.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// A secret that nobody can guess, whatever chance the environment plays with.
pub fn random_secret() -> [u8; SECRET_BYTES] {
    let mut secret = [0; SECRET_BYTES];
    aws_lc_rs::rand::fill(&mut secret).expect("the operating system gives random bytes");
    secret
}

/// What every token begins with.
const PREFIX: &str = "forebay-token-";
const VERSION: u8 = 1;
/// Version, cluster, key, secret, and two bytes that show most mistakes of copying.
const BYTES: usize = 1 + 16 + 32 + SECRET_BYTES + 2;

/// A token for joining a cluster.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// The cluster.
    pub cluster: Uuid,
    /// Public key of its authority.
    pub authority: PublicKey,
    /// What proves that its owner was given it.
    pub secret: [u8; SECRET_BYTES],
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "token for cluster {}", self.cluster)
    }
}

impl Token {
    /// The text that a person copies to the host. Whoever has it can join.
    pub fn to_text(&self) -> String {
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(&self.cluster.0);
        bytes.extend_from_slice(&self.authority.0);
        bytes.extend_from_slice(&self.secret);
        let sum = sum(&bytes);
        bytes.extend_from_slice(&sum);
        let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
        format!("{PREFIX}{}", digits.collect::<String>())
    }
}

impl FromStr for Token {
    type Err = KeyError;

    fn from_str(text: &str) -> KeyResult<Self> {
        let wrong = |why: &str| KeyError::new(format!("that is not a token of `forebay token new`: {why}"));
        let digits = text.trim().strip_prefix(PREFIX).ok_or_else(|| wrong(&format!("it begins with {PREFIX}")))?;
        let bytes = from_hex(digits).ok_or_else(|| wrong("it holds other characters than 0-9 and a-f"))?;
        if bytes.len() != BYTES {
            return Err(wrong("it is cut off, or has more than one line"));
        }
        let (content, check) = bytes.split_at(BYTES - 2);
        if sum(content) != check {
            return Err(wrong("a character is wrong; copy it again"));
        }
        if content[0] != VERSION {
            return Err(wrong("it is of another release; install the same one on both hosts"));
        }
        let part = |from: usize, to: usize| &content[from..to];
        Ok(Self {
            cluster: Uuid(part(1, 17).try_into().expect("16 bytes")),
            authority: PublicKey(part(17, 49).try_into().expect("32 bytes")),
            secret: part(49, 65).try_into().expect("16 bytes"),
        })
    }
}

fn sum(bytes: &[u8]) -> [u8; 2] {
    let sum = forebay_proto::crc::crc64(bytes).to_le_bytes();
    [sum[0], sum[1]]
}

fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).filter(|_| !byte.is_ascii_uppercase());
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| Some((digit(pair[0])? << 4 | digit(*pair.get(1)?)?) as u8)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> Token {
        Token { cluster: Uuid([7; 16]), authority: PublicKey([8; 32]), secret: [9; SECRET_BYTES] }
    }

    #[test]
    fn a_token_comes_back_from_its_text_and_shows_its_secret_nowhere_else() {
        let text = token().to_text();
        assert_eq!(text.parse(), Ok(token()));
        assert_eq!(format!(" {text}\n").parse(), Ok(token()), "with what copying adds");
        assert!(!format!("{:?}", token()).contains("09"), "{:?}", token());
    }

    #[test]
    fn a_token_that_was_copied_badly_is_refused_in_words() {
        let text = token().to_text();
        let flipped = text.replacen("0707", "0708", 1);
        for (bad, words) in [
            ("", "begins with"),
            (&text[..text.len() - 2], "cut off"),
            (&flipped, "copy it again"),
            (&format!("{text}00"), "cut off"),
            (&text.replacen("07", "0x", 1), "0-9"),
        ] {
            let refused = bad.parse::<Token>().expect_err(words).to_string();
            assert!(refused.contains(words), "{refused}");
        }
    }
}
