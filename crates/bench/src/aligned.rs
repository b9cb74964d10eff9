//! Memory that O_DIRECT accepts.

/// A buffer that begins at a multiple of 4096 bytes.
pub struct AlignedBuffer {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

/// The alignment that O_DIRECT needs of memory, offsets and lengths.
pub const ALIGNMENT: usize = 4096;

impl AlignedBuffer {
    /// `length` bytes, already touched, so that no measurement includes page faults.
    pub fn new(length: usize) -> Self {
        let memory = vec![1; length + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        assert!(start <= ALIGNMENT, "bytes can be aligned to anything");
        Self { memory, start, length }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }

    /// The bytes, mutable.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}
