//! One request outside of any session.

use bytes::Bytes;
use forebay_env::{Address, Boxed, Bug, Env, EnvErrorKind, planted};
use forebay_proto::{
    Decode, DecodeError, ErrorReply, TargetKind,
    message::{FrameHeader, FrameKind, Op, Operation},
};

use crate::{
    RpcError,
    frame::{Frame, FrameError, FrameReader, Outbox, Received, Traffic},
    limits,
};

/// Sends one request outside of any session (`Status`, or what the MGS answers). Tries each address once, in order, for at most
/// `limits::ASK_TIMEOUT` each. Errors: `Reply`; or `Unreachable`, `Silent` or `Foreign`, with what happened at the last
/// address.
pub async fn ask<O: Operation>(env: &Env, addresses: &[Address], request: &O) -> Result<O::Reply, RpcError> {
    let readable = |received: &Received| read_reply::<O>(received).map(drop);
    read_reply::<O>(&exchange(env, addresses, O::OP, request.to_bytes().into(), readable).await?)
}

/// As [`ask`], for any operation; a reply that is not `readable` counts as none.
fn exchange<'a>(
    env: &'a Env,
    addresses: &'a [Address],
    op: Op,
    body: Bytes,
    readable: fn(&Received) -> Result<(), RpcError>,
) -> Boxed<'a, Result<Received, RpcError>> {
    Box::pin(async move {
        let mut last = RpcError::Unreachable("no address was given".into());
        for address in addresses {
            let answer = exchange_with(env, address, op, body.clone());
            match env.timeout(limits::ASK_TIMEOUT, answer).await {
                Ok(Ok(received)) => match readable(&received) {
                    Ok(()) => return Ok(received),
                    Err(error) => last = error,
                },
                Ok(Err(error)) => last = error,
                Err(_) => {
                    last = RpcError::Silent(format!("{address}: no answer within {:?}", limits::ASK_TIMEOUT));
                }
            }
        }
        Err(last)
    })
}

async fn exchange_with(env: &Env, address: &Address, op: Op, body: Bytes) -> Result<Received, RpcError> {
    let unreachable = |what: String| RpcError::Unreachable(format!("{address}: {what}"));
    // Its messages may hold secrets, such as tokens.
    let stream = env.encrypting().connect(address).await.map_err(|error| match error.kind {
        EnvErrorKind::Permission => RpcError::Protocol(error.message),
        _ => RpcError::Unreachable(error.message),
    })?;
    if let Some(node) = stream.node()
        && !matches!(op, Op::Status)
        && !node.role.may_serve(TargetKind::Mdt)
        && !planted(Bug::RoleNotChecked)
    {
        return Err(RpcError::Protocol(format!("{address}: {node} answers, which may not keep the cluster's map")));
    }
    let (read, mut write) = stream.split();
    let (outbox, traffic) = (Outbox::default(), Traffic::default());
    let mut header = FrameHeader::new(FrameKind::Request, op as u16);
    (header.slot, header.sequence) = (limits::CONTROL_SLOT, 1);
    outbox.send(Frame::new(header, body, Vec::new()));
    let mut reader = FrameReader::new(read);
    let receive = async {
        let header = reader.first_header().await?;
        reader.content(header).await
    };
    forebay_env::sync::select! {
        biased;
        received = receive => received.map_err(|error| match error {
            // A retry would not help.
            FrameError::Version { .. } | FrameError::Tls => RpcError::Protocol(format!("{address}: {error}")),
            FrameError::Untrusted(why) => RpcError::Protocol(format!("{address}: {why}")),
            FrameError::Foreign => RpcError::Foreign(format!("{address}: {error}")),
            error => unreachable(error.to_string()),
        }),
        () = outbox.write_to(&mut write, &traffic) => Err(unreachable("the connection broke".into())),
    }
}

/// The reply in a frame, or the error in it.
pub(crate) fn read_reply<O: Operation>(received: &Received) -> Result<O::Reply, RpcError> {
    let malformed = |e: DecodeError| RpcError::Protocol(format!("reply to {}: {e}", O::OP.name()));
    match received.header.kind {
        FrameKind::Reply => O::Reply::from_bytes(&received.body).map_err(malformed),
        FrameKind::Error => Err(ErrorReply::from_bytes(&received.body).map_err(malformed)?.into()),
        FrameKind::Request => Err(RpcError::Protocol("a request where a reply was expected".into())),
    }
}
