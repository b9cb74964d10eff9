//! The course of a run: faults come, servers and mounts come back, workers continue, and everything is compared.

use std::time::{Duration, Instant};

use forebay_history::Dice;

use super::{
    crew::{Hand, Said},
    faults::Fault,
    hands,
    model::Death,
    probe::Probes,
    site::{Disks, Site},
    tally::Figures,
};
use crate::figures::Outcome;

/// Longest time without a fault.
const CALM_MS: u64 = 350;
/// The MDT's server number.
const MDT: usize = 0;
/// A mount that died alone had sent everything that was acknowledged this long before: twenty times the promised 50 ms.
const SENT_MS: u64 = 1000;
/// Longest time that a server may wait for a client that died. The server's next start ends the wait earlier.
const HAUNTED: Duration = Duration::from_secs(65);
/// One in this many power cuts of all servers is followed by fsck before they start again.
const FSCK_EVERY: u64 = 20;

/// A run.
pub struct Course {
    /// The cluster.
    pub site: Site,
    crew: Vec<Hand>,
    workers: u64,
    probes: Probes,
    dice: Dice,
    /// By server: when a client of it died that the server may wait for at its next start. An MDT is a client of each
    /// OST.
    haunted: Vec<Option<Instant>>,
    /// Number of times that all servers died.
    all_died: u64,
    /// The counters.
    pub figures: Figures,
}

impl Course {
    /// Starts the cluster, with workers on every mount.
    pub fn start(mut site: Site, workers: u64, seed: u64) -> Outcome<Self> {
        site.start()?;
        let mut probes = Probes::make(&site)?;
        probes.open(&site)?;
        std::fs::create_dir_all(site.point(0).join("work")).map_err(|error| format!("a directory: {error}"))?;
        site.setstripe(&site.point(0).join("work"), &["-c", "2", "-S", "64KiB"])?;
        let haunted = vec![None; site.servers.len()];
        let (dice, figures) = (Dice::new(seed), Figures::default());
        let mut course = Self { site, crew: Vec::new(), workers, probes, dice, haunted, all_died: 0, figures };
        course.man_all()?;
        Ok(course)
    }

    fn man_all(&mut self) -> Outcome {
        let mounts: Vec<usize> = (0..self.site.mounts.len()).collect();
        self.man(&mounts, Death::default())?;
        self.hear_nothing_bad()
    }

    /// Starts the workers of some mounts; they report when they are ready.
    fn man(&mut self, mounts: &[usize], death: Death) -> Outcome {
        for &mount in mounts {
            for number in (0..self.workers).map(|worker| mount as u64 * self.workers + worker) {
                let dir = self.site.point(mount).join("work").join(format!("w{number}"));
                let (notes, seed) = (self.site.notes(number), self.dice.roll() >> 1);
                let death = Death { level: self.site.levels[mount], ..death };
                self.crew.push(Hand::start(mount, number, &dir, &notes, seed, death)?);
            }
        }
        Ok(())
    }

    /// Causes one fault, and makes all comparisons after it.
    pub fn fault(&mut self, fault: &Fault) -> Outcome {
        std::thread::sleep(Duration::from_millis(self.dice.below(CALM_MS)));
        self.figures.faults += 1;
        let died_ms = hands::now_ms();
        let is_calm = !fault.stops_clients() && !fault.killed_servers().iter().any(|server| self.is_haunted(*server));
        match fault {
            Fault::Servers { servers, away_ms, again_ms } => {
                self.cut(servers)?;
                self.look_at_disks(fault)?;
                pause(*away_ms);
                for again_ms in again_ms {
                    servers.iter().try_for_each(|server| self.site.start_server(*server))?;
                    pause(*again_ms);
                    self.cut(servers)?;
                }
                self.raise(servers)?;
            }
            Fault::PauseServers { servers, ms } => {
                self.figures.paused += servers.len() as u64;
                servers.iter().for_each(|server| self.site.servers[*server].signal(libc::SIGSTOP));
                pause(*ms);
                servers.iter().for_each(|server| self.site.servers[*server].signal(libc::SIGCONT));
            }
            Fault::PauseMount { mount, ms, servers } => {
                self.figures.paused += 1;
                self.site.mounts[*mount].signal(libc::SIGSTOP);
                let begun = Instant::now();
                self.cut(servers)?;
                servers.iter().try_for_each(|server| self.site.start_server(*server))?;
                servers.iter().try_for_each(|server| self.site.servers[*server].ready())?;
                std::thread::sleep(Duration::from_millis(*ms).saturating_sub(begun.elapsed()));
                self.site.mounts[*mount].signal(libc::SIGCONT);
            }
            Fault::Mount { mount } => self.lose_mounts(&[*mount])?,
            Fault::Together { mounts, servers, away_ms } => {
                mounts.iter().for_each(|mount| self.site.mounts[*mount].signal(libc::SIGKILL));
                self.cut(servers)?;
                self.lose_mounts(mounts)?;
                self.look_at_disks(fault)?;
                pause(*away_ms);
                self.raise(servers)?;
            }
        }
        let alone = matches!(fault, Fault::Mount { .. });
        self.bring_back(
            fault.killed_mounts(),
            Death { alone, sent_before_ms: died_ms.saturating_sub(SENT_MS), ..Death::default() },
        )?;
        self.check(is_calm, fault.excuses_eio())
    }

    /// Kills servers at the same time.
    fn cut(&mut self, servers: &[usize]) -> Outcome {
        servers.iter().for_each(|server| self.site.servers[*server].signal(libc::SIGKILL));
        servers.iter().try_for_each(|server| self.site.servers[*server].wait())?;
        if servers.contains(&MDT) {
            // The next process of the MDT is a new client.
            self.haunted[MDT + 1..].fill(Some(Instant::now()));
        }
        match self.site.disks {
            Disks::Keep => self.figures.servers_killed += servers.len() as u64,
            Disks::Forget => self.figures.servers_cut += servers.len() as u64,
        }
        Ok(())
    }

    /// All servers are down: sometimes fsck checks their disks.
    fn look_at_disks(&mut self, fault: &Fault) -> Outcome {
        if fault.is_of_all_servers() {
            self.all_died += 1;
            if self.all_died % FSCK_EVERY == 1 {
                self.site.fsck()?;
                self.figures.fscks += 1;
            }
        }
        Ok(())
    }

    /// Starts servers, and sends a new request to each.
    fn raise(&mut self, servers: &[usize]) -> Outcome {
        servers.iter().try_for_each(|server| self.site.start_server(*server))?;
        self.probes.ask(servers)?;
        servers.iter().try_for_each(|server| self.site.servers[*server].ready())?;
        let answers = self.probes.answers(&self.site, servers)?;
        for &server in servers {
            let waits_in_vain = self.is_haunted(server);
            self.haunted[server] = None;
            let of_server = answers.iter().filter(|answer| answer.server == server);
            let times: Vec<Duration> = of_server.filter_map(|answer| answer.time).collect();
            let (Some(first), Some(last)) = (times.iter().min(), times.iter().max()) else { continue };
            if waits_in_vain {
                self.figures.first_with_dead.push(*first);
            } else {
                self.figures.first.push(*first);
                self.figures.last.push(*last);
            }
        }
        Ok(())
    }

    /// Kills mounts, and the workers on them.
    fn lose_mounts(&mut self, mounts: &[usize]) -> Outcome {
        for &mount in mounts {
            self.site.mounts[mount].kill()?;
            self.probes.forget(mount);
            *self.figures.mounts_killed.entry(self.site.levels[mount]).or_default() += 1;
        }
        self.haunted.fill(Some(Instant::now()));
        let (lost, crew) = std::mem::take(&mut self.crew).into_iter().partition(|hand| mounts.contains(&hand.mount));
        self.crew = crew;
        let lost: Vec<Hand> = lost;
        lost.into_iter().try_for_each(Hand::kill)
    }

    /// Mounts again, with new workers, which report at the next check.
    fn bring_back(&mut self, mounts: &[usize], death: Death) -> Outcome {
        if mounts.is_empty() {
            return Ok(());
        }
        mounts.iter().try_for_each(|mount| self.site.mount(*mount))?;
        self.man(mounts, if death.alone { death } else { Death::default() })?;
        let new: Vec<usize> = (0..self.crew.len()).filter(|at| mounts.contains(&self.crew[*at].mount)).collect();
        for at in new {
            let level = self.site.levels[self.crew[at].mount];
            match self.crew[at].hear()? {
                Said::Fine(tally) => self.figures.add(level, tally),
                Said::Told(words) => return Err(format!("a new mount was told {words}")),
            }
        }
        Ok(())
    }

    fn check(&mut self, is_calm: bool, excuses_eio: bool) -> Outcome {
        self.crew.iter_mut().for_each(|hand| hand.order("check"));
        let (mut told, longest) = self.hear_all()?;
        let stalls = if is_calm { &mut self.figures.stalls } else { &mut self.figures.other_stalls };
        stalls.push(longest);
        if !told.is_empty() && !excuses_eio {
            return Err(format!("told of a loss, and nobody was away: {told:?}"));
        }
        told.dedup_by_key(|(mount, _)| *mount);
        for (mount, _) in told {
            self.figures.told += 1;
            self.lose_mounts(&[mount])?;
            self.bring_back(&[mount], Death::default())?;
        }
        self.dead_processes()?;
        self.probes.open(&self.site)
    }

    /// Collects the reports of all workers: the mounts on which a program got an error for a loss, and the longest
    /// call.
    fn hear_all(&mut self) -> Outcome<(Vec<(usize, String)>, Duration)> {
        let (mut told, mut longest) = (Vec::new(), Duration::ZERO);
        for hand in &mut self.crew {
            match hand.hear()? {
                Said::Fine(tally) => {
                    longest = longest.max(tally.longest);
                    self.figures.add(self.site.levels[hand.mount], tally);
                }
                Said::Told(words) => told.push((hand.mount, words)),
            }
        }
        Ok((told, longest))
    }

    fn hear_nothing_bad(&mut self) -> Outcome {
        let (told, _) = self.hear_all()?;
        if told.is_empty() { Ok(()) } else { Err(format!("told of a loss, and nobody was away: {told:?}")) }
    }

    fn is_haunted(&self, server: usize) -> bool {
        self.haunted[server].is_some_and(|since| since.elapsed() < HAUNTED)
    }

    fn dead_processes(&mut self) -> Outcome {
        let all = self.site.servers.iter_mut().chain(&mut self.site.mounts);
        let dead: Vec<String> = all.filter_map(|process| process.has_ended().then(|| process.name.clone())).collect();
        if dead.is_empty() { Ok(()) } else { Err(format!("ended by themselves: {}", dead.join(", "))) }
    }

    /// Syncs everything, then kills everything: what was synced must be there. Then a clean stop, after which fsck must
    /// find nothing.
    pub fn finish(&mut self) -> Outcome<String> {
        self.crew.iter_mut().for_each(|hand| hand.order("sync"));
        self.hear_nothing_bad()?;
        let mounts = (0..self.site.mounts.len()).collect();
        self.fault(&Fault::Together { mounts, servers: (0..self.site.servers.len()).collect(), away_ms: 0 })?;
        self.crew.drain(..).try_for_each(Hand::kill)?;
        (0..self.site.mounts.len()).for_each(|mount| self.probes.forget(mount));
        self.site.stop()?;
        self.figures.fscks += 1;
        self.site.fsck()
    }

    /// Continues after [`Course::finish`] with other disks.
    pub fn resume(&mut self, disks: Disks) -> Outcome {
        self.site.disks = disks;
        self.haunted.fill(None);
        self.site.start()?;
        self.probes.open(&self.site)?;
        self.man_all()
    }
}

fn pause(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}
