//! Which thread works on which part of which object: arithmetic only.

use std::ops::RangeInclusive;

/// A row of the survey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Objects of each OST.
    pub objects: u32,
    /// Threads for each OST, the same number for each object.
    pub threads: u32,
}

/// A phase, in which all threads do the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// New objects.
    Write,
    /// Writes the same range again.
    Rewrite,
    Read,
    /// Not timed.
    Destroy,
}

impl Phase {
    /// The phases that are timed, in order.
    pub const TIMED: [Self; 3] = [Self::Write, Self::Rewrite, Self::Read];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Rewrite => "rewrite",
            Self::Read => "read",
            Self::Destroy => "destroy",
        }
    }
}

/// One phase of one repetition.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    pub phase: Phase,
    /// Number of the row's repetition, counted over all rows. Each has its own objects.
    pub run: u32,
    pub osts: u32,
    /// Bytes of each OST.
    pub size: u64,
    /// Bytes of a request.
    pub rsz: u64,
    pub point: Point,
}

/// A thread's part of an object: `requests`, one after another, from byte `from` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    pub object: u32,
    pub from: u64,
    pub requests: u64,
}

impl Work {
    /// The parts of the threads of one OST.
    pub fn shares(&self) -> Vec<Share> {
        shares(self.point, self.size / u64::from(self.point.threads) / self.rsz, self.rsz)
    }

    /// The parts of the threads of all OSTs, on files that are as long as the objects of all OSTs together.
    pub fn striped_shares(&self) -> Vec<Share> {
        let point = Point { threads: self.point.threads * self.osts, ..self.point };
        shares(point, self.size / u64::from(self.point.threads) / self.rsz, self.rsz)
    }

    /// Bytes that are written or read, on all OSTs.
    pub fn bytes(&self) -> u64 {
        let requests: u64 = self.shares().iter().map(|share| share.requests).sum();
        requests * self.rsz * u64::from(self.osts)
    }
}

fn shares(point: Point, requests: u64, rsz: u64) -> Vec<Share> {
    let of_object = point.threads / point.objects;
    let share = |thread: u32| Share {
        object: thread / of_object,
        from: u64::from(thread % of_object) * requests * rsz,
        requests,
    };
    (0..point.threads).map(share).collect()
}

/// All rows: the objects double, and for each number of objects the threads double. Only rows with the same number of
/// threads for every object.
pub fn points(objects: RangeInclusive<u32>, threads: RangeInclusive<u32>) -> Vec<Point> {
    let doubled = |range: RangeInclusive<u32>| {
        std::iter::successors(Some(*range.start()), |n| n.checked_mul(2)).take_while(move |n| range.contains(n))
    };
    let of = |objects: u32| doubled(threads.clone()).map(move |threads| Point { objects, threads });
    doubled(objects).flat_map(of).filter(|point| point.threads % point.objects == 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(objects: u32, threads: u32) -> Work {
        let point = Point { objects, threads };
        Work { phase: Phase::Write, run: 0, osts: 3, size: 8 << 20, rsz: 1 << 20, point }
    }

    #[test]
    fn rows_double_and_every_object_has_as_many_threads() {
        let rows: Vec<(u32, u32)> = points(1..=4, 1..=8).iter().map(|p| (p.objects, p.threads)).collect();
        assert_eq!(rows, [(1, 1), (1, 2), (1, 4), (1, 8), (2, 2), (2, 4), (2, 8), (4, 4), (4, 8)]);
        assert_eq!(points(3..=3, 1..=2), []);
    }

    #[test]
    fn threads_share_an_object_without_gaps_or_overlaps() {
        for (objects, threads) in [(1, 1), (1, 4), (2, 4), (4, 4), (2, 8)] {
            let work = work(objects, threads);
            for shares in [work.shares(), work.striped_shares()] {
                for object in 0..objects {
                    let mut at = 0;
                    for share in shares.iter().filter(|share| share.object == object) {
                        assert_eq!(share.from, at, "{shares:?}");
                        at += share.requests << 20;
                    }
                }
                assert!(shares.iter().all(|share| share.object < objects));
            }
            let all: u64 = work.striped_shares().iter().map(|share| share.requests << 20).sum();
            assert_eq!((work.bytes(), all), (24 << 20, 24 << 20));
        }
    }
}
