//! Rails: further streams of the connection, by the target's other addresses, which share its frames.
//!
//! Each stream takes the next frames when it has written the last ones, so that a faster network carries more. The other side handles
//! the frames in the order of their numbers ([`crate::turns`]): a session behaves as over one stream.
//! If a rail breaks, so does the connection: the session connects anew over the addresses that are left, and resends.

use std::{rc::Rc, time::Duration};

use forebay_env::{Address, Bug, Stream, planted};
use forebay_proto::{
    Encode, SessionId,
    message::{Empty, FrameHeader, FrameKind, JoinRail, Op},
};

use super::{connect::read_replies, inner::Inner, link::Link};
use crate::{
    ask::read_reply,
    frame::{Frame, FrameReader, write_one},
    limits,
};

impl Inner {
    /// The further addresses for a connection by `address`: those of networks.
    pub fn rails_beside(&self, address: &Address) -> Vec<Address> {
        let target = self.options.target;
        let is_of_network = |address: &Address| !matches!(address, Address::Unix(_));
        if target.kind != forebay_proto::TargetKind::Ost || !is_of_network(address) {
            return Vec::new();
        }
        let others = self.options.resolve.addresses(target).into_iter();
        others.filter(|other| other != address && is_of_network(other)).take(limits::RAILS - 1).collect()
    }

    /// Keeps a rail by each of these addresses, until the connection is closed.
    pub fn keep_rails(self: &Rc<Self>, addresses: Vec<Address>, link: &Rc<Link>) {
        if !link.turns.have_begun() {
            return;
        }
        for address in addresses {
            let (inner, link) = (self.clone(), link.clone());
            drop(self.env.spawn(async move { keep(&inner, &address, &link).await }));
        }
    }
}

async fn keep(inner: &Rc<Inner>, address: &Address, link: &Rc<Link>) {
    loop {
        forebay_env::sync::select! {
            biased;
            () = link.outbox.closed() => return,
            () = inner.env.sleep(inner.by_address.held_for(&inner.env, address)) => {}
        }
        let joined = forebay_env::sync::select! {
            biased;
            () = link.outbox.closed() => return,
            joined = join(inner, address, link) => joined,
        };
        match joined {
            Ok((stream, reader)) => {
                run(inner, address, link, stream, reader).await;
                return inner.by_address.hold(&inner.env, address);
            }
            Err(why) if inner.by_address.is_news(address, &why) => {
                inner.log(&format!("{address} is not used: {why}"));
            }
            Err(_) => {}
        }
        inner.by_address.hold(&inner.env, address);
    }
}

/// A stream by `address` that the target takes for one of the session.
async fn join(
    inner: &Rc<Inner>,
    address: &Address,
    link: &Link,
) -> Result<(forebay_env::WriteHalf, FrameReader), String> {
    let within = |what: &str, time: Duration| format!("no {what} within {time:?}");
    let stream = inner.env.timeout(limits::CONNECT_TIMEOUT, inner.env.connect(address)).await;
    let stream: Stream =
        stream.map_err(|_| within("connection", limits::CONNECT_TIMEOUT))?.map_err(|error| error.to_string())?;
    if let Some(node) = stream.node()
        && !node.role.may_serve(inner.options.target.kind)
        && !planted(Bug::RoleNotChecked)
    {
        return Err(format!("{node} answers, which may not serve {}", inner.options.target));
    }
    let (read, mut write) = stream.split();
    let traffic = inner.by_address.traffic(address);
    let mut reader = FrameReader::counting(read, traffic.clone());
    let request = {
        let state = inner.state.borrow();
        if state.session == SessionId(0) {
            return Err("the session is over".into());
        }
        let mut header = FrameHeader::new(FrameKind::Request, Op::JoinRail as u16);
        (header.slot, header.sequence) = (limits::CONTROL_SLOT, 1);
        (header.session, header.incarnation) = (state.session, state.incarnation);
        let body = JoinRail {
            target: inner.options.target,
            target_uuid: state.target_uuid.unwrap_or_default(),
            session: state.session,
            client: state.client,
            connection: link.number.get(),
        };
        Frame::new(header, body.to_bytes().into(), Vec::new())
    };
    let exchange = async {
        write_one(&mut write, request).await?;
        let header = reader.first_header().await?;
        reader.content(header).await
    };
    let received = inner.env.timeout(limits::CONNECT_TIMEOUT, exchange).await;
    let received =
        received.map_err(|_| within("reply", limits::CONNECT_TIMEOUT))?.map_err(|error| error.to_string())?;
    let Empty {} = read_reply::<JoinRail>(&received).map_err(|error| error.to_string())?;
    Ok((write, reader))
}

/// Reads and writes frames of the connection over the stream. When one ends, so does the other.
async fn run(
    inner: &Rc<Inner>,
    address: &Address,
    link: &Rc<Link>,
    mut write: forebay_env::WriteHalf,
    mut reader: FrameReader,
) {
    let open = inner.by_address.open(&inner.env, address);
    link.has_rails.set(true);
    let (writing, traffic) = (link.clone(), open.traffic.clone());
    drop(inner.env.spawn(async move { writing.outbox.write_to(&mut write, &traffic).await }));
    drop(read_replies(inner, &mut reader, link).await);
    link.outbox.close();
}
