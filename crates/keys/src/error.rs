//! What is wrong with a key, a certificate or a name, in words that say what to do.

use std::fmt;

/// What is wrong with a key, a certificate or a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyError(pub String);

/// The result of working with keys.
pub type KeyResult<T> = Result<T, KeyError>;

impl KeyError {
    pub(crate) fn new(words: impl Into<String>) -> Self {
        Self(words.into())
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for KeyError {}

impl From<rcgen::Error> for KeyError {
    fn from(error: rcgen::Error) -> Self {
        Self(format!("the key or certificate cannot be used: {error}"))
    }
}

impl From<rustls::Error> for KeyError {
    fn from(error: rustls::Error) -> Self {
        Self(format!("the key or certificate cannot be used: {error}"))
    }
}
