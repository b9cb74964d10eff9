//! Addresses that servers listen on: `tcp:HOST:PORT`, `unix:PATH` or `mem:NAME` (within this process).

use std::{fmt, str::FromStr};

use crate::{EnvError, EnvErrorKind};

/// An address a server listens on and a client connects to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    /// `tcp:HOST:PORT`. Port 0 asks the system for a free port; [`crate::Listener::address`] returns which one it is.
    Tcp(String),
    /// `unix:PATH`: a Unix socket on this host. The path is at most 107 bytes long.
    Unix(String),
    /// `mem:NAME`: within this process. In the simulator, a name that any node can reach over its links.
    Mem(String),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(a) => write!(f, "tcp:{a}"),
            Self::Unix(a) => write!(f, "unix:{a}"),
            Self::Mem(a) => write!(f, "mem:{a}"),
        }
    }
}

impl FromStr for Address {
    type Err = EnvError;

    fn from_str(text: &str) -> Result<Self, EnvError> {
        match text.split_once(':') {
            Some(("tcp", rest)) if rest.contains(':') => Ok(Self::Tcp(rest.into())),
            Some(("unix", rest)) if !rest.is_empty() => Ok(Self::Unix(rest.into())),
            Some(("mem", rest)) if !rest.is_empty() => Ok(Self::Mem(rest.into())),
            Some((host, port)) if port.parse::<u16>().is_ok() && !host.is_empty() => Ok(Self::Tcp(text.into())),
            _ => Err(EnvError::new(
                EnvErrorKind::InvalidInput,
                format!("'{text}' is not an address; use HOST:PORT or unix:PATH"),
            )),
        }
    }
}
