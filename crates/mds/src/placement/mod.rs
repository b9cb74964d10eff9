//! Which OSTs a new file's stripes lie on.
//!
//! A replayed create must give the layout its client was told, or what the client wrote since is lost. So the choice is
//! a pure function of the request (fid, layout asked for) and of a [`Table`] of weights, and tables are rows: a new one
//! is committed before the first create uses it, and says from which transno on it is in force.
//!
//! Invariant: same fid, same spec, same table: same layout, for all time.
//! Invariant: the OSTs of one layout are distinct.
//! Not here: where free space comes from (`background::poll`).

mod table;
mod wheel;

pub use table::{OstSpace, Table, weigh};
pub use wheel::Wheel;

use forebay_proto::{Errno, ErrorReply, Fid, Layout, Transno, limits, message::LayoutSpec};

/// The tables that can be asked for: the newest, and older ones as long as replays may name them.
#[derive(Default)]
pub struct Placement {
    wheels: Vec<(Transno, Wheel)>,
    newest: Option<Table>,
}

impl Placement {
    /// `table` is in force for transnos above `from`; tables come in that order.
    pub fn push(&mut self, from: Transno, table: &Table) {
        self.wheels.retain(|(old, _)| *old != from);
        self.wheels.push((from, Wheel::new(table)));
        self.wheels.sort_by_key(|(from, _)| *from);
        self.newest = Some(table.clone());
    }

    /// The wheel in force at `transno`.
    pub fn at(&self, transno: Transno) -> Option<&Wheel> {
        self.wheels.iter().rev().find(|(from, _)| *from < transno).map(|(_, wheel)| wheel)
    }

    /// The newest table.
    pub fn newest_table(&self) -> Option<&Table> {
        self.newest.as_ref()
    }

    /// Forgets tables that no transno above `last_committed` can name; returns where they began.
    pub fn prune(&mut self, last_committed: Transno) -> Vec<Transno> {
        let current = self.wheels.iter().rposition(|(from, _)| *from <= last_committed).unwrap_or(0);
        self.wheels.drain(..current).map(|(from, _)| from).collect()
    }
}

/// What is asked for, with what is left open taken from the directory, then from the file system.
pub fn resolve(
    asked: &LayoutSpec,
    directory: Option<&LayoutSpec>,
    default_bytes: u32,
    default_count: u32,
) -> LayoutSpec {
    let inherit = LayoutSpec::inherit();
    let directory = directory.unwrap_or(&inherit);
    let first = |values: [u32; 3], open: u32| values.into_iter().find(|value| *value != open).unwrap_or(open);
    LayoutSpec {
        stripe_count: first([asked.stripe_count, directory.stripe_count, default_count], 0),
        stripe_bytes: first([asked.stripe_bytes, directory.stripe_bytes, default_bytes], 0),
        stripe_index: first([asked.stripe_index, directory.stripe_index, u32::MAX], u32::MAX),
        pool: if asked.pool.is_empty() { directory.pool.clone() } else { asked.pool.clone() },
    }
}

/// Refuses (EINVAL) a spec that no layout can follow.
pub fn check(spec: &LayoutSpec) -> Result<(), ErrorReply> {
    let invalid = |what: String| Err(ErrorReply::new(Errno::EINVAL, what));
    if !spec.stripe_bytes.is_multiple_of(limits::STRIPE_BYTES_MIN) {
        return invalid(format!("a stripe of {} bytes is not a multiple of 64 KiB", spec.stripe_bytes));
    }
    if spec.stripe_count != u32::MAX && spec.stripe_count as usize > limits::STRIPES {
        return invalid(format!("{} stripes are more than the {} a file can have", spec.stripe_count, limits::STRIPES));
    }
    if spec.pool.is_empty() { Ok(()) } else { invalid(format!("there is no pool named '{}'", spec.pool)) }
}

/// The layout of `fid` by a resolved `spec`. Fewer OSTs than asked for give fewer stripes, as with Lustre.
pub fn choose(fid: Fid, spec: &LayoutSpec, wheel: &Wheel, generation: u32) -> Result<Layout, ErrorReply> {
    check(spec)?;
    let count = match spec.stripe_count {
        u32::MAX => limits::STRIPES,
        count => (count as usize).max(1),
    };
    let osts = match spec.stripe_index {
        u32::MAX => wheel.spread(fid, count),
        first => wheel.from(first, count).ok_or_else(|| {
            ErrorReply::new(Errno::EINVAL, format!("there is no OST with index {first}; see `forebay status`"))
        })?,
    };
    if osts.is_empty() {
        return Err(ErrorReply::new(Errno::ENOSPC, "no OST is there that could take a new file; see `forebay status`"));
    }
    Ok(Layout { generation, stripe_bytes: spec.stripe_bytes, osts })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(count: u32, index: u32) -> LayoutSpec {
        LayoutSpec { stripe_count: count, stripe_bytes: 1 << 20, stripe_index: index, pool: String::new() }
    }

    fn wheel(weights: &[u8]) -> Wheel {
        Wheel::new(&Table { weights: (0..).zip(weights.iter().copied()).collect() })
    }

    fn fid(number: u64) -> Fid {
        Fid { high: 0, low: 1 << 20 | number }
    }

    #[test]
    fn files_of_one_client_go_round_all_osts() {
        let wheel = wheel(&[4, 4, 4]);
        let mut firsts: Vec<u32> =
            (1..4).map(|n| choose(fid(n), &spec(1, u32::MAX), &wheel, 1).unwrap().osts[0]).collect();
        firsts.sort();
        assert_eq!(firsts, [0, 1, 2]);
    }

    #[test]
    fn a_full_or_dead_ost_is_passed_over_and_a_freer_one_gets_more() {
        let wheel = wheel(&[0, 1, 3]);
        let mut files = [0; 3];
        for number in 0..400 {
            files[choose(fid(number), &spec(1, u32::MAX), &wheel, 1).unwrap().osts[0] as usize] += 1;
        }
        assert_eq!(files, [0, 100, 300]);
    }

    #[test]
    fn stripes_lie_on_different_osts_and_minus_one_means_all() {
        let wheel = wheel(&[1, 16, 5, 9]);
        for number in 0..50 {
            let mut osts = choose(fid(number), &spec(u32::MAX, u32::MAX), &wheel, 1).unwrap().osts;
            osts.sort();
            assert_eq!(osts, [0, 1, 2, 3]);
        }
    }

    #[test]
    fn the_index_asked_for_comes_first_even_if_it_is_full() {
        let wheel = wheel(&[1, 0, 1]);
        assert_eq!(choose(fid(1), &spec(2, 1), &wheel, 1).unwrap().osts, [1, 2]);
        assert_eq!(choose(fid(1), &spec(2, 2), &wheel, 1).unwrap().osts, [2, 0]);
        assert_eq!(choose(fid(1), &spec(1, 7), &wheel, 1).unwrap_err().errno, Errno::EINVAL);
    }

    #[test]
    fn without_any_ost_there_is_no_space() {
        assert_eq!(choose(fid(1), &spec(1, u32::MAX), &wheel(&[]), 1).unwrap_err().errno, Errno::ENOSPC);
    }

    #[test]
    fn what_is_left_open_comes_from_the_directory_then_from_the_file_system() {
        let asked = LayoutSpec { stripe_count: 3, ..LayoutSpec::inherit() };
        let directory = LayoutSpec { stripe_count: 9, stripe_index: 4, ..LayoutSpec::inherit() };
        let resolved = resolve(&asked, Some(&directory), 1 << 20, 1);
        assert_eq!((resolved.stripe_count, resolved.stripe_bytes, resolved.stripe_index), (3, 1 << 20, 4));
    }

    #[test]
    fn a_replay_finds_the_table_of_its_time() {
        let mut placement = Placement::default();
        placement.push(Transno(0), &Table { weights: [(0, 1)].into() });
        placement.push(Transno(10), &Table { weights: [(1, 1)].into() });
        let ost = |transno| placement.at(Transno(transno)).unwrap().spread(fid(1), 1)[0];
        assert_eq!((ost(10), ost(11)), (0, 1));
        assert_eq!(placement.prune(Transno(9)), []);
        assert_eq!(placement.prune(Transno(10)), [Transno(0)]);
        assert!(placement.at(Transno(11)).is_some());
    }
}
