//! The line through two points: the cost of a request without bytes, and of each byte. Pure.

/// CPU time of requests of any length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// Microseconds of a request without bytes.
    pub us: f64,
    /// Nanoseconds of each byte.
    pub byte_ns: f64,
}

impl Line {
    /// The line through two measurements, the shorter request first: bytes and microseconds. Negative costs become 0.
    pub fn through((less, less_us): (u64, f64), (more, more_us): (u64, f64)) -> Self {
        let byte_ns = ((more_us - less_us) * 1e3 / (more - less) as f64).max(0.0);
        Self { us: (less_us - byte_ns * less as f64 / 1e3).max(0.0), byte_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_sizes_tell_the_cost_of_a_request_from_that_of_its_bytes() {
        let of = |bytes: u64| (bytes, 12.0 + 0.1 * bytes as f64 / 1e3);
        let line = Line::through(of(65_536), of(1 << 20));
        assert!((line.us - 12.0).abs() < 1e-6 && (line.byte_ns - 0.1).abs() < 1e-9, "{line:?}");
        assert_eq!(Line::through((1, 10.0), (2, 9.0)).byte_ns, 0.0);
    }
}
