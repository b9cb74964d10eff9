//! One question outside of any session.

use bytes::Bytes;
use forebay_env::{Address, Boxed, Env};
use forebay_proto::{
    Decode, DecodeError, ErrorReply,
    message::{FrameHeader, FrameKind, Op, Operation},
};

use crate::{
    RpcError,
    frame::{Frame, FrameError, FrameReader, Outbox, Received},
    limits,
};

/// Asks one question outside of any session (`Status`, `GetMap`): tries each address once, in order, for at most
/// `limits::ASK_TIMEOUT` each. Errors: `Unreachable` with what happened at the last address, `Reply`.
pub async fn ask<O: Operation>(env: &Env, addresses: &[Address], request: &O) -> Result<O::Reply, RpcError> {
    read_reply::<O>(&exchange(env, addresses, O::OP, request.to_bytes().into()).await?)
}

fn exchange<'a>(env: &'a Env, addresses: &'a [Address], op: Op, body: Bytes) -> Boxed<'a, Result<Received, RpcError>> {
    Box::pin(async move {
        let mut last = RpcError::Unreachable("no address was given".into());
        for address in addresses {
            match env.timeout(limits::ASK_TIMEOUT, exchange_with(env, address, op, body.clone())).await {
                Ok(Ok(received)) => return Ok(received),
                Ok(Err(error)) => last = error,
                Err(_) => {
                    last = RpcError::Unreachable(format!("{address}: no answer within {:?}", limits::ASK_TIMEOUT));
                }
            }
        }
        Err(last)
    })
}

async fn exchange_with(env: &Env, address: &Address, op: Op, body: Bytes) -> Result<Received, RpcError> {
    let unreachable = |what: String| RpcError::Unreachable(format!("{address}: {what}"));
    let stream = env.connect(address).await.map_err(|e| RpcError::Unreachable(e.message))?;
    let (read, write) = stream.split();
    let outbox = Outbox::default();
    let mut header = FrameHeader::new(FrameKind::Request, op as u16);
    (header.slot, header.sequence) = (limits::CONTROL_SLOT, 1);
    outbox.send(Frame::new(header, body, Vec::new()));
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
    refusal(op, &received).map_or(Ok(received), Err)
}

/// The reply in a frame, or the error in it.
pub(crate) fn read_reply<O: Operation>(received: &Received) -> Result<O::Reply, RpcError> {
    match refusal(O::OP, received) {
        Some(error) => Err(error),
        None => O::Reply::from_bytes(&received.body).map_err(|error| malformed(O::OP, &error)),
    }
}

/// The error in a frame that is no reply.
fn refusal(op: Op, received: &Received) -> Option<RpcError> {
    match received.header.kind {
        FrameKind::Reply => None,
        FrameKind::Error => Some(match ErrorReply::from_bytes(&received.body) {
            Ok(reply) => reply.into(),
            Err(error) => malformed(op, &error),
        }),
        FrameKind::Request => Some(RpcError::Protocol("a request where a reply was expected".into())),
    }
}

fn malformed(op: Op, error: &DecodeError) -> RpcError {
    RpcError::Protocol(format!("reply to {}: {error}", op.name()))
}
