use super::*;
use crate::testing::Dice;

fn room(left: &[(u32, u64)]) -> GrantedSpace {
    let room = GrantedSpace::default();
    left.iter().for_each(|(ost, left)| room.with(*ost, |share| (share.left, share.granted) = (*left, *left)));
    room
}

#[test]
fn what_is_used_is_not_left() {
    let room = room(&[(1, 1000), (2, 300)]);
    assert_eq!(room.lacking([1, 2, 3], 500), [2, 3]);
    room.used(1, 600);
    assert_eq!(room.lacking([1, 2, 3], 400), [2, 3]);
    assert_eq!(room.lacking([1], 401), [1]);
    room.used(1, 600);
    assert_eq!(room.lacking([1], 1), [1]);
}

#[test]
fn a_target_that_may_have_restarted_hears_what_is_counted_on_and_no_more_is() {
    let room = room(&[(1, 1000), (2, 300)]);
    assert_eq!((room.claim(1, 400), room.claim(2, 400), room.claim(3, 400)), (400, 300, 0));
    assert_eq!(room.lacking([1, 2], 401), [1, 2]);
    room.forget(1);
    assert_eq!(room.lacking([1], 1), [1]);
}

#[test]
fn what_nobody_counted_on_for_a_while_is_found() {
    let room = room(&[(1, 1000), (2, 1000), (3, 0)]);
    assert_eq!(room.lacking([1, 2], 10), []);
    assert_eq!(room.unused(0), []);
    assert_eq!(room.lacking([2], 10), []);
    assert_eq!((room.unused(1000), room.unused(999)), (vec![], vec![1, 2]));
    assert_eq!(room.unused(0), [], "it is being given back");
    // What the OST may have, though nobody counts on it any more.
    let room = self::room(&[(1, 1000)]);
    assert_eq!((room.claim(1, 0), room.has_any(), room.unused(0)), (0, true, vec![1]));
}

#[test]
fn an_ost_that_had_less_is_not_asked_again_at_once() {
    let room = room(&[(1, 100), (2, 100)]);
    room.with(1, |share| share.refused_until = Time(50));
    assert!(room.any_refuses(&[1, 2], Time(49)) && !room.any_refuses(&[1, 2], Time(50)));
    assert_eq!(room.low([1, 2], 200, Time(49)), [2]);
    assert_eq!(room.low([1, 2], 200, Time(50)), [1], "the other one is being asked");
}

/// A write that is buffered, and what it costs.
#[derive(Clone, Copy, Debug)]
struct Write {
    cost: u64,
    /// The OST has executed it, and its reply is on its way.
    is_executed: bool,
}

/// A request for a grant, on its way.
#[derive(Clone, Copy, Debug)]
struct Ask {
    bytes: u64,
    /// What was used as it was sent.
    used: u64,
    /// What the OST replied, once it has.
    reply: Option<u64>,
    gives_back: bool,
}

/// A client and an OST that grants what the client reports, restarts, and ends sessions.
struct Model {
    dice: Dice,
    seed: u64,
    room: GrantedSpace,
    buffered: Vec<u64>,
    sent: Vec<Write>,
    ask: Option<Ask>,
    /// What the OST has set aside for this client, and has for all.
    granted: u64,
    free: u64,
    accepted: u64,
    refused: u64,
}

const OST: u32 = 4;

impl Model {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let (buffered, sent, free) = (Vec::new(), Vec::new(), dice.below(20_000));
        let room = GrantedSpace::default();
        Self { dice, seed, room, buffered, sent, ask: None, granted: 0, free, accepted: 0, refused: 0 }
    }

    fn held(&self) -> u64 {
        self.buffered.iter().sum::<u64>() + self.sent.iter().map(|write| write.cost).sum::<u64>()
    }

    /// A write is buffered if the OST has granted room for it beside all that is held.
    fn write(&mut self) {
        let cost = cost(self.dice.below(900), 1 + self.dice.below(2));
        if self.room.lacking([OST], self.held() + cost).is_empty() {
            self.buffered.push(cost);
            self.accepted += 1;
        } else {
            self.refused += 1;
        }
    }

    fn send(&mut self) {
        if let Some(cost) = self.buffered.pop() {
            self.sent.push(Write { cost, is_executed: false });
        }
    }

    /// The OST executes a write, in any order: there is room for it, as it was granted.
    fn execute(&mut self) {
        let waiting: Vec<usize> = (0..self.sent.len()).filter(|at| !self.sent[*at].is_executed).collect();
        if waiting.is_empty() {
            return;
        }
        let write = &mut self.sent[waiting[self.dice.below(waiting.len() as u64) as usize]];
        let is_granted = write.cost <= self.granted;
        assert!(is_granted, "seed {}: {write:?} with {} granted", self.seed, self.granted);
        (write.is_executed, self.granted) = (true, self.granted.saturating_sub(write.cost));
    }

    fn hear(&mut self) {
        let executed: Vec<usize> = (0..self.sent.len()).filter(|at| self.sent[*at].is_executed).collect();
        if !executed.is_empty() {
            let write = self.sent.remove(executed[self.dice.below(executed.len() as u64) as usize]);
            self.room.asked(OST, u32::try_from(write.cost).expect("it is small"), &Ok(()));
        }
    }

    /// One request for more, or one that gives back, at a time.
    fn ask(&mut self) {
        if self.ask.is_some() {
            return;
        }
        let (held, gives_back) = (self.held(), self.dice.one_in(3));
        let used = self.room.with(OST, |share| share.used);
        let bytes = if gives_back { held } else { held + self.dice.below(20_000) };
        if gives_back {
            self.room.give_up(OST, held);
        } else if self.room.with(OST, |share| share.left) >= bytes {
            // No request for what it has granted.
            return;
        }
        self.ask = Some(Ask { bytes, used, reply: None, gives_back });
    }

    fn grant(&mut self) {
        if let Some(ask) = self.ask.as_mut().filter(|ask| ask.reply.is_none()) {
            let granted = ask.bytes.min(self.granted + self.free);
            self.free = self.free + self.granted - granted;
            (self.granted, ask.reply) = (granted, Some(granted));
        }
    }

    fn learn(&mut self) {
        let Some(Ask { used, reply: Some(bytes), gives_back, .. }) = self.ask else { return };
        self.ask = None;
        self.room.with(OST, |share| {
            if !gives_back {
                share.left = bytes.saturating_sub(share.used - used);
            }
            share.granted = bytes;
        });
    }

    /// The OST starts again without its grants, and takes over what the client counts on. What was not replied is sent again.
    fn restart(&mut self) {
        self.free += self.granted;
        self.granted = self.room.claim(OST, self.held());
        assert_eq!(self.granted, self.held(), "seed {}: all that is held is claimed", self.seed);
        self.free = self.free.saturating_sub(self.granted);
        if let Some(ask) = &mut self.ask {
            ask.reply = None;
        }
    }

    /// The OST ends the session: what is held is lost, and so are the grant and the requests.
    fn evict(&mut self) {
        (self.free, self.granted, self.ask) = (self.free + self.granted, 0, None);
        (self.buffered, self.sent) = (Vec::new(), Vec::new());
        self.room.forget(OST);
    }

    fn step(&mut self) {
        match self.dice.below(40) {
            0..12 => self.write(),
            12..18 => self.send(),
            18..23 => self.execute(),
            23..28 => self.hear(),
            28..31 => self.ask(),
            31..34 => self.grant(),
            34..37 => self.learn(),
            37 => self.restart(),
            38 => self.free = self.dice.below(20_000),
            _ if self.dice.one_in(4) => self.evict(),
            _ => {}
        }
        let executed: u64 = self.sent.iter().filter(|write| write.is_executed).map(|write| write.cost).sum();
        let left = self.room.with(OST, |share| share.left);
        let most = self.granted + executed;
        assert!(left <= most, "seed {}: {left} is counted on, of {most} granted", self.seed);
    }
}

#[test]
fn no_buffered_write_finds_less_room_at_the_ost_than_it_needs() {
    let (mut accepted, mut refused) = (0, 0);
    for seed in 0..400 {
        let mut model = Model::new(seed);
        (0..400).for_each(|_| model.step());
        accepted += model.accepted;
        refused += model.refused;
    }
    assert!(accepted > 3000 && refused > 3000, "{accepted} writes were buffered and {refused} were not");
}

#[test]
fn an_ost_with_room_grants_enough_again_after_a_restart_or_the_end_of_the_session() {
    for seed in 0..100 {
        let mut model = Model::new(seed);
        (0..100).for_each(|_| model.step());
        if model.dice.one_in(2) {
            model.restart()
        } else {
            model.evict()
        }
        while model.held() > 0 {
            model.send();
            model.execute();
            model.hear();
        }
        model.grant();
        model.learn();
        model.free = 50_000;
        model.ask =
            Some(Ask { bytes: 9000, used: model.room.with(OST, |share| share.used), reply: None, gives_back: false });
        model.grant();
        model.learn();
        assert_eq!(model.room.lacking([OST], 9000), [], "seed {seed}");
        assert_eq!(model.room.lacking([OST], 9001), [OST], "seed {seed}");
    }
}

#[test]
fn a_write_that_was_refused_for_want_of_room_uses_none_and_any_other_may_have() {
    let full: Result<(), RpcError> = Err(RpcError::Reply(Errno::ENOSPC.into()));
    let other: Result<(), RpcError> = Err(RpcError::Reply(Errno::EIO.into()));
    let gone: Result<(), RpcError> = Err(RpcError::Evicted("silent".into()));
    for (result, left) in [(&full, 1000), (&other, 900), (&gone, 900), (&Ok(()), 900)] {
        let room = room(&[(1, 1000)]);
        room.asked(1, 100, result);
        assert_eq!(room.with(1, |share| (share.left, share.used)), (left, 1000 - left), "{result:?}");
        room.asked(1, 0, result);
        assert_eq!(room.with(1, |share| share.left), left, "{result:?} of a request without bytes");
    }
}

#[test]
fn a_client_that_was_evicted_everywhere_counts_on_no_ost() {
    let room = room(&[(1, 1000), (2, 2000)]);
    assert!(room.has_any());
    room.forget_all();
    assert!(!room.has_any() && room.lacking([1, 2, 3], 1) == [1, 2, 3]);
    assert_eq!(room.unused(0), [], "there is nothing to give back");
    assert!(!room.over.get());
    room.end();
    assert!(room.over.get());
}

#[test]
fn a_piece_costs_room_beside_its_bytes() {
    assert_eq!((cost(0, 0), cost(100, 0), cost(100, 3)), (0, 100, 100 + 3 * limits::PIECE_SPACE_BYTES));
    assert_eq!(u64::from(request_cost(1 << 20, 16)), cost(1 << 20, 16));
}
