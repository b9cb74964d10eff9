//! One question outside of any session.

use forebay_env::{Address, Env};
use forebay_proto::{
    Decode, ErrorReply,
    message::{FrameHeader, FrameKind, Operation},
};

use crate::{
    RpcError,
    frame::{Frame, FrameError, FrameReader, Outbox, Received},
    limits,
};

/// Asks one question outside of any session (`Status`, `GetMap`): tries each address once, in order, for at most
/// `limits::ASK_TIMEOUT` each. Errors: `Unreachable` with what happened at the last address, `Reply`.
pub async fn ask<O: Operation>(env: &Env, addresses: &[Address], request: &O) -> Result<O::Reply, RpcError> {
    let mut last = RpcError::Unreachable("no address was given".into());
    for address in addresses {
        match env.timeout(limits::ASK_TIMEOUT, ask_one(env, address, request)).await {
            Ok(Ok(reply)) => return Ok(reply),
            Ok(Err(error)) => last = error,
            Err(_) => {
                last = RpcError::Unreachable(format!("{address}: no answer within {:?}", limits::ASK_TIMEOUT));
            }
        }
    }
    Err(last)
}

async fn ask_one<O: Operation>(env: &Env, address: &Address, request: &O) -> Result<O::Reply, RpcError> {
    let unreachable = |what: String| RpcError::Unreachable(format!("{address}: {what}"));
    let stream = env.connect(address).await.map_err(|e| RpcError::Unreachable(e.message))?;
    let (read, write) = stream.split();
    let outbox = Outbox::default();
    let mut header = FrameHeader::new(FrameKind::Request, O::OP as u16);
    (header.slot, header.sequence) = (limits::CONTROL_SLOT, 1);
    outbox.send(Frame::new(header, request.to_bytes().into(), Vec::new()));
    let mut reader = FrameReader::new(read);
    let receive = async {
        let header = reader.header().await?;
        reader.content(header).await
    };
    let received = forebay_env::sync::select! {
        biased;
        received = receive => received.map_err(|error| match error {
            // Asking again would not help.
            FrameError::Version { .. } => RpcError::Protocol(format!("{address}: {error}")),
            error => unreachable(error.to_string()),
        })?,
        () = outbox.write_to(write) => return Err(unreachable("the connection broke".into())),
    };
    read_reply::<O>(&received)
}

/// The reply in a frame, or the error in it.
pub(crate) fn read_reply<O: Operation>(received: &Received) -> Result<O::Reply, RpcError> {
    let malformed = |e: forebay_proto::DecodeError| RpcError::Protocol(format!("reply to {}: {e}", O::OP.name()));
    match received.header.kind {
        FrameKind::Reply => O::Reply::from_bytes(&received.body).map_err(malformed),
        FrameKind::Error => Err(ErrorReply::from_bytes(&received.body).map_err(malformed)?.into()),
        FrameKind::Request => Err(RpcError::Protocol("a request where a reply was expected".into())),
    }
}
