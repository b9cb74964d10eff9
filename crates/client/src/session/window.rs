//! How many data requests may be in flight to one target. Pure but for the semaphore.
//!
//! A few keep a near target's network, processor and disks busy; so many are always allowed. A path with a long round trip holds many
//! more: what the target serves in a round trip. So the window follows the product of the rate that was reached and the round trip that
//! the network measures, which does not contain the time in queues. While the window is the limit, the rate grows with it, and so the
//! window grows until something else is the limit.
//!
//! Invariant: between [`MountOptions::rpcs_in_flight`](crate::MountOptions) and [`limits::RPCS_IN_FLIGHT_MOST`].

use std::{cell::RefCell, collections::VecDeque, time::Duration};

use forebay_env::{
    Time,
    sync::{Semaphore, SemaphorePermit},
};

use crate::limits;

/// See the module.
pub(crate) struct DataWindow {
    permits: Semaphore,
    state: RefCell<State>,
}

struct State {
    least: usize,
    /// Requests that may be in flight.
    requests: usize,
    /// Permits that are still to be taken back.
    excess: usize,
    in_flight: usize,
    rates: Rates,
}

/// What was served lately.
#[derive(Default)]
struct Rates {
    /// When the interval of now began, and requests and bytes served since.
    began: Time,
    requests: u64,
    bytes: u64,
    /// When earlier intervals ended, and requests and bytes per second of them, the last one at the end.
    past: VecDeque<(Time, f64, f64)>,
}

/// One of the requests in flight.
pub(crate) struct DataPermit<'a> {
    window: &'a DataWindow,
    permit: Option<SemaphorePermit<'a>>,
}

impl DataWindow {
    /// Of a target that may have `least` requests in flight at any distance.
    pub fn new(least: usize) -> Self {
        let least = least.max(1);
        let state = State { least, requests: least, excess: 0, in_flight: 0, rates: Rates::default() };
        Self { permits: Semaphore::new(least), state: RefCell::new(state) }
    }

    /// Waits until one more request may be in flight.
    pub async fn enter(&self, now: impl FnOnce() -> Time) -> DataPermit<'_> {
        let permit = self.permits.acquire().await.expect("the semaphore is never closed");
        if self.state.borrow().in_flight == 0 {
            // What went before is a rest, which says nothing about the rate.
            self.state.borrow_mut().rates.begin(now());
        }
        self.hold(permit)
    }

    fn hold<'a>(&'a self, permit: SemaphorePermit<'a>) -> DataPermit<'a> {
        self.state.borrow_mut().in_flight += 1;
        DataPermit { window: self, permit: Some(permit) }
    }

    /// A request that carried so many bytes, either way, was served. The network needs `round_trip` to the target and back.
    pub fn served(&self, now: Time, bytes: u64, round_trip: Duration) {
        let mut state = self.state.borrow_mut();
        if !state.rates.served(now, bytes) {
            return;
        }
        let wanted = state.rates.in_round_trip(now, round_trip).ceil() as usize;
        let requests = (state.least + wanted).min(limits::RPCS_IN_FLIGHT_MOST.max(state.least));
        if requests > state.requests {
            let kept = state.excess.min(requests - state.requests);
            state.excess -= kept;
            self.permits.add_permits(requests - state.requests - kept);
        } else {
            state.excess += state.requests - requests;
        }
        state.requests = requests;
    }

    /// Requests that may be in flight.
    pub fn requests(&self) -> usize {
        self.state.borrow().requests
    }

    /// Bytes per second that were reached lately; 0: there were too few requests to tell.
    pub fn bytes_per_s(&self, now: Time) -> f64 {
        self.state.borrow().rates.best(now).1
    }
}

impl Drop for DataPermit<'_> {
    fn drop(&mut self) {
        let mut state = self.window.state.borrow_mut();
        state.in_flight -= 1;
        if state.excess > 0 {
            state.excess -= 1;
            if let Some(permit) = self.permit.take() {
                permit.forget();
            }
        }
    }
}

impl Rates {
    /// From now on there are requests in flight.
    fn begin(&mut self, now: Time) {
        (self.began, self.requests, self.bytes) = (now, 0, 0);
    }

    /// True: an interval has ended.
    fn served(&mut self, now: Time, bytes: u64) -> bool {
        self.requests += 1;
        self.bytes += bytes;
        let passed = now.since(self.began);
        if passed < limits::RATE_INTERVAL {
            return false;
        }
        let per_s = |count: u64| count as f64 / passed.as_secs_f64();
        self.past.push_back((now, per_s(self.requests), per_s(self.bytes)));
        while self.past.front().is_some_and(|(ended, ..)| now.since(*ended) > limits::RATE_TERM) {
            self.past.pop_front();
        }
        self.begin(now);
        true
    }

    /// The highest rates.
    fn best(&self, now: Time) -> (f64, f64) {
        let recent = self.past.iter().filter(|(ended, ..)| now.since(*ended) <= limits::RATE_TERM);
        recent.fold((0.0, 0.0), |best, (_, requests, bytes)| (requests.max(best.0), bytes.max(best.1)))
    }

    /// Requests that are to be in flight for the sake of the distance.
    fn in_round_trip(&self, now: Time, round_trip: Duration) -> f64 {
        limits::WINDOW_GAIN * self.best(now).0 * round_trip.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Windows of a path with `round_trip`, whose far side serves `most` requests a second, after so many intervals each in which
    /// the program wants as many as it can have.
    fn windows(window: &DataWindow, now: &mut Time, round_trip: Duration, most: f64, intervals: u32) -> usize {
        for _ in 0..intervals {
            let by_window = window.requests() as f64 / (round_trip.as_secs_f64() + 1.0 / most);
            let served = (by_window.min(most) * limits::RATE_INTERVAL.as_secs_f64()) as u32;
            for number in 0..served {
                let at = limits::RATE_INTERVAL * (number + 1) / served;
                window.served(*now + at, 1 << 20, round_trip);
            }
            *now = *now + limits::RATE_INTERVAL;
        }
        window.requests()
    }

    #[test]
    fn a_near_target_has_the_least_and_a_far_one_what_the_path_holds() {
        let (window, mut now) = (DataWindow::new(8), Time(1 << 40));
        window.state.borrow_mut().rates.begin(now);
        assert_eq!(window.requests(), 8);
        assert!(windows(&window, &mut now, MS / 20, 2000.0, 30) <= 9);
        // 2 Gb/s over 19 ms hold 4.5 requests.
        let far = windows(&window, &mut now, 19 * MS, 238.0, 100);
        assert!((12..=16).contains(&far), "{far}");
        // 40 Gb/s hold 90.
        let faster = windows(&window, &mut now, 19 * MS, 4770.0, 100);
        assert!(faster >= limits::RPCS_IN_FLIGHT_MOST.min(98), "{faster}");
        let near = windows(&window, &mut now, MS / 20, 2000.0, 80);
        assert!(near <= 9, "{near}");
    }

    #[test]
    fn permits_follow_the_window_both_ways() {
        let (window, mut now) = (DataWindow::new(2), Time(1 << 40));
        window.state.borrow_mut().rates.begin(now);
        windows(&window, &mut now, 19 * MS, 1000.0, 60);
        let all = window.requests();
        assert!(all > 20 && window.permits.available_permits() == all);
        let held: Vec<_> = (0..all).map(|_| window.hold(window.permits.try_acquire().expect("it is free"))).collect();
        windows(&window, &mut now, MS / 20, 100.0, 80);
        let fewer = window.requests();
        assert!(fewer < 5, "{fewer}");
        drop(held);
        assert_eq!(window.permits.available_permits(), fewer);
    }

    #[test]
    fn a_rest_says_nothing_about_the_rate_and_a_slow_request_does() {
        let window = DataWindow::new(8);
        let enter = |at| {
            window.state.borrow_mut().rates.begin(at);
            window.served(at + MS, 1 << 20, 19 * MS);
        };
        enter(Time(1 << 40));
        let later = Time(1 << 41);
        enter(later);
        assert_eq!((window.requests(), window.bytes_per_s(later)), (8, 0.0));
        window.served(later + 1000 * MS, 1 << 20, 19 * MS);
        assert_eq!(window.bytes_per_s(later + 1000 * MS), f64::from(2 << 20));
        assert_eq!(window.bytes_per_s(later + 9000 * MS), 0.0, "it was long ago");
    }
}
