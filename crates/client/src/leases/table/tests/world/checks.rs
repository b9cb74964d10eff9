//! What has to hold after each step.

use super::*;

impl World {
    pub(super) fn is_alive(&self) -> bool {
        self.contact.is_some_and(|contact| contact + LEASE_CLIENT_TERM > self.now)
    }

    pub(super) fn is_changing(&self, dir: Fid) -> bool {
        self.under_way.get(&dir).is_some_and(|changes| *changes > 0)
    }

    /// The place of the last loss of a lease on the inode.
    pub(super) fn loss(&self, fid: Fid) -> u64 {
        of(&self.lost, &fid).max(self.all_lost)
    }

    /// Checks everything, in whatever state the table is.
    pub(super) fn check(&mut self) {
        self.check_table();
        self.check_kernel();
        if self.is_alive() {
            let used = self.table.used;
            self.check_attributes();
            self.check_names();
            self.check_data();
            self.check_changes();
            self.table.used = used;
        }
    }

    fn check_table(&self) {
        let table = &self.table;
        let names: usize = table.nodes.values().map(|node| node.names.len()).sum();
        assert_eq!(table.names, names, "names are counted");
        assert!(table.nodes.keys().all(|fid| table.order.contains(fid)), "every inode can be given up");
        let is_full = table.most_bytes == Some(0) && !table.nodes.is_empty();
        let oldest = table.order.front().copied().unwrap_or(Fid::ROOT);
        assert!(!is_full || self.is_changing(oldest), "only what is under way is kept beyond the bound");
        for (dir, changes) in &self.under_way {
            let counted = table.directories.get(dir).map_or(0, |directory| directory.under_way);
            assert_eq!(counted, *changes, "changes under way of {dir}");
        }
    }

    /// The kernel caches only what it will be notified of: now, when it is ready, or when the lease ends.
    fn check_kernel(&self) {
        for (told, (_, until)) in self.kernel.iter().filter(|(_, (_, until))| *until > self.now) {
            let (Told::Attributes(fid) | Told::Names(fid)) = *told;
            let noted = self.table.leased(fid).map_or(Time(0), |node| match told {
                Told::Attributes(_) => node.attributes_until,
                Told::Names(_) => node.names_until,
            });
            assert!(noted >= *until || self.is_coming(*told), "the kernel would not hear of {fid}");
        }
    }

    /// The kernel caches nothing that was recalled; a notification that it gets again on another occasion may be on its
    /// way.
    pub(super) fn check_kernel_dropped(&self, recalled: u64, fids: &[Fid]) {
        for told in fids.iter().flat_map(|fid| [Told::Attributes(*fid), Told::Names(*fid)]) {
            let believes = self.kernel.get(&told).filter(|(at, until)| *at < recalled && *until > self.now);
            assert!(believes.is_none() || self.is_coming(told), "the kernel believes what was recalled");
        }
    }

    fn is_coming(&self, told: Told) -> bool {
        let unheard = self.pending.iter().flat_map(|pending| &pending.unheard).chain(&self.table.to_tell.undelivered);
        unheard.copied().any(|dropped| is_about(dropped, told))
    }

    /// When its term is over nothing is believed.
    pub(super) fn check_time(&mut self) {
        if !self.is_alive() {
            self.table.now = self.now;
            for fid in Vec::from_iter(self.table.nodes.keys().copied()) {
                assert_eq!((self.table.entry(fid), self.table.written(fid)), (None, None));
                assert_eq!((self.table.is_leased(fid), self.table.may_keep(fid)), (false, Holds::Nothing));
                assert_eq!(self.table.answers_for(fid), None);
            }
        }
    }

    fn check_attributes(&mut self) {
        for fid in Vec::from_iter(self.table.nodes.keys().copied()) {
            for entry in [self.table.entry(fid), self.table.written(fid)].into_iter().flatten() {
                let (not_lost, not_changed) = self.seen[entry.attr.size as usize];
                assert!(not_lost >= self.loss(fid), "attributes of {fid} from before a loss of its lease");
                assert!(not_changed >= of(&self.changed, &fid), "attributes of {fid} from before a change");
                let is_waited = self.waited.get(&fid).is_some_and(|changes| *changes > 0);
                assert!(!is_waited || self.table.answers(fid), "attributes of {fid} during a change");
                self.believed += 1;
            }
        }
    }

    fn check_names(&mut self) {
        for (dir, name) in self.names.iter().map(|(dir, name, ..)| (*dir, *name)).collect::<BTreeSet<_>>() {
            let Some(node) = self.table.leased(dir) else { continue };
            let Some(known) = node.known(name) else { continue };
            let since = self.loss(dir).max(of(&self.name_changed, &(dir, name)));
            assert!(
                self.waited_names.get(&(dir, name)).is_none_or(|changes| *changes == 0),
                "a name during its change"
            );
            let brought =
                |source: &&(Fid, &[u8], u64, Option<Fid>)| (source.0, source.1, source.3) == (dir, name, known);
            let source = self.names.iter().filter(brought).map(|source| source.2).max();
            assert!(source.is_some_and(|source| source >= since), "a name of {dir} from before a loss or change");
            self.believed += 1;
        }
    }

    fn check_data(&mut self) {
        for fid in Vec::from_iter(self.table.data.keys().copied()) {
            let holds = self.table.holds(fid);
            let since = of(&self.data_lost, &fid).max(self.all_data_lost);
            let brought = self.data.iter().any(|(of, at, brought)| *of == fid && *at >= since && *brought == holds);
            assert!(holds == Holds::Nothing || brought, "data of {fid} from before its recall");
            self.believed += u64::from(holds != Holds::Nothing);
        }
    }

    fn check_changes(&mut self) {
        for dir in Vec::from_iter(self.table.directories.keys().copied()) {
            let since = of(&self.names_lost, &dir);
            if self.table.answers_for(dir).is_some() {
                let since = since.max(self.all_lost);
                assert!(
                    self.writes.iter().any(|(of, at)| *of == dir && *at >= since),
                    "changes of {dir} after a recall"
                );
                assert_eq!(self.paused.get(&dir).copied().unwrap_or(0), 0, "changes of {dir} while it is changed");
                self.believed += 1;
            }
            for (of, name) in self.names.iter().map(|(dir, name, ..)| (*dir, *name)).collect::<BTreeSet<_>>() {
                let Some(sole) = self.table.alone(dir, name).filter(|_| of == dir) else { continue };
                let since = since.max(self.loss(sole.fid));
                let brought = |(above, fid, at): &(Fid, Fid, u64)| (*above, *fid) == (dir, sole.fid) && *at >= since;
                assert!(self.alone.iter().any(brought), "somebody else may have a lease on {}", sole.fid);
                self.believed += 1;
            }
        }
    }
}
