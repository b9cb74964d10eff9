//! Descriptions of machines, as users write them: `machines/*.toml`.
//!
//! Invariant: every parameter states its source. A wrong description is rejected with a text before anything runs.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{
    MeasuredCosts,
    sections::{
        Clients, Cpu, JournalSection, Mds, Mount, Names, Network, Param, Servers, StoragePort, TierSection, Xdd,
    },
};

/// Parameters, of any section, that are counts.
const COUNTS: [&str; 11] = [
    "nodes",
    "osts_per_node",
    "osts_per_tier",
    "cores",
    "rpcs_in_flight",
    "changes_in_flight",
    "depth",
    "elevator",
    "programs",
    "tiers",
    "ports",
];
/// Most OSTs of a machine: as many as a file may have stripes.
const OSTS: u32 = forebay_proto::limits::STRIPES as u32;
/// Most transfers that all clients together have in flight.
const TRANSFERS: u32 = 65_536;

/// Journals on separate tiers.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct SasSection {
    /// Number of tiers; the OSTs are spread over them.
    pub tiers: Param,
    /// The device of each tier.
    pub tier: TierSection,
}

/// Journals on one shared device behind its own ports.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct SsdSection {
    /// Number of ports; the OSTs are spread over them.
    pub ports: Param,
    /// Time from a command to its reply.
    pub round_trip_us: Param,
    /// The device.
    pub tier: TierSection,
}

/// A described machine.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Name of the machine.
    pub name: String,
    /// A sentence that describes it.
    pub about: String,
    /// See [`Servers`].
    pub servers: Servers,
    /// See [`Clients`].
    pub clients: Clients,
    /// See [`Cpu`].
    pub cpu: Cpu,
    /// See [`Mount`]. If present, clients and servers share the servers' cores.
    pub mount: Option<Mount>,
    /// CPU costs of messages. Default: machines/cpu-costs.toml.
    pub costs: Option<MeasuredCosts>,
    /// See [`Network`].
    pub network: Network,
    /// See [`StoragePort`].
    pub port: StoragePort,
    /// The tier of each OST.
    pub tier: TierSection,
    /// See [`Xdd`].
    pub xdd: Option<Xdd>,
    /// See [`JournalSection`].
    pub journal: JournalSection,
    /// Devices for an MDT, by name.
    #[serde(default)]
    pub mdt: BTreeMap<String, TierSection>,
    /// See [`Mds`].
    pub mds: Option<Mds>,
    /// See [`Names`].
    pub names: Option<Names>,
    /// See [`SasSection`].
    pub sas: Option<SasSection>,
    /// See [`SsdSection`].
    pub ssd: Option<SsdSection>,
}

impl Machine {
    /// Parses a description. Errors: a text for its author.
    pub fn parse(text: &str) -> Result<Self, String> {
        let machine: Self = toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
        machine.check()?;
        Ok(machine)
    }

    /// Changes one parameter, to see how much the results change. Errors: text for the user.
    pub fn set(&mut self, name: &str, value: f64) -> Result<(), String> {
        let names: Vec<String> = self.checked().into_iter().map(|(name, ..)| name).collect();
        let names = names.join(", ");
        let (section, field) = name.rsplit_once('.').unwrap_or(("", name));
        let param = match section {
            "servers" => self.servers.get_mut(field),
            "clients" => self.clients.get_mut(field),
            "cpu" => self.cpu.get_mut(field),
            "mount" => self.mount.as_mut().and_then(|mount| mount.get_mut(field)),
            "network" => self.network.get_mut(field),
            "port" => self.port.get_mut(field),
            "tier" => self.tier.get_mut(field),
            "journal" => self.journal.get_mut(field),
            "mds" => self.mds.as_mut().and_then(|mds| mds.get_mut(field)),
            "names" => self.names.as_mut().and_then(|names| names.get_mut(field)),
            "xdd" => self.xdd.as_mut().and_then(|xdd| xdd.get_mut(field)),
            "sas.tier" => self.sas.as_mut().and_then(|sas| sas.tier.get_mut(field)),
            "ssd.tier" => self.ssd.as_mut().and_then(|ssd| ssd.tier.get_mut(field)),
            "ssd" if field == "round_trip_us" => self.ssd.as_mut().map(|ssd| &mut ssd.round_trip_us),
            _ => {
                let device = section.strip_prefix("mdt.").and_then(|device| self.mdt.get_mut(device));
                device.and_then(|device| device.get_mut(field))
            }
        };
        match param {
            Some(param) => param.value = value,
            None => return Err(format!("{name} is not a parameter of this machine; it has {names}")),
        }
        self.check()
    }

    /// Every parameter with the name of its section.
    pub fn parameters(&self) -> Vec<(String, &Param)> {
        self.checked().into_iter().map(|(name, param, _)| (name, param)).collect()
    }

    fn checked(&self) -> Vec<(String, &Param, (f64, f64))> {
        let mut sections = vec![
            ("servers", self.servers.each()),
            ("clients", self.clients.each()),
            ("cpu", self.cpu.each()),
            ("network", self.network.each()),
            ("port", self.port.each()),
            ("tier", self.tier.each()),
            ("journal", self.journal.each()),
        ];
        sections.extend(self.mount.iter().map(|mount| ("mount", mount.each())));
        sections.extend(self.mds.iter().map(|mds| ("mds", mds.each())));
        sections.extend(self.names.iter().map(|names| ("names", names.each())));
        sections.extend(self.xdd.iter().map(|xdd| ("xdd", xdd.each())));
        if let Some(sas) = &self.sas {
            sections.push(("sas", vec![("tiers", &sas.tiers, (1.0, 1000.0))]));
            sections.push(("sas.tier", sas.tier.each()));
        }
        if let Some(ssd) = &self.ssd {
            sections.push(("ssd", vec![("ports", &ssd.ports, (1.0, 1000.0))]));
            sections.push(("ssd", vec![("round_trip_us", &ssd.round_trip_us, (0.0, 1e6))]));
            sections.push(("ssd.tier", ssd.tier.each()));
        }
        let named = |(section, params): (&str, Vec<_>)| -> Vec<_> {
            let name = |(name, param, range): (&str, _, _)| (format!("{section}.{name}"), param, range);
            params.into_iter().map(name).collect()
        };
        let mut all: Vec<_> = sections.into_iter().flat_map(named).collect();
        for (device, tier) in &self.mdt {
            let each = tier.each().into_iter();
            all.extend(each.map(|(name, param, range)| (format!("mdt.{device}.{name}"), param, range)));
        }
        all
    }

    fn check(&self) -> Result<(), String> {
        for (name, param, (least, most)) in self.checked() {
            if !param.value.is_finite() || param.value < least || param.value > most {
                return Err(format!("{name} = {}: use {least} to {most}", param.value));
            }
            if param.source.trim().is_empty() {
                return Err(format!("{name} says no source: a measurement, a data sheet, or \"assumption: ...\""));
            }
        }
        for (name, param, _) in self.checked() {
            let field = name.rsplit('.').next().unwrap_or_default();
            if COUNTS.contains(&field) && param.value.fract() != 0.0 {
                return Err(format!("{name} = {}: it has to be a whole number", param.value));
            }
        }
        self.check_size()?;
        let apart = [self.sas.as_ref().map(|s| &s.tier), self.ssd.as_ref().map(|s| &s.tier)];
        for tier in std::iter::once(&self.tier).chain(apart.into_iter().flatten()).chain(self.mdt.values()) {
            tier.check()?;
        }
        self.costs.as_ref().map_or(Ok(()), |costs| costs.check().map_err(|words| format!("costs: {words}")))?;
        let (osts, shared) = (self.servers.osts_per_node.value, self.servers.osts_per_tier.value);
        if osts % shared != 0.0 {
            return Err(format!("servers.osts_per_tier = {shared}: {osts} OSTs do not lie evenly on them"));
        }
        if self.mount.is_some() && (self.servers.nodes.value, self.clients.nodes.value) != (1.0, 1.0) {
            return Err("with [mount] all is one machine: servers.nodes and clients.nodes have to be 1".into());
        }
        let (journal_gib, ost_gib) = (self.journal.mib.value / 1024.0, self.tier.gib() / shared);
        if journal_gib > ost_gib / 2.0 {
            return Err(format!("journal.mib = {}: an OST has {ost_gib} GiB", self.journal.mib.value));
        }
        Ok(())
    }

    /// Rejects machines that are too large: a simulation holds every OST and client in memory.
    fn check_size(&self) -> Result<(), String> {
        if self.osts() > OSTS {
            return Err(format!(
                "servers.nodes = {} with servers.osts_per_node = {} are {} OSTs: {OSTS} at most can be simulated",
                self.servers.nodes.value,
                self.servers.osts_per_node.value,
                self.osts()
            ));
        }
        let transfers = self.clients.nodes.count() * self.clients.rpcs_in_flight.count();
        if transfers > TRANSFERS {
            return Err(format!(
                "clients.nodes = {} with clients.rpcs_in_flight = {} are {transfers} transfers at a time: {TRANSFERS} at most can \
                 be simulated",
                self.clients.nodes.value, self.clients.rpcs_in_flight.value
            ));
        }
        Ok(())
    }

    /// Number of OSTs that share a tier.
    pub fn osts_per_tier(&self) -> u32 {
        self.servers.osts_per_tier.count()
    }

    /// Number of OSTs of the machine.
    pub fn osts(&self) -> u32 {
        self.servers.nodes.count() * self.servers.osts_per_node.count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPIDER: &str = include_str!("../../../machines/spider.toml");

    fn refused(from: &str, to: &str) -> String {
        assert!(SPIDER.contains(from), "{from}");
        Machine::parse(&SPIDER.replacen(from, to, 1)).expect_err(to)
    }

    #[test]
    fn spider_is_described_whole_with_every_source() {
        let machine = Machine::parse(SPIDER).expect("a machine");
        assert_eq!((machine.osts(), machine.clients.nodes.count()), (28, 28));
        assert!(machine.parameters().len() > 50);
    }

    #[test]
    fn a_parameter_can_be_changed_within_its_range() {
        let mut machine = Machine::parse(SPIDER).expect("a machine");
        machine.set("tier.stripe_kib", 4.0).expect("a parameter");
        assert_eq!(machine.parameters().iter().find(|(name, _)| name == "tier.stripe_kib").expect("it").1.value, 4.0);
        assert!(machine.set("tier.stripe_kib", -4.0).expect_err("nonsense").contains("use 0 to"));
        assert!(machine.set("tier.color", 4.0).expect_err("unknown").contains("not a parameter"));
    }

    #[test]
    fn nonsense_is_refused_in_words() {
        let cases = [
            ("{ value = 7450,", "{ value = -1,", "tier.gib = -1: use 1 to"),
            ("nodes = { value = 4,", "nodes = { value = 4.5,", "whole number"),
            ("cores = { value = 8,", "cores = { value = 7.5,", "servers.cores = 7.5: it has to be a whole number"),
            ("depth = { value = 2,", "depth = { value = 2.5,", "tier.depth = 2.5: it has to be a whole number"),
            (
                "elevator = { value = 0,",
                "elevator = { value = 0.5,",
                "tier.elevator = 0.5: it has to be a whole number",
            ),
            ("nodes = { value = 4,", "nodes = { value = 2000,", "are 14000 OSTs: 2000 at most"),
            ("nodes = { value = 28,", "nodes = { value = 10000,", "transfers at a time: 65536 at most"),
            ("seek_average_ms = { value = 8.5,", "seek_average_ms = { value = 80,", "have to grow"),
            ("\"3.2: 4 OSSs each with 7 OSTs\"", "\" \"", "says no source"),
            ("mib = { value = 400,", "mib = { value = nan,", "journal.mib = NaN"),
            ("[port]", "[porto]", "unknown field `porto`"),
            ("kind = \"heads\"", "kind = \"tape\"", "unknown variant `tape`"),
            ("cores = { value = 8,", "cores = { value = \"8\",", "invalid type"),
        ];
        for (from, to, words) in cases {
            let said = refused(from, to);
            assert!(said.contains(words), "{to}: {said}");
        }
        assert!(Machine::parse("name = 7").is_err());
    }
}
