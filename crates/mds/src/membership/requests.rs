//! Requests about the cluster's nodes.

use std::{collections::BTreeSet, rc::Rc};

use bytes::Bytes;
use forebay_env::PeerIdentity;
use forebay_keys::{NodeName, PublicKey, Role, SECRET_BYTES, Validity, secret_hash};
use forebay_proto::{
    Decode, Encode, Errno, ErrorReply,
    message::{
        BanNode, Empty, IdMaps, Join, JoinReply, ListNodes, NewMappedTenant, NewTenant, NewToken, NewTokenReply, Op,
        Register, RemoveNode, RemoveTenant, RenewReply, SetBans,
    },
};

use super::members::{Edits, Members};
use crate::Mds;

/// Whether `peer` may change who is in the cluster.
fn may_administer(peer: &PeerIdentity) -> Result<(), ErrorReply> {
    match peer {
        PeerIdentity::Node { node, .. } if matches!(node.role, Role::Admin | Role::Mds) => Ok(()),
        // Only the servers' user can open their sockets.
        PeerIdentity::Process { .. } | PeerIdentity::Named(_) => Ok(()),
        PeerIdentity::Node { node, .. } => {
            Err(ErrorReply::new(Errno::EPERM, format!("{node} may not do that: it needs the key of an admin")))
        }
        PeerIdentity::Stranger(_) | PeerIdentity::Unknown(_) => {
            Err(ErrorReply::new(Errno::EPERM, "that needs the key of an admin: give --keys DIR"))
        }
    }
}

fn node_of(peer: &PeerIdentity) -> Result<(&NodeName, &PublicKey), ErrorReply> {
    match peer {
        PeerIdentity::Node { node, key, .. } => Ok((node, key)),
        _ => Err(ErrorReply::new(Errno::EPERM, "that is for nodes that have joined with a token")),
    }
}

impl Mds {
    /// A request about the cluster's nodes.
    pub(crate) async fn membership_request(
        self: &Rc<Self>,
        peer: &PeerIdentity,
        op: Op,
        body: &[u8],
    ) -> Result<Bytes, ErrorReply> {
        if !matches!(op, Op::Join | Op::Register | Op::GetRoot | Op::Renew) {
            may_administer(peer)?;
        }
        let _turn = self.membership.turn().await;
        match op {
            Op::Join => self.join(peer, &Join::from_bytes(body)?).await,
            Op::Register => self.register(peer, &Register::from_bytes(body)?).await,
            Op::NewToken => self.new_token(&NewToken::from_bytes(body)?).await,
            Op::ListNodes => self.list_nodes(&ListNodes::from_bytes(body)?),
            Op::BanNode => self.ban_node(&BanNode::from_bytes(body)?).await,
            Op::RemoveNode => self.remove_node(&RemoveNode::from_bytes(body)?).await,
            Op::NewTenant => self.new_tenant(&NewTenant::from_bytes(body)?.tenant, &IdMaps::default()).await,
            Op::NewMappedTenant => {
                let NewMappedTenant { tenant, maps } = NewMappedTenant::from_bytes(body)?;
                self.new_tenant(&tenant, &maps).await
            }
            Op::ListIdMaps => Ok(self.members(Members::list_id_maps).to_bytes().into()),
            Op::ListTenants => Ok(self.members(Members::list_tenants).to_bytes().into()),
            Op::RemoveTenant => self.remove_tenant(&RemoveTenant::from_bytes(body)?).await,
            Op::GetRoot => Ok(self.root_of(peer).to_bytes().into()),
            Op::Renew => self.renew(peer).await,
            _ => Err(ErrorReply::new(Errno::ENOSYS, format!("{} is not for an MDT", op.name()))),
        }
    }

    async fn new_token(&self, request: &NewToken) -> Result<Bytes, ErrorReply> {
        let authority = self.membership.authority()?;
        let secret: [u8; SECRET_BYTES] = forebay_keys::random_secret();
        let now_ns = self.env.unix_time().0;
        let edits = self.members(|members| members.new_token(request, secret_hash(&secret), now_ns))?;
        self.commit_new_members(edits).await?;
        let reply = NewTokenReply {
            cluster: authority.cluster(),
            authority: authority.public_key().0.to_vec().into(),
            secret: secret.to_vec().into(),
        };
        Ok(reply.to_bytes().into())
    }

    async fn join(&self, peer: &PeerIdentity, request: &Join) -> Result<Bytes, ErrorReply> {
        let authority = self.membership.authority()?;
        let now = self.env.unix_time();
        let validity = Validity::from_now(now.since_1970(), self.certificate_life);
        let expires_ns = i64::try_from(validity.to.as_nanos()).unwrap_or(i64::MAX);
        let cluster = authority.cluster();
        let described = self.membership.described_targets();
        let joining = self.members(|members| members.join(request, cluster, &described, (now.0, expires_ns)))?;
        let failed = |error: forebay_keys::KeyError| ErrorReply::new(Errno::EINVAL, error.to_string());
        let node = NodeName::new(cluster, joining.role, &request.name).map_err(failed)?;
        let certificate = authority.sign(&node, &request.key, validity).map_err(failed)?;
        let root = authority.certificate(validity.from).map_err(failed)?;
        self.commit_new_members(joining.edits).await?;
        self.env.log(&format!("{node} joins the cluster, at {peer}"));
        let reply = JoinReply {
            cluster,
            role: joining.role.word().into(),
            certificate: certificate.to_vec().into(),
            authority: root.to_vec().into(),
            osts: joining.osts,
        };
        Ok(reply.to_bytes().into())
    }

    /// Signs the key of the sender for another term. The handshake has refused it if it is banned.
    async fn renew(&self, peer: &PeerIdentity) -> Result<Bytes, ErrorReply> {
        let (node, key) = node_of(peer)?;
        let authority = self.membership.authority()?;
        let now_ns = self.env.unix_time().0;
        if !self.members(|members| members.is_due(key, now_ns, self.certificate_life)) {
            let words = "its certificate holds for long: nodes ask when a third of its time is left";
            return Err(ErrorReply::new(Errno::EAGAIN, words));
        }
        let validity = Validity::from_now(self.env.unix_time().since_1970(), self.certificate_life);
        let certificate = authority.sign(node, &key.0, validity);
        let certificate = certificate.map_err(|error| ErrorReply::new(Errno::EINVAL, error.to_string()))?;
        let expires_ns = i64::try_from(validity.to.as_nanos()).unwrap_or(i64::MAX);
        let edits = self.members(|members| members.renew(key, expires_ns));
        self.commit_members(edits).await?;
        self.env.log(&format!("{node} has its certificate renewed"));
        Ok(RenewReply { certificate: certificate.to_vec().into() }.to_bytes().into())
    }

    async fn register(self: &Rc<Self>, peer: &PeerIdentity, request: &Register) -> Result<Bytes, ErrorReply> {
        let (node, key) = node_of(peer)?;
        if node.role != Role::Ost {
            return Err(ErrorReply::new(Errno::EPERM, format!("{node} serves no OSTs")));
        }
        let edits = self.members(|members| members.register(key, &request.targets))?;
        if edits.moves_map {
            let names: Vec<String> = request.targets.iter().map(|target| target.id.to_string()).collect();
            self.env.log(&format!("{} of {node} can be reached", names.join(", ")));
        }
        self.commit_members(edits).await?;
        self.serve_new_osts().await?;
        let map = self.membership.map().map(|map| map());
        let map = map.ok_or_else(|| ErrorReply::new(Errno::ENOSYS, "this server does not keep the cluster's map"))?;
        Ok(map.to_bytes().into())
    }

    fn list_nodes(&self, _: &ListNodes) -> Result<Bytes, ErrorReply> {
        let epoch = self.membership.map().map_or(0, |map| map().epoch);
        let now_ns = self.env.unix_time().0;
        Ok(self.membership.members.borrow().list(epoch, now_ns).to_bytes().into())
    }

    async fn ban_node(self: &Rc<Self>, request: &BanNode) -> Result<Bytes, ErrorReply> {
        let ours = self.env.own_name();
        if !request.lift && ours.is_some_and(|ours| ours.name() == request.name && is_role(ours, &request.role)) {
            return Err(ErrorReply::new(Errno::EINVAL, format!("{} is this server", request.name)));
        }
        let cluster = self.store.identity().cluster;
        let edits = self.members(|members| members.ban(cluster, &request.role, &request.name, request.lift))?;
        self.change_bans(edits).await
    }

    async fn remove_node(self: &Rc<Self>, request: &RemoveNode) -> Result<Bytes, ErrorReply> {
        let edits = self.members(|members| members.remove(&request.role, &request.name))?;
        self.change_bans(edits).await
    }

    async fn change_bans(self: &Rc<Self>, edits: Edits) -> Result<Bytes, ErrorReply> {
        self.commit_members(edits).await?;
        for ost in self.osts.indices() {
            let mds = self.clone();
            self.env.begin(async move { mds.push_bans(ost).await });
        }
        Ok(Empty {}.to_bytes().into())
    }

    pub(crate) fn members<R>(&self, question: impl FnOnce(&Members) -> R) -> R {
        question(&self.membership.members.borrow())
    }

    /// As [`Mds::commit_members`], for what was not there before: it takes none of the space that is kept for deletes.
    pub(crate) async fn commit_new_members(&self, edits: Edits) -> Result<(), ErrorReply> {
        if !self.has_space() {
            return Err(ErrorReply::new(Errno::ENOSPC, "MDT0000 has no space left: delete files, then try again"));
        }
        self.commit_members(edits).await
    }

    /// Makes the rows durable; then they count. A full MDT does it too: whoever has filled it can be banned.
    pub(crate) async fn commit_members(&self, edits: Edits) -> Result<(), ErrorReply> {
        let rows = self.members(|members| members.rows_of(edits));
        if rows.is_empty() {
            return Ok(());
        }
        let transno = self
            .change(|tx| {
                for (key, value) in &rows {
                    match value {
                        Some(value) => tx.put(*key, value),
                        None => tx.delete(*key),
                    }
                }
                Ok(tx.origin.transno)
            })
            .await?;
        self.target()?.wait_committed(transno).await?;
        let mut members = self.membership.members.borrow_mut();
        for (key, value) in &rows {
            members.row(key.as_ref(), value.as_deref()).expect("rows of ours can be read");
        }
        drop(members);
        self.membership.adopt_bans();
        Ok(())
    }

    /// Tells an OST who is banned, if anybody ever was. It may be away: it is told again with each poll.
    pub(crate) async fn push_bans(&self, ost: u32) {
        if let Some(bans) = self.membership.bans() {
            self.osts.tell(ost, &SetBans { bans }).await;
        }
    }

    /// OSTs that have registered since are part of this server's work, and take new files at once.
    async fn serve_new_osts(self: &Rc<Self>) -> Result<(), ErrorReply> {
        let known: BTreeSet<u32> = self.osts.indices().into_iter().collect();
        let new: Vec<u32> = self.membership.osts().into_iter().filter(|ost| !known.contains(ost)).collect();
        if new.is_empty() {
            return Ok(());
        }
        new.into_iter().for_each(|ost| self.add_ost(ost));
        self.update_placement().await
    }
}

fn is_role(node: &NodeName, role: &str) -> bool {
    role.is_empty() || node.role.word() == role
}
