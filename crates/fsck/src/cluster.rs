//! Checks that need several targets: files whose layouts refer to missing OSTs, and objects without files.

use std::collections::{BTreeMap, BTreeSet};

use forebay_proto::{Fid, FidSequence, TargetId, TargetKind, Uuid};

use crate::{
    Report,
    finding::{Device, Finding, Findings, Kind, Place, Severity},
    report::{Inventory, MdtInventory},
    rows::space,
};

/// Options for the comparison of reports.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClusterOptions {
    /// What had ended before the targets were examined.
    pub quiet: Quiet,
}

/// How quiet the cluster was when its targets were examined. It decides what an object without a file means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Quiet {
    /// Servers crashed: the object may belong to a create that they lost and will get from its client again.
    #[default]
    No,
    /// All servers were stopped cleanly. For a client that was lost within the last half minute the MDT has not
    /// collected the sequences yet; it does so when it runs again. An object in a sequence that is not leased is a
    /// leak.
    Servers,
    /// All sequences were returned, too: the object is a leak.
    All,
}

/// Compares the reports of a cluster's targets. It does not repeat the findings of these reports.
pub fn check_cluster(reports: &[Report], options: ClusterOptions) -> Report {
    let mut findings = Findings::default();
    check_identities(reports, &mut findings);
    name_swapped_devices(reports, &mut findings);
    let mut report = Report { name: "cluster".into(), ..Report::default() };
    let mdts: Vec<&MdtInventory> = reports.iter().filter_map(|report| mdt_of(report)).collect();
    let osts = osts(reports);
    let whole =
        |kind: TargetKind| !reports.iter().any(|r| r.incomplete && r.identity.is_some_and(|(_, _, t)| t.kind == kind));
    if !mdts.is_empty() {
        check_layouts(&mdts, &osts, &mut findings);
    }
    for report in reports.iter().filter(|report| matches!(report.inventory, Inventory::Ost(_)) && !report.incomplete) {
        mdts.iter().for_each(|mdt| check_sizes(mdt, report, &mut findings));
    }
    if !mdts.is_empty() && whole(TargetKind::Mdt) && !reports.iter().any(|report| report.identity.is_none()) {
        for (index, objects) in &osts {
            objects.iter().for_each(|fid| check_object(*index, *fid, &mdts, options, &mut findings));
        }
    } else {
        report.incomplete = !osts.is_empty();
    }
    // If part of an OST could not be read, its list of objects is not complete.
    report.incomplete |= !whole(TargetKind::Ost);
    report.take(findings);
    report
}

fn mdt_of(report: &Report) -> Option<&MdtInventory> {
    if let Inventory::Mdt(mdt) = &report.inventory { Some(mdt) } else { None }
}

fn osts(reports: &[Report]) -> BTreeMap<u32, &[Fid]> {
    let ost = |report: &'_ Report| report.identity.map(|(_, _, target)| target.index);
    let known = reports.iter().filter(|report| report.identity.is_some_and(|(_, _, t)| t.kind == TargetKind::Ost));
    let objects = known.filter_map(|report| {
        let objects: &[Fid] = if let Inventory::Ost(objects) = &report.inventory { objects } else { &[] };
        Some((ost(report)?, objects))
    });
    objects.collect()
}

fn check_identities(reports: &[Report], findings: &mut Findings) {
    let clusters: BTreeSet<Uuid> = reports.iter().filter_map(|r| r.identity.map(|(cluster, _, _)| cluster)).collect();
    if clusters.len() > 1 {
        let words = format!("these targets are of {} clusters", clusters.len());
        findings.add(Finding::error(Kind::Cluster, Place::Target, words));
    }
    let mut targets: BTreeMap<TargetId, &str> = BTreeMap::new();
    for report in reports {
        let Some((_, _, target)) = report.identity else { continue };
        if let Some(other) = targets.insert(target, &report.name) {
            let words = format!("{other} and {} are both {target}", report.name);
            findings.add(Finding::error(Kind::Cluster, Place::Target, words));
        }
    }
}

fn name_swapped_devices(reports: &[Report], findings: &mut Findings) {
    let owner = |uuid: Uuid| reports.iter().find_map(|r| r.identity.filter(|(_, own, _)| *own == uuid));
    for report in reports {
        let Some((_, _, target)) = report.identity else { continue };
        for (device, uuid) in &report.foreign {
            let Some((_, _, other)) = owner(*uuid) else { continue };
            let name = if *device == Device::Data { "data" } else { "journal" };
            let words = format!("{target} was given {other}'s {name} device");
            findings.add(Finding::error(Kind::WrongDevice, Place::Device(*device, 0), words));
        }
    }
}

fn check_layouts(mdts: &[&MdtInventory], osts: &BTreeMap<u32, &[Fid]>, findings: &mut Findings) {
    for mdt in mdts {
        let missing = |layout: &Vec<u32>| layout.iter().find(|ost| !osts.contains_key(ost)).copied();
        let missing: Vec<Option<u32>> = mdt.layouts.iter().map(missing).collect();
        for (fid, layout) in &mdt.files {
            if let Some(Some(ost)) = missing.get(*layout as usize) {
                let place = Place::Row([&[space::INODE][..], &fid.to_key()].concat());
                let words = format!("its layout names OST{ost:04x}, which is not among the targets checked");
                findings.add(Finding::error(Kind::UnknownOst, place, words));
            }
        }
    }
}

/// A file without holes that no client can write to has all the bytes of its size. An OST that lacks some lost them
/// together with their writer, or its state is older than the MDT's.
fn check_sizes(mdt: &MdtInventory, report: &Report, findings: &mut Findings) {
    let Some((_, _, target)) = report.identity else { return };
    let there = |fid: &Fid| {
        let found = report.object_bytes.binary_search_by_key(fid, |(fid, _)| *fid);
        found.map_or(0, |at| report.object_bytes[at].1)
    };
    let objects = mdt.dense.get(&target.index).into_iter().flatten();
    let short: Vec<_> =
        objects.map(|(fid, bytes)| (*fid, *bytes, there(fid))).filter(|(_, all, got)| got < all).collect();
    if short.is_empty() {
        return;
    }
    findings.add(lacks(target, short.len() as u64));
    for (fid, all, got) in short {
        let place = Place::Row([&[space::OBJECT][..], &fid.to_key()].concat());
        let words = format!(
            "bytes 0 to {all} of its object on {target} should be there, and {got} are: the others read as zeros"
        );
        findings.add(Finding::info(Kind::MayBeMissing, place, words));
    }
}

/// The finding for a target that lacks bytes of this many files.
pub(crate) fn lacks(target: TargetId, files: u64) -> Finding {
    let words = format!(
        "{target} lacks bytes of {files} files without holes: it lost power together with their writers, or it is an older copy of \
         itself. If it is a copy, other files may show older bytes, and lack what was written to them since"
    );
    Finding::info(Kind::MayBeMissing, Place::Target, words)
}

fn check_object(ost: u32, fid: Fid, mdts: &[&MdtInventory], options: ClusterOptions, findings: &mut Findings) {
    let place = || Place::Row([&[space::OBJECT][..], &fid.to_key()].concat());
    if let Some(layout) = mdts.iter().find_map(|mdt| mdt.osts(fid)) {
        if !layout.contains(&ost) {
            let words = format!("{fid} has an object on OST{ost:04x}, which its layout does not name");
            findings.add(Finding::error(Kind::StrayObject, place(), words));
        }
        return;
    }
    if mdts.iter().any(|mdt| mdt.destroys.contains(&(ost, fid))) {
        return;
    }
    let leased = mdts.iter().any(|mdt| mdt.leases.contains(&FidSequence(fid.sequence().0)));
    let severity = match (options.quiet, leased) {
        (Quiet::All, _) | (Quiet::Servers, false) => Severity::Error,
        (Quiet::No | Quiet::Servers, true) => Severity::Info,
        (Quiet::No, false) => Severity::Warning,
    };
    let words = format!("OST{ost:04x} has an object of {fid}, which is no file and is not to be destroyed");
    findings.add(Finding::new(severity, Kind::LeakedObject, place(), words));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fid(low: u64) -> Fid {
        Fid { high: 0, low }
    }

    fn mdt() -> Report {
        let inventory = MdtInventory {
            files: vec![(fid(1 << 20), 0), (fid(1 << 20 | 1), 1)],
            layouts: vec![vec![0], vec![0, 1]],
            destroys: [(0, fid(1 << 20 | 2))].into(),
            leases: [FidSequence(1)].into(),
            ..MdtInventory::default()
        };
        let identity = Some((Uuid([1; 16]), Uuid([2; 16]), TargetId::mdt(0)));
        Report { name: "m".into(), identity, inventory: Inventory::Mdt(inventory), ..Report::default() }
    }

    fn ost(index: u32, objects: &[u64]) -> Report {
        let identity = Some((Uuid([1; 16]), Uuid([10 + index as u8; 16]), TargetId::ost(index)));
        let inventory = Inventory::Ost(objects.iter().map(|low| fid(*low)).collect());
        Report { name: format!("o{index}"), identity, inventory, ..Report::default() }
    }

    fn check(reports: &[Report], quiet: Quiet) -> Report {
        check_cluster(reports, ClusterOptions { quiet })
    }

    #[test]
    fn files_objects_and_destroys_that_agree_are_clean() {
        let reports = [mdt(), ost(0, &[1 << 20, 1 << 20 | 1, 1 << 20 | 2]), ost(1, &[1 << 20 | 1])];
        let report = check(&reports, Quiet::All);
        assert!(report.is_clean() && report.findings.is_empty(), "{}", report.to_text(Severity::Info));
    }

    #[test]
    fn an_object_without_a_file_is_a_leak_once_the_cluster_is_quiet() {
        let reports = [mdt(), ost(0, &[1 << 20 | 9]), ost(1, &[])];
        let severities = |reports: &[Report]| {
            [Quiet::No, Quiet::Servers, Quiet::All].map(|quiet| check(reports, quiet).findings[0].severity)
        };
        assert_eq!(severities(&reports), [Severity::Info, Severity::Info, Severity::Error]);
        let nobodys = [mdt(), ost(0, &[7 << 20]), ost(1, &[])];
        assert_eq!(severities(&nobodys), [Severity::Warning, Severity::Error, Severity::Error]);
    }

    #[test]
    fn an_ost_that_lacks_bytes_of_files_without_holes_is_told() {
        let mut mdt = mdt();
        let Inventory::Mdt(inventory) = &mut mdt.inventory else { unreachable!() };
        inventory.dense.insert(1, vec![(fid(1 << 20), 900), (fid(1 << 20 | 1), 500)]);
        let mut short = ost(1, &[1 << 20 | 1]);
        short.object_bytes = vec![(fid(1 << 20 | 1), 500)];
        let report = check(&[mdt.clone(), ost(0, &[]), short.clone()], Quiet::No);
        assert_eq!((report.count_of(Kind::MayBeMissing), report.is_clean()), (2, true));
        let text = report.to_text(Severity::Error);
        assert!(text.contains("OST0001 lacks bytes of 1 files") && text.contains("bytes 0 to 900"), "{text}");
        short.object_bytes = vec![(fid(1 << 20), 900), (fid(1 << 20 | 1), 500)];
        assert_eq!(check(&[mdt, ost(0, &[]), short], Quiet::No).count_of(Kind::MayBeMissing), 0);
    }

    #[test]
    fn strays_and_missing_osts_are_told() {
        let report = check(&[mdt(), ost(0, &[]), ost(1, &[1 << 20])], Quiet::No);
        assert_eq!(report.count_of(Kind::StrayObject), 1);
        let report = check(&[mdt(), ost(0, &[])], Quiet::No);
        assert_eq!(report.count_of(Kind::UnknownOst), 1);
    }

    #[test]
    fn a_report_with_an_unread_target_says_that_not_all_was_compared() {
        let mut unread = ost(1, &[]);
        unread.incomplete = true;
        let report = check(&[mdt(), ost(0, &[]), unread], Quiet::No);
        assert!(report.incomplete && report.to_text(Severity::Error).contains("not all could be compared"));
        assert!(!check(&[mdt(), ost(0, &[]), ost(1, &[])], Quiet::No).incomplete);
    }

    #[test]
    fn swapped_devices_are_named_in_words() {
        let mut swapped = ost(0, &[]);
        swapped.foreign.push((Device::Data, Uuid([11; 16])));
        let text = check(&[mdt(), swapped, ost(1, &[])], Quiet::No).to_text(Severity::Error);
        assert!(text.contains("OST0000 was given OST0001's data device"), "{text}");
    }

    #[test]
    fn two_targets_of_one_name_and_two_clusters_are_told() {
        let mut other = ost(0, &[]);
        other.identity = Some((Uuid([9; 16]), Uuid([8; 16]), TargetId::ost(0)));
        assert_eq!(check(&[mdt(), ost(0, &[]), ost(1, &[]), other], Quiet::No).count_of(Kind::Cluster), 2);
    }
}
