//! Which replay is next: the smallest transno over all sessions, once no session can send a smaller one.

use forebay_env::{Bug, planted};
use forebay_proto::Transno;

/// State of one session's replays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head<Id> {
    /// The session.
    pub id: Id,
    /// Its smallest replay that has arrived; those still to come are larger.
    pub first: Option<Transno>,
    /// No more replays come.
    pub done: bool,
}

/// What recovery does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<Id> {
    /// A session might still send a smaller transno.
    Wait,
    /// Execute this one.
    Run(Id, Transno),
    /// All sessions are done.
    Finished,
}

/// Chooses the next replay.
pub fn next<Id: Copy>(heads: impl IntoIterator<Item = Head<Id>>) -> Next<Id> {
    let mut smallest = None;
    for head in heads {
        match head.first {
            Some(transno) if smallest.is_none_or(|(_, t)| transno < t) => smallest = Some((head.id, transno)),
            Some(_) => {}
            None if head.done => {}
            None if planted(Bug::ReplaysUnordered) && smallest.is_some() => {}
            None => return Next::Wait,
        }
    }
    smallest.map_or(Next::Finished, |(id, transno)| Next::Run(id, transno))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(id: u32, first: u64, done: bool) -> Head<u32> {
        Head { id, first: (first > 0).then_some(Transno(first)), done }
    }

    #[test]
    fn the_smallest_replay_runs_only_when_no_session_can_bring_a_smaller_one() {
        assert_eq!(next([head(1, 7, false), head(2, 5, false)]), Next::Run(2, Transno(5)));
        assert_eq!(next([head(1, 7, true), head(2, 0, false)]), Next::Wait);
        assert_eq!(next([head(1, 7, true), head(2, 0, true)]), Next::Run(1, Transno(7)));
        assert_eq!(next([head(1, 0, true), head(2, 0, true)]), Next::Finished);
        assert_eq!(next::<u32>([]), Next::Finished);
    }

    #[test]
    fn any_interleaving_of_arrivals_merges_into_one_order() {
        // A small linear congruential generator: the test must not depend on chance.
        let mut seed = 1u64;
        let mut random = move |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % n
        };
        for _ in 0..200 {
            let sessions = 1 + random(4) as usize;
            let mut coming: Vec<Vec<u64>> = vec![Vec::new(); sessions];
            (1..=20).for_each(|t| coming[random(sessions as u64) as usize].push(t));
            let mut here: Vec<Vec<u64>> = vec![Vec::new(); sessions];
            let mut ran = Vec::new();
            loop {
                let heads = (0..sessions).map(|i| Head {
                    id: i,
                    first: here[i].first().map(|t| Transno(*t)),
                    done: coming[i].is_empty(),
                });
                match next(heads) {
                    Next::Run(i, transno) => {
                        here[i].remove(0);
                        ran.push(transno.0);
                    }
                    Next::Finished => break,
                    Next::Wait => {
                        let i = random(sessions as u64) as usize;
                        if !coming[i].is_empty() {
                            let transno = coming[i].remove(0);
                            here[i].push(transno);
                        }
                    }
                }
            }
            assert_eq!(ran, (1..=20).collect::<Vec<_>>());
        }
    }
}
