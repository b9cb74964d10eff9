//! A call: space for its pin, a slot, the reply.

use std::rc::Rc;

use bytes::Bytes;
use forebay_env::{Boxed, Side, sync::oneshot};
use forebay_proto::{
    Decode, Errno, limits as proto_limits,
    message::{Capability, Class, FrameHeader, FrameKind, Needs, Op, Operation, object_of},
};

use super::{
    Call, Called, SessionState,
    inner::{Control, Inner},
    slots::{Lease, Pending},
};
use crate::{RpcError, ask::read_reply, frame::Received, limits, pins::Pin};

pub(super) async fn call<O: Operation>(
    inner: &Rc<Inner>,
    request: &O,
    call: Call,
    reserved: Option<(Lease, Pin)>,
) -> Result<Called<O::Reply>, RpcError> {
    let received = authorized(inner, O::OP, request.to_bytes().into(), call, reserved).await?;
    let reply = read_reply::<O>(&received)?;
    Ok(Called { reply, transno: received.header.transno, capability: received.header.capability, bulk: received.bulk })
}

/// The call, with a capability where the session's target asks for one. Keys end: then with the next.
fn authorized<'a>(
    inner: &'a Rc<Inner>,
    op: Op,
    body: Bytes,
    call: Call,
    mut reserved: Option<(Lease, Pin)>,
) -> Boxed<'a, Result<Received, RpcError>> {
    let needed = if inner.capabilities.borrow().is_some() { op.needs() } else { Needs::Session };
    if !matches!(needed, Needs::Capability(_)) {
        return exchange(inner, op, body, call, reserved, Capability::NONE);
    }
    Box::pin(async move {
        // Before the call has a slot: others may need theirs for the answer.
        let mut capability = inner.capability(op, &body, None).await?;
        loop {
            match exchange(inner, op, body.clone(), call.clone(), reserved.take(), capability).await {
                Err(error) if error.errno() == Errno::CAPABILITY => {
                    capability = inner.capability(op, &body, Some(capability)).await?;
                }
                done => return done,
            }
        }
    })
}

/// The call, for any operation.
fn exchange<'a>(
    inner: &'a Rc<Inner>,
    op: Op,
    body: Bytes,
    call: Call,
    reserved: Option<(Lease, Pin)>,
    capability: Capability,
) -> Boxed<'a, Result<Received, RpcError>> {
    Box::pin(async move {
        let bulk_bytes: usize = call.bulk.iter().map(Bytes::len).sum();
        check_lengths(op, body.len(), bulk_bytes)?;
        inner.env.charge_message(Side::Client, op as u16, bulk_bytes).await;
        let (reserved, pinned) = reserved.unzip();
        let pin = match op.class() {
            Class::Modify if pinned.is_some() => pinned,
            Class::Modify => {
                let bytes = (body.len() + bulk_bytes) as u64 + limits::PIN_OVERHEAD_BYTES;
                Some(inner.pins.acquire(bytes).await)
            }
            _ => None,
        };
        let lease = match reserved {
            Some(lease) => lease,
            None => inner.slots.acquire().await?,
        };
        if call.evictions.is_some_and(|before| before != inner.state.borrow().stats.evictions) {
            return Err(RpcError::Evicted("the target ended the session before this was sent".into()));
        }
        let mut header = FrameHeader::new(FrameKind::Request, op as u16);
        (header.level, header.job, header.capability) = (call.level, call.job, capability);
        let (waiter, reply) = oneshot::channel();
        let fids = [call.fid, call.directory];
        let is_bound = call.evictions.is_some();
        let pending = Pending { header, op, body, bulk: call.bulk, pin, fids, waiter, is_bound, sent: false, order: 0 };
        let (slot, sequence) = inner.slots.fill(lease, pending);
        let unsent = TakeBackUnsent { inner, slot, sequence };
        inner.send_when(slot, sequence, call.patient);
        let received = reply.await.unwrap_or(Err(RpcError::Closed))?;
        drop(unsent);
        if !received.bulk.is_empty() {
            inner.env.charge_bytes(Side::Client, op as u16, received.bulk.len()).await;
        }
        Ok(received)
    })
}

fn check_lengths(op: Op, body_bytes: usize, bulk_bytes: usize) -> Result<(), RpcError> {
    if body_bytes > proto_limits::BODY_BYTES || bulk_bytes > proto_limits::BULK_BYTES {
        return Err(RpcError::Protocol(format!(
            "{} with {body_bytes} bytes of body and {bulk_bytes} of bulk; a frame takes {} and {}",
            op.name(),
            proto_limits::BODY_BYTES,
            proto_limits::BULK_BYTES
        )));
    }
    Ok(())
}

/// A call given up before its request was sent leaves no trace. Later, the slot keeps the request until its reply
/// arrives.
struct TakeBackUnsent<'a> {
    inner: &'a Rc<Inner>,
    slot: u16,
    sequence: u64,
}

impl Drop for TakeBackUnsent<'_> {
    fn drop(&mut self) {
        if self.inner.slots.with(self.slot, self.sequence, |p| !p.sent) == Some(true) {
            self.inner.slots.take(self.slot, self.sequence);
        }
    }
}

impl Inner {
    /// See [`super::ClientSession::ask`].
    pub async fn ask<O: Operation>(&self, request: &O) -> Result<O::Reply, RpcError> {
        let away = || RpcError::Unreachable(format!("{} is away", self.options.target));
        if !self.is_up() {
            return Err(away());
        }
        let mut capability = self.capability(O::OP, &request.to_bytes(), None).await?;
        let body = loop {
            let (waiter, reply) = oneshot::channel();
            self.send_control_with(request, Control::Call(waiter), capability);
            match reply.await.map_err(|_| away())? {
                Err(error) if error.errno() == Errno::CAPABILITY && self.capabilities.borrow().is_some() => {
                    capability = self.capability(O::OP, &request.to_bytes(), Some(capability)).await?;
                }
                done => break done?,
            }
        };
        O::Reply::from_bytes(&body).map_err(|e| RpcError::Protocol(format!("reply to {}: {e}", O::OP.name())))
    }

    /// The capability that a request needs; none for most.
    async fn capability(&self, op: Op, body: &[u8], refused: Option<Capability>) -> Result<Capability, RpcError> {
        let capabilities = self.capabilities.borrow().clone();
        let (Some(capabilities), Needs::Capability(right)) = (capabilities, op.needs()) else {
            return Ok(Capability::NONE);
        };
        match object_of(op, body) {
            Some(object) => capabilities.get(object, right, refused).await,
            None => Ok(Capability::NONE),
        }
    }

    /// Sends the request in a slot if the target serves requests now. Otherwise it is sent with the resends.
    pub fn send_pending(&self, slot: u16, sequence: u64) {
        self.send_when(slot, sequence, false);
    }

    /// The same; a `patient` request may wait for another one to go with.
    fn send_when(&self, slot: u16, sequence: u64, patient: bool) {
        let mut state = self.state.borrow_mut();
        if state.phase != SessionState::Up || state.link.is_none() {
            return;
        }
        let frame = self.slots.with(slot, sequence, |pending| {
            pending.sent = true;
            (pending.header.clone(), pending.body.clone(), pending.bulk.clone())
        });
        if let Some((header, body, bulk)) = frame {
            if patient {
                state.send_with_next(&self.env, header, body, bulk);
            } else {
                state.send(&self.env, header, body, bulk);
            }
        }
        self.attention.notify_one();
    }
}
