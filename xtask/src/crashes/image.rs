//! The write that each byte of a file comes from.

use std::{collections::BTreeMap, ops::Range};

/// Bytes by the sequence number of their write. Bytes not mentioned are zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// By start: end, write.
    runs: BTreeMap<u64, (u64, u32)>,
    /// Size of the file.
    pub size: u64,
}

impl Image {
    /// Makes an image from its parts; 0 stands for a hole.
    pub fn of(runs: &[(Range<u64>, u32)], size: u64) -> Self {
        let mut image = Self { runs: BTreeMap::new(), size };
        runs.iter().for_each(|(range, seq)| image.put(range.clone(), *seq));
        image
    }

    /// Enters a write, and extends the file to hold it.
    pub fn write(&mut self, range: Range<u64>, seq: u32) {
        self.size = self.size.max(range.end);
        self.put(range, seq);
    }

    /// Like [`Image::write`], but the size stays.
    pub fn put(&mut self, range: Range<u64>, seq: u32) {
        let touched: Vec<u64> = self.touched(&range).collect();
        for start in touched {
            let (end, old) = self.runs.remove(&start).expect("it was found");
            if start < range.start {
                self.runs.insert(start, (range.start, old));
            }
            if end > range.end {
                self.runs.insert(range.end, (end, old));
            }
        }
        if seq != 0 && !range.is_empty() {
            self.runs.insert(range.start, (range.end, seq));
        }
    }

    fn touched(&self, range: &Range<u64>) -> impl Iterator<Item = u64> {
        let before = self.runs.range(..range.start).next_back().filter(|(_, (end, _))| *end > range.start);
        let within = self.runs.range(range.start..range.end.max(range.start));
        before.into_iter().chain(within).map(|(start, _)| *start)
    }

    /// The writes in a range, and its holes; adjacent parts of one write are merged.
    pub fn within(&self, range: Range<u64>) -> Vec<(Range<u64>, u32)> {
        let mut found: Vec<(Range<u64>, u32)> = Vec::new();
        let mut push = |part: Range<u64>, seq: u32| match found.last_mut() {
            _ if part.is_empty() => {}
            Some((last, of)) if *of == seq && last.end == part.start => last.end = part.end,
            _ => found.push((part, seq)),
        };
        let mut at = range.start;
        for start in self.touched(&range) {
            let (end, seq) = self.runs[&start];
            push(at..start.max(at), 0);
            push(start.max(at)..end.min(range.end), seq);
            at = end.min(range.end);
        }
        push(at..range.end, 0);
        found
    }

    /// All parts that are not zero.
    pub fn runs(&self) -> impl Iterator<Item = (Range<u64>, u32)> {
        self.runs.iter().map(|(start, (end, seq))| (*start..*end, *seq))
    }
}

#[cfg(test)]
mod tests {
    use super::Image;

    #[test]
    fn later_writes_cover_earlier_ones() {
        let mut image = Image::default();
        image.write(10..30, 1);
        image.write(20..40, 2);
        image.write(12..14, 3);
        assert_eq!(image.within(0..40), [(0..10, 0), (10..12, 1), (12..14, 3), (14..20, 1), (20..40, 2)]);
        assert_eq!(image.within(13..25), [(13..14, 3), (14..20, 1), (20..25, 2)]);
        assert_eq!(image.within(50..60), [(50..60, 0)]);
        assert_eq!(Image::of(&image.within(0..40), 40), image);
        image.put(0..40, 0);
        assert_eq!((image.runs().count(), image.size), (0, 40));
    }
}
