//! Placement: which OSTs hold a new file's stripes.
//!
//! A replayed create must give the layout that its client received, or what the client wrote since is lost. So the
//! choice is a pure function of the request (fid, requested layout) and of a [`Table`] of weights and pools. Tables are
//! rows: a new one is committed before the first create uses it, and names the transno from which it is in force.
//!
//! Invariant: the same fid, spec and table always give the same layout.
//! Invariant: the OSTs of one component are distinct; only the first component of a new file has any.
//! Not here: where free space comes from (`background::poll`), when later components get theirs (`ops::extend`).

mod slow;
mod spec;
mod table;
mod wheel;

pub use slow::SlowOsts;
pub use spec::{check, resolve, takes_files};
pub use table::{OstSpace, Table, check_pool_name, weigh};
pub use wheel::Wheels;

use forebay_proto::{Component, Errno, ErrorReply, Fid, Layout, Transno, limits, message::ComponentSpec};

/// The tables in use: the newest, and older ones as long as replays may refer to them.
#[derive(Default)]
pub struct Placement {
    wheels: Vec<(Transno, Wheels)>,
    newest: Option<Table>,
}

impl Placement {
    /// Adds `table`, in force for transnos above `from`. The caller adds tables in that order.
    pub fn push(&mut self, from: Transno, table: &Table) {
        self.wheels.retain(|(old, _)| *old != from);
        self.wheels.push((from, Wheels::new(table)));
        self.wheels.sort_by_key(|(from, _)| *from);
        self.newest = Some(table.clone());
    }

    /// The wheels in force at `transno`.
    pub fn at(&self, transno: Transno) -> Option<&Wheels> {
        self.wheels.iter().rev().find(|(from, _)| *from < transno).map(|(_, wheels)| wheels)
    }

    /// The newest table.
    pub fn newest_table(&self) -> Option<&Table> {
        self.newest.as_ref()
    }

    /// Forgets tables that no transno above `last_committed` can refer to; returns the transnos from which they were in
    /// force.
    pub fn prune(&mut self, last_committed: Transno) -> Vec<Transno> {
        let current = self.wheels.iter().rposition(|(from, _)| *from <= last_committed).unwrap_or(0);
        self.wheels.drain(..current).map(|(from, _)| from).collect()
    }
}

/// The layout of `fid` for resolved components. If there are fewer OSTs than requested, the file has fewer stripes, as
/// with Lustre.
pub fn choose(fid: Fid, parts: &[ComponentSpec], wheels: &Wheels, generation: u32) -> Result<Layout, ErrorReply> {
    let mut components: Vec<Component> = Vec::with_capacity(parts.len());
    for part in parts {
        let start = components.last().map_or(0, |last| last.end);
        components.push(Component {
            start,
            end: part.end,
            stripe_bytes: part.stripe_bytes,
            stripe_count: part.stripe_count,
            stripe_index: part.stripe_index,
            pool: part.pool.clone(),
            osts: Vec::new(),
        });
    }
    let mut layout = Layout { generation, objects: None, components, former: Vec::new() };
    fill(fid, &mut layout, 0, wheels, &[])?;
    Ok(layout)
}

/// Assigns OSTs to the component `number`, except `full` ones. Errors: ENOSPC if there is none, EINVAL for an unknown
/// OST.
pub fn fill(fid: Fid, layout: &mut Layout, number: usize, wheels: &Wheels, full: &[u32]) -> Result<(), ErrorReply> {
    let component = &mut layout.components[number];
    let count = match component.stripe_count {
        u32::MAX => limits::STRIPES,
        count => (count as usize).max(1),
    };
    let first = component.stripe_index;
    if first != u32::MAX && !wheels.all().has(first) {
        return Err(no_such_ost(first));
    }
    // If the pool was removed since the request, the file is created anyway, as with Lustre.
    let wheel = wheels.of(&component.pool).unwrap_or(wheels.all());
    let named = if full.contains(&first) { None } else { wheel.from(first, count) };
    component.osts = named.unwrap_or_else(|| wheel.spread(fid, number as u64, count, full));
    if component.osts.is_empty() {
        let place = if component.pool.is_empty() { String::new() } else { format!(" of pool {}", component.pool) };
        let words = format!("no OST{place} is there that has room; see `forebay df` and `forebay status`");
        return Err(ErrorReply::new(Errno::ENOSPC, words));
    }
    (component.stripe_count, component.stripe_index) = (component.osts.len() as u32, u32::MAX);
    Ok(())
}

fn no_such_ost(index: u32) -> ErrorReply {
    ErrorReply::new(Errno::EINVAL, format!("there is no OST with index {index}; see `forebay status`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(count: u32, index: u32) -> [ComponentSpec; 1] {
        let (end, stripe_bytes, pool) = (forebay_proto::FOR_EVER, 1 << 20, String::new());
        [ComponentSpec { end, stripe_count: count, stripe_bytes, stripe_index: index, pool }]
    }

    fn wheel(weights: &[u8]) -> Wheels {
        let pools = [("odd".to_owned(), [1, 3].into())].into();
        Wheels::new(&Table { weights: (0..).zip(weights.iter().copied()).collect(), pools })
    }

    /// The OSTs of the only component.
    fn osts(fid: Fid, spec: &[ComponentSpec], wheels: &Wheels) -> Result<Vec<u32>, ErrorReply> {
        Ok(choose(fid, spec, wheels, 1)?.components.remove(0).osts)
    }

    fn fid(number: u64) -> Fid {
        Fid { high: 0, low: 1 << 20 | number }
    }

    #[test]
    fn files_of_one_client_go_round_all_osts() {
        let wheel = wheel(&[4, 4, 4]);
        let mut firsts: Vec<u32> = (1..4).map(|n| osts(fid(n), &spec(1, u32::MAX), &wheel).unwrap()[0]).collect();
        firsts.sort();
        assert_eq!(firsts, [0, 1, 2]);
    }

    #[test]
    fn a_full_or_dead_ost_is_passed_over_and_a_freer_one_gets_more() {
        let wheel = wheel(&[0, 1, 3]);
        let mut files = [0; 3];
        for number in 0..400 {
            files[osts(fid(number), &spec(1, u32::MAX), &wheel).unwrap()[0] as usize] += 1;
        }
        assert_eq!(files, [0, 100, 300]);
    }

    #[test]
    fn stripes_lie_on_different_osts_and_minus_one_means_all() {
        let wheel = wheel(&[1, 16, 5, 9]);
        for number in 0..50 {
            let mut osts = osts(fid(number), &spec(u32::MAX, u32::MAX), &wheel).unwrap();
            osts.sort();
            assert_eq!(osts, [0, 1, 2, 3]);
        }
    }

    #[test]
    fn the_requested_index_comes_first_even_if_it_is_full() {
        let wheel = wheel(&[1, 0, 1]);
        assert_eq!(osts(fid(1), &spec(2, 1), &wheel).unwrap(), [1, 2]);
        assert_eq!(osts(fid(1), &spec(2, 2), &wheel).unwrap(), [2, 0]);
        assert_eq!(osts(fid(1), &spec(1, 7), &wheel).unwrap_err().errno, Errno::EINVAL);
    }

    #[test]
    fn without_any_ost_there_is_no_space() {
        assert_eq!(osts(fid(1), &spec(1, u32::MAX), &wheel(&[])).unwrap_err().errno, Errno::ENOSPC);
    }

    #[test]
    fn a_pool_keeps_files_to_itself_and_one_that_is_gone_binds_nobody() {
        let wheel = wheel(&[9, 1, 9, 1]);
        let part = |pool: &str| [ComponentSpec { pool: pool.into(), ..spec(4, u32::MAX)[0].clone() }];
        for number in 0..50 {
            let mut odd = osts(fid(number), &part("odd"), &wheel).unwrap();
            odd.sort();
            assert_eq!(odd, [1, 3]);
        }
        assert_eq!(osts(fid(1), &part("gone"), &wheel).unwrap().len(), 4);
    }

    #[test]
    fn only_the_first_component_has_osts_and_a_later_one_passes_full_ones_over() {
        let (wheel, [part]) = (wheel(&[1, 1, 1]), spec(2, u32::MAX));
        let parts = [ComponentSpec { end: 1 << 20, ..part.clone() }, part];
        let mut layout = choose(fid(1), &parts, &wheel, 1).unwrap();
        assert_eq!((layout.components[0].osts.len(), layout.components[1].osts.len()), (2, 0));
        fill(fid(1), &mut layout, 1, &wheel, &[0, 2]).unwrap();
        assert_eq!((&layout.components[1].osts[..], layout.components[1].stripe_count), (&[1][..], 1));
        assert_eq!(fill(fid(1), &mut layout, 1, &wheel, &[0, 1, 2]).unwrap_err().errno, Errno::ENOSPC);
    }

    #[test]
    fn a_replay_finds_the_table_of_its_time() {
        let mut placement = Placement::default();
        placement.push(Transno(0), &Table { weights: [(0, 1)].into(), ..Table::default() });
        placement.push(Transno(10), &Table { weights: [(1, 1)].into(), ..Table::default() });
        let ost = |transno| placement.at(Transno(transno)).unwrap().all().spread(fid(1), 0, 1, &[])[0];
        assert_eq!((ost(10), ost(11)), (0, 1));
        assert_eq!(placement.prune(Transno(9)), []);
        assert_eq!(placement.prune(Transno(10)), [Transno(0)]);
        assert!(placement.at(Transno(11)).is_some());
    }
}
