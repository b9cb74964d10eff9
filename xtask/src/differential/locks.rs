//! Calls that take locks.

use super::{
    answer::{Answer, Fact},
    call::Call,
    place::Place,
    sys::{Arg::*, sys},
};

impl Place {
    /// Makes the call, if it is one of these.
    pub fn lock_call(&mut self, call: &Call) -> Option<Answer> {
        Some(match call {
            Call::Flock { slot, how } => {
                sys(libc::SYS_flock, &mut [Int(self.fd(*slot)), Int((how | libc::LOCK_NB).into())]).into()
            }
            Call::Lock { slot, open_file, kind, start, length } => {
                let command = if *open_file { libc::F_OFD_SETLK } else { libc::F_SETLK };
                let mut lock = lock(*kind, *start, *length);
                sys(libc::SYS_fcntl, &mut [Int(self.fd(*slot)), Int(command.into()), Struct(&mut lock)]).into()
            }
            Call::GetLock { slot, open_file, kind, start, length } => {
                let command = if *open_file { libc::F_OFD_GETLK } else { libc::F_GETLK };
                let mut lock = lock(*kind, *start, *length);
                let result = sys(libc::SYS_fcntl, &mut [Int(self.fd(*slot)), Int(command.into()), Struct(&mut lock)]);
                let answer = Answer::from(result);
                shown(&lock).into_iter().fold(answer, Answer::with)
            }
            _ => return None,
        })
    }

    /// Releases the locks of an open file.
    pub fn unlock(&self, fd: i64) {
        let _ = sys(libc::SYS_flock, &mut [Int(fd), Int(libc::LOCK_UN.into())]);
        let mut all = lock(libc::F_UNLCK, 0, 0);
        let _ = sys(libc::SYS_fcntl, &mut [Int(fd), Int(libc::F_OFD_SETLK.into()), Struct(&mut all)]);
    }
}

/// A `struct flock`, relative to the start of the file.
fn lock(kind: i32, start: i64, length: i64) -> Vec<u8> {
    let mut bytes = (kind as i16).to_le_bytes().to_vec();
    bytes.extend((libc::SEEK_SET as i16).to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(start.to_le_bytes());
    bytes.extend(length.to_le_bytes());
    bytes.extend([0; 8]);
    bytes
}

/// The owner is shown only as this process or another.
fn shown(lock: &[u8]) -> [Fact; 2] {
    let word = |at: usize| i64::from_le_bytes(lock[at..at + 8].try_into().expect("eight bytes"));
    let kind = i16::from_le_bytes(lock[..2].try_into().expect("two bytes"));
    let pid = i32::from_le_bytes(lock[24..28].try_into().expect("four bytes"));
    let owner = if pid == std::process::id() as i32 { "this process".to_owned() } else { pid.to_string() };
    let range = format!("kind {kind} from {} length {}", word(8), word(16));
    [Fact::Words("lock", range), Fact::Words("owner", owner)]
}
