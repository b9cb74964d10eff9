//! The members of the cluster, pure: what each request changes, as rows.
//!
//! Invariant: whatever was set can be read from the rows again ([`Members::row`] is the only way in).

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use forebay_env::{Bug, planted};
use forebay_keys::{NodeName, PublicKey, Role, secret_hash};
use forebay_proto::{
    Decode, DecodeError, Encode, Errno, ErrorReply, TargetId, TargetKind, Uuid,
    message::{Ban, Bans, ClusterMap, Join, ListNodesReply, MapTarget, NewToken, NodeInfo, TokenInfo},
};

use super::rows::{self, NodeRow, Row, SigningRow, TargetRow, TenantRow, TokenRow};
use crate::{keys::Key, limits};

/// A row that is set, or removed.
pub type Edit = (Key, Option<Vec<u8>>);

/// What a request changes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Edits {
    /// The rows.
    pub rows: Vec<Edit>,
    /// The map changes: its epoch moves.
    pub moves_map: bool,
}

impl Edits {
    pub(super) fn set(&mut self, key: Key, value: &impl Encode) {
        let mut bytes = vec![rows::VERSION];
        bytes.extend_from_slice(&value.to_bytes());
        self.rows.push((key, Some(bytes)));
    }

    pub(super) fn set_tenant(&mut self, project: u32, row: &TenantRow) {
        self.rows.push((rows::tenant(project), Some(row.value())));
    }

    fn remove(&mut self, key: Key) {
        self.rows.push((key, None));
    }
}

/// A host that is about to join.
#[derive(Debug, PartialEq, Eq)]
pub struct Joining {
    /// What changes.
    pub edits: Edits,
    /// Its role.
    pub role: Role,
    /// Indices of its OSTs.
    pub osts: Vec<u32>,
}

/// The members of the cluster beside those that its description names.
#[derive(Clone, Debug, Default)]
pub struct Members {
    /// How often the map has changed.
    changes: u32,
    nodes: BTreeMap<PublicKey, NodeRow>,
    tokens: BTreeMap<[u8; 32], TokenRow>,
    targets: BTreeMap<TargetId, TargetRow>,
    bans: BTreeMap<Vec<u8>, Ban>,
    pub(super) signing: Option<SigningRow>,
    /// By their projects.
    pub(super) tenants: BTreeMap<u32, TenantRow>,
    /// Projects of nodes and tokens.
    pub(super) tenancies: BTreeMap<[u8; 32], u32>,
}

impl Members {
    /// A row was set or removed.
    pub fn row(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), DecodeError> {
        fn follow<K: Ord, V: Decode>(
            map: &mut BTreeMap<K, V>,
            key: K,
            value: Option<&[u8]>,
        ) -> Result<(), DecodeError> {
            match value {
                Some(value) => drop(map.insert(key, V::from_bytes(value)?)),
                None => drop(map.remove(&key)),
            }
            Ok(())
        }
        let row = rows::parse(key)?;
        if let Row::Tenant(project) = row {
            match value {
                Some(value) => drop(self.tenants.insert(project, TenantRow::of_value(value)?)),
                None => drop(self.tenants.remove(&project)),
            }
            return Ok(());
        }
        let value = value.map(rows::content).transpose()?;
        match row {
            Row::Changes => self.changes = value.map_or(Ok(0), u32::from_bytes)?,
            Row::Node(key) => follow(&mut self.nodes, key, value)?,
            Row::Token(hash) => follow(&mut self.tokens, hash, value)?,
            Row::Target(id) => follow(&mut self.targets, id, value)?,
            Row::Ban(key) => follow(&mut self.bans, key, value)?,
            Row::Signing => self.signing = value.map(SigningRow::from_bytes).transpose()?,
            Row::Tenant(_) => {}
            Row::Tenancy(of) => follow(&mut self.tenancies, of, value)?,
        }
        Ok(())
    }

    /// The rows of `edits`, with the row of the map's epoch if it moves.
    pub fn rows_of(&self, mut edits: Edits) -> Vec<Edit> {
        if edits.moves_map {
            edits.set(rows::changes(), &(self.changes + 1));
        }
        edits.rows
    }

    /// The map: the described targets, and those that have registered.
    pub fn map(&self, mut described: ClusterMap) -> ClusterMap {
        described.epoch += self.changes;
        let named: BTreeSet<TargetId> = described.targets.iter().map(|target| target.id).collect();
        let more = self.targets.iter().filter(|(id, row)| !row.addresses.is_empty() && !named.contains(id));
        described.targets.extend(more.map(|(id, row)| MapTarget {
            id: *id,
            uuid: row.uuid,
            addresses: row.addresses.clone(),
        }));
        described.targets.sort_by_key(|target| target.id);
        described
    }

    /// Who is banned, in the map of `epoch`.
    pub fn bans(&self, epoch: u32) -> Bans {
        Bans { epoch, bans: self.bans.values().cloned().collect() }
    }

    /// A token for a host, whose secret has this hash.
    pub fn new_token(&self, request: &NewToken, hash: [u8; 32], now_ns: i64) -> Result<Edits, ErrorReply> {
        let (role, ttl_s) = (role_of(&request.role)?, request.ttl_s);
        if matches!(role, Role::Mds | Role::Router) {
            let words = format!("this version has one MDT per cluster, and no routers: no host joins as {role}");
            return Err(ErrorReply::new(Errno::EOPNOTSUPP, words));
        }
        if ttl_s == 0 || ttl_s > limits::TOKEN_TTL.as_secs() {
            let days = limits::TOKEN_TTL.as_secs() / (24 * 3600);
            return Err(invalid(format!("a token lives from 1 s to {days} days")));
        }
        let mut edits = Edits::default();
        let ended = self.tokens.iter().filter(|(_, row)| row.expires_ns <= now_ns);
        let ended: Vec<_> = ended.map(|(hash, _)| hash).collect();
        ended.iter().for_each(|hash| edits.remove(rows::token(hash)));
        ended
            .iter()
            .filter(|hash| self.tenancies.contains_key(**hash))
            .for_each(|hash| edits.remove(rows::tenancy(hash)));
        if self.tokens.len() - ended.len() >= limits::TOKENS {
            let words = format!("there are {} tokens that nobody has used; they end by themselves", limits::TOKENS);
            return Err(ErrorReply::new(Errno::EAGAIN, words));
        }
        let expires_ns = now_ns.saturating_add(i64::try_from(ttl_s * 1_000_000_000).unwrap_or(i64::MAX));
        if !request.tenant.is_empty() {
            if role != Role::Client {
                return Err(invalid(format!("a tenant has clients; a host that joins as {role} serves all tenants")));
            }
            let (project, _) = self.tenant_called(&request.tenant)?;
            edits.set(rows::tenancy(&hash), &project);
        }
        edits.set(rows::token(&hash), &TokenRow { role: role.word().into(), expires_ns });
        Ok(edits)
    }

    /// Makes the sender a node. `described`: the targets that the cluster's description names.
    pub fn join(
        &self,
        request: &Join,
        cluster: Uuid,
        described: &BTreeSet<TargetId>,
        (now_ns, expires_ns): (i64, i64),
    ) -> Result<Joining, ErrorReply> {
        let key = request.key[..].try_into().map(PublicKey);
        let key = key.map_err(|_| invalid("a node's public key has 32 bytes".into()))?;
        let hash = secret_hash(&request.secret);
        if let Some(node) = self.nodes.get(&key) {
            return self.joined_before(&key, node, &hash);
        }
        let token = self.token(&hash, now_ns)?;
        let role = role_of(&token.role)?;
        NodeName::new(cluster, role, &request.name).map_err(|error| invalid(error.to_string()))?;
        check_clock(request.unix_ns, now_ns)?;
        self.check_free(role, &request.name)?;
        match (role, request.osts) {
            (Role::Ost, 0) => return Err(invalid("the token is for a host with OSTs: give --osts N".into())),
            (Role::Ost, _) | (_, 0) => {}
            _ => return Err(invalid(format!("the token is for a {role}, which has no OSTs: leave --osts out"))),
        }
        let osts = self.free_indices(request.osts, described)?;
        let mut edits = Edits::default();
        if !planted(Bug::TokenServesTwice) {
            edits.remove(rows::token(&hash));
        }
        let row = NodeRow {
            role: role.word().into(),
            name: request.name.clone(),
            joined_ns: now_ns,
            expires_ns,
            token: hash.to_vec().into(),
        };
        edits.set(rows::node(&key), &row);
        if let Some(project) = self.tenancies.get(&hash) {
            edits.remove(rows::tenancy(&hash));
            edits.set(rows::tenancy(&key.0), project);
        }
        for ost in &osts {
            let row = TargetRow { node: key.0.to_vec().into(), uuid: Uuid::default(), addresses: Vec::new() };
            edits.set(rows::target(TargetId::ost(*ost)), &row);
        }
        Ok(Joining { edits, role, osts })
    }

    /// The reply was lost, and the host asks again.
    fn joined_before(&self, key: &PublicKey, node: &NodeRow, hash: &[u8; 32]) -> Result<Joining, ErrorReply> {
        if node.token != hash[..] {
            let words = format!("this host joined as {} {} before; `forebay up DIR` starts it", node.role, node.name);
            return Err(ErrorReply::new(Errno::EEXIST, words));
        }
        let osts = self.targets_of(key).map(|id| id.index).collect();
        Ok(Joining { edits: Edits::default(), role: role_of(&node.role)?, osts })
    }

    fn token(&self, hash: &[u8; 32], now_ns: i64) -> Result<&TokenRow, ErrorReply> {
        let refused = |words: String| Err(ErrorReply::new(Errno::EACCES, words));
        let again = "`forebay token new` makes another";
        match self.tokens.get(hash) {
            Some(token) if token.expires_ns > now_ns => Ok(token),
            Some(_) => refused(format!("the token has ended: {again}")),
            None => match self.nodes.values().find(|node| node.token == hash[..]) {
                Some(node) => refused(format!(
                    "{} {} has joined with this token, and a token serves once: {again}",
                    node.role, node.name
                )),
                None => refused(format!("the cluster does not know this token (any more): {again}")),
            },
        }
    }

    fn check_free(&self, role: Role, name: &str) -> Result<(), ErrorReply> {
        match self.nodes.values().any(|node| node.role == role.word() && node.name == name) {
            true => Err(ErrorReply::new(
                Errno::EEXIST,
                format!(
                    "the cluster has {role} {name} already: give --name NAME, or remove that one \
                     (`forebay node remove CLUSTER {name} --role {role}`)"
                ),
            )),
            false => Ok(()),
        }
    }

    fn free_indices(&self, count: u32, described: &BTreeSet<TargetId>) -> Result<Vec<u32>, ErrorReply> {
        let known = described.iter().chain(self.targets.keys());
        let osts: BTreeSet<u32> = known.filter(|id| id.kind == TargetKind::Ost).map(|id| id.index).collect();
        if osts.len() + count as usize > forebay_proto::limits::STRIPES {
            let words =
                format!("a cluster has at most {} OSTs; {} are there", forebay_proto::limits::STRIPES, osts.len());
            return Err(ErrorReply::new(Errno::ENOSPC, words));
        }
        // Never an index that was another's: files may lie there.
        let first = osts.last().map_or(0, |last| last + 1);
        Ok((first..first + count).collect())
    }

    /// Less than half of the time of a node's certificate is left. Of one whose keys were made by hand nobody knows.
    pub fn is_due(&self, key: &PublicKey, now_ns: i64, life: std::time::Duration) -> bool {
        let half = i64::try_from(life.as_nanos() / 2).unwrap_or(i64::MAX);
        self.nodes.get(key).is_none_or(|node| node.expires_ns.saturating_sub(now_ns) < half)
    }

    /// A node has a certificate for another term. Of one whose keys were made by hand there is no row.
    pub fn renew(&self, key: &PublicKey, expires_ns: i64) -> Edits {
        let mut edits = Edits::default();
        if let Some(node) = self.nodes.get(key) {
            edits.set(rows::node(key), &NodeRow { expires_ns, ..node.clone() });
        }
        edits
    }

    /// Tells where the targets of the node with `key` are.
    pub fn register(&self, key: &PublicKey, targets: &[MapTarget]) -> Result<Edits, ErrorReply> {
        let mut edits = Edits::default();
        for target in targets {
            let Some(row) = self.targets.get(&target.id).filter(|row| row.node == key.0[..]) else {
                let words = format!("{} is not a target of this node", target.id);
                return Err(ErrorReply::new(Errno::EPERM, words));
            };
            if row.uuid != Uuid::default() && row.uuid != target.uuid {
                let words = format!(
                    "{} was formatted anew: what it held would seem never to have existed. Bring back its own directory",
                    target.id
                );
                return Err(ErrorReply::new(Errno::WRONG_PEER, words));
            }
            let is_address = |text: &String| text.parse::<forebay_env::Address>().is_ok();
            let count = target.addresses.len();
            if count == 0 || count > limits::ADDRESSES || !target.addresses.iter().all(is_address) {
                return Err(invalid(format!("{} needs 1 to {} addresses", target.id, limits::ADDRESSES)));
            }
            if (row.uuid, &row.addresses) != (target.uuid, &target.addresses) {
                let (uuid, addresses) = (target.uuid, target.addresses.clone());
                edits.set(rows::target(target.id), &TargetRow { uuid, addresses, ..row.clone() });
                edits.moves_map = true;
            }
        }
        Ok(edits)
    }

    /// Bans a node, or ends its ban.
    pub fn ban(&self, cluster: Uuid, role: &str, name: &str, lift: bool) -> Result<Edits, ErrorReply> {
        let mut edits = Edits { moves_map: true, ..Edits::default() };
        let bans: Vec<(&Vec<u8>, &Ban)> =
            self.bans.iter().filter(|(_, ban)| ban.name == name && (role.is_empty() || ban.role == role)).collect();
        if lift {
            if bans.is_empty() {
                return Err(ErrorReply::new(Errno::ENOENT, format!("no node called {name} is banned")));
            }
            // The key of a removed node stays banned: another has its name, or may have.
            let of_node = |ban: &Ban| ban.key.is_empty() || self.nodes.keys().any(|key| ban.key == key.0[..]);
            let lifted: Vec<_> = bans.into_iter().filter(|(_, ban)| of_node(ban)).collect();
            if lifted.is_empty() {
                let words = format!("{name} was removed from the cluster: it joins anew with a token");
                return Err(ErrorReply::new(Errno::EPERM, words));
            }
            lifted.into_iter().for_each(|(key, _)| edits.remove(rows::ban(key)));
            return Ok(edits);
        }
        match self.node_called(role, name)? {
            Some((key, node)) => {
                let ban = Ban { role: node.role.clone(), name: node.name.clone(), key: key.0.to_vec().into() };
                edits.set(rows::ban(&key.0), &ban);
            }
            None if role.is_empty() => {
                let words = format!(
                    "no node called {name} has joined; give --role ROLE to ban one with keys of `forebay keys for`"
                );
                return Err(ErrorReply::new(Errno::ENOENT, words));
            }
            None => {
                let node = NodeName::new(cluster, role_of(role)?, name).map_err(|error| invalid(error.to_string()))?;
                let ban = Ban { role: node.role.word().into(), name: name.into(), key: Bytes::new() };
                edits.set(rows::ban(&secret_hash(node.to_string().as_bytes())), &ban);
            }
        }
        Ok(edits)
    }

    /// Removes a node without targets.
    pub fn remove(&self, role: &str, name: &str) -> Result<Edits, ErrorReply> {
        let Some((key, node)) = self.node_called(role, name)? else {
            return Err(ErrorReply::new(Errno::ENOENT, format!("no node called {name} has joined")));
        };
        let serves = self.targets_of(key).find(|id| !self.targets[id].addresses.is_empty());
        if let Some(id) = serves {
            let words = format!("files may lie on {id} of {name}; `forebay node ban` keeps it out, and its files too");
            return Err(ErrorReply::new(Errno::EBUSY, words));
        }
        let mut edits = Edits { moves_map: true, ..Edits::default() };
        self.targets_of(key).for_each(|id| edits.remove(rows::target(id)));
        edits.remove(rows::node(key));
        if self.tenancies.contains_key(&key.0) {
            edits.remove(rows::tenancy(&key.0));
        }
        let ban = Ban { role: node.role.clone(), name: node.name.clone(), key: key.0.to_vec().into() };
        edits.set(rows::ban(&key.0), &ban);
        Ok(edits)
    }

    /// All nodes, for a person.
    pub fn list(&self, epoch: u32, now_ns: i64) -> ListNodesReply {
        let banned = |key: &PublicKey| self.bans.values().any(|ban| ban.key == key.0[..]);
        let node = |(key, node): (&PublicKey, &NodeRow)| NodeInfo {
            role: node.role.clone(),
            name: node.name.clone(),
            joined_ns: node.joined_ns,
            expires_ns: node.expires_ns,
            banned: banned(key),
            targets: self.targets_of(key).collect(),
            tenant: self.tenant_name(&key.0),
        };
        let mut nodes: Vec<NodeInfo> = self.nodes.iter().map(node).collect();
        nodes.sort_by(|one, two| (&one.name, &one.role).cmp(&(&two.name, &two.role)));
        let joined = |ban: &&Ban| self.nodes.keys().any(|key| ban.key == key.0[..]);
        let open = self.tokens.iter().filter(|(_, token)| token.expires_ns > now_ns);
        let token = |(hash, token): (&[u8; 32], &TokenRow)| TokenInfo {
            role: token.role.clone(),
            expires_ns: token.expires_ns,
            tenant: self.tenant_name(hash),
        };
        ListNodesReply {
            epoch,
            nodes,
            bans: self.bans.values().filter(|ban| !joined(ban)).cloned().collect(),
            tokens: open.map(token).collect(),
        }
    }

    fn targets_of(&self, key: &PublicKey) -> impl Iterator<Item = TargetId> {
        self.targets.iter().filter(|(_, row)| row.node == key.0[..]).map(|(id, _)| *id)
    }

    fn node_called(&self, role: &str, name: &str) -> Result<Option<(&PublicKey, &NodeRow)>, ErrorReply> {
        let is_meant = |node: &NodeRow| node.name == name && (role.is_empty() || node.role == role);
        let mut found = self.nodes.iter().filter(|(_, node)| is_meant(node));
        match (found.next(), found.next()) {
            (Some((_, one)), Some((_, two))) => {
                let words = format!("{name} is a {} and a {}: give --role ROLE", one.role, two.role);
                Err(invalid(words))
            }
            (found, _) => Ok(found),
        }
    }
}

fn invalid(words: String) -> ErrorReply {
    ErrorReply::new(Errno::EINVAL, words)
}

fn role_of(word: &str) -> Result<Role, ErrorReply> {
    word.parse().map_err(|error: forebay_keys::KeyError| invalid(error.to_string()))
}

/// A host whose clock is wrong would give files wrong times, and take good certificates for expired ones.
fn check_clock(theirs_ns: i64, ours_ns: i64) -> Result<(), ErrorReply> {
    let apart = theirs_ns.abs_diff(ours_ns) / 1_000_000_000;
    if apart <= limits::CLOCKS_APART.as_secs() {
        return Ok(());
    }
    let (minutes, how) = (apart / 60, if theirs_ns > ours_ns { "ahead of" } else { "behind" });
    Err(ErrorReply::new(
        Errno::EINVAL,
        format!(
            "this host's clock is {minutes} minutes {how} that of the MGS: set the clocks (chrony, ntpd), and join again"
        ),
    ))
}

#[cfg(test)]
#[path = "members/tests.rs"]
mod tests;
