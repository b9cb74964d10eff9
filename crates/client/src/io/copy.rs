//! copy_file_range(2): from one file to another through this client, not through the program.
//!
//! Invariant: a call holds at most [`limits::COPY_STEP_BYTES`] at a time, and what it reports as copied was written.
//! Holes are passed over only by not being read: they arrive as zeros.

use bytes::Bytes;

use crate::{Client, ClientResult, OpenFile, limits};

impl Client {
    /// Copies up to `length` bytes from `offset_in` of `from` to `offset_out` of `to`. It copies less where `from`
    /// ends, after [`limits::COPY_BYTES`], when `enough` returns true between two steps, or when a step fails that is
    /// not the first. 0: `from` ends there.
    ///
    /// Errors: of a read or a write, if nothing was copied.
    pub async fn copy_range(
        &self,
        (from, offset_in): (&OpenFile, u64),
        (to, offset_out): (&OpenFile, u64),
        length: u64,
        enough: impl Fn() -> bool,
    ) -> ClientResult<u64> {
        from.check_read()?;
        to.check_write()?;
        let length = length.min(limits::COPY_BYTES);
        let mut copied = 0;
        while copied < length && !(copied > 0 && enough()) {
            let step = (length - copied).min(limits::COPY_STEP_BYTES) as usize;
            match self.copy_step((from, offset_in + copied), (to, offset_out + copied), step).await {
                Ok(0) => break,
                Ok(bytes) => copied += bytes,
                Err(_) if copied > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(copied)
    }

    async fn copy_step(&self, from: (&OpenFile, u64), to: (&OpenFile, u64), bytes: usize) -> ClientResult<u64> {
        let parts = self.read_parts(from.0, from.1, bytes).await?;
        if parts.iter().all(Bytes::is_empty) {
            return Ok(0);
        }
        Ok(self.write(to.0, to.1, parts).await? as u64)
    }
}
