//! Pings: they bring last_committed where no other reply does, keep the session alive, and detect a dead connection.

use std::rc::Rc;

use forebay_proto::message::Ping;

use super::inner::{Control, Inner};
use crate::limits;

/// Checks the timers of a session until it is over.
pub(super) async fn run(inner: Rc<Inner>) {
    while !inner.over.is_raised() {
        let idle = inner.slots.in_use() == 0 && {
            let state = inner.state.borrow();
            state.replay.is_empty() && state.ping_sent_at.is_none()
        };
        if idle {
            forebay_env::sync::select! {
                biased;
                () = inner.over.wait() => return,
                () = inner.attention.notified() => {}
                () = inner.env.sleep(limits::KEEPALIVE) => {}
            }
        } else {
            forebay_env::sync::select! {
                biased;
                () = inner.over.wait() => return,
                () = inner.env.sleep(limits::TICK) => {}
            }
        }
        inner.look();
    }
}

impl Inner {
    fn look(&self) {
        let now = self.env.now();
        let (dead, ping) = {
            let state = self.state.borrow();
            if state.link.is_none() {
                return;
            }
            let (sent, received) = (now.since(state.sent_at), now.since(state.received_at));
            let dead = state.ping_sent_at.is_some_and(|at| now.since(at) >= limits::PING_TIMEOUT);
            let wants_news = !state.replay.is_empty() && received >= limits::COMMIT_NEWS;
            let wants_life = self.slots.in_use() > 0 && received >= limits::SILENCE;
            let keeps_alive = sent >= limits::KEEPALIVE;
            (dead, state.ping_sent_at.is_none() && (wants_news || wants_life || keeps_alive))
        };
        if dead {
            self.log(&format!("no answer to a ping for {:?}; connecting anew", limits::PING_TIMEOUT));
            if let Some(link) = &self.state.borrow().link {
                link.close();
            }
        } else if ping {
            self.ping(now);
        } else if self.pins.is_short() && self.is_up() {
            self.commit_soon();
        }
    }

    fn ping(&self, now: forebay_env::Time) {
        {
            let mut state = self.state.borrow_mut();
            state.ping_sent_at = Some(now);
            state.stats.pings += 1;
        }
        self.send_control(&Ping { commit: false }, Control::Ping { commit: false });
    }
}
