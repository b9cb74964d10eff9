//! Extended attributes: small ones, and ones that fill an MDT.

use bytes::Bytes;
use forebay_client::Client;
use forebay_proto::{Errno, Fid};

use super::{Outcome, Runner, caller};
use crate::{
    model::{Node, attribute_key, fill},
    stop::{Excuses, Stop, judge},
};

/// The name of the attribute that workers set.
const NAME: &[u8] = b"user.note";
/// Length of the tag at the start of a value.
const TAG_BYTES: usize = 8;

/// The value for a tag.
fn value(tag: u64, bytes: usize) -> Vec<u8> {
    let mut value = tag.to_le_bytes().to_vec();
    value.extend(fill(tag, 0, bytes - TAG_BYTES));
    value
}

/// Decodes a value. Errors: no worker ever set this value.
fn decode(seen: &[u8]) -> Result<Node, String> {
    let tag = seen.first_chunk().map_or(0, |tag| u64::from_le_bytes(*tag));
    if seen.len() >= TAG_BYTES && seen == value(tag, seen.len()) {
        return Ok(Node::Attribute(tag, seen.len()));
    }
    Err(format!("an attribute of {} bytes is none that was ever set", seen.len()))
}

/// The attribute of a file, as a node of the model.
pub async fn attribute_of(client: &Client, fid: Fid, excuses: Excuses) -> Result<Option<Node>, Stop> {
    match client.getxattr(&caller(), fid, NAME).await {
        Ok(seen) => Ok(Some(decode(&seen)?)),
        Err(e) if e.errno == Errno::ENODATA => Ok(None),
        Err(e) => Err(judge(&format!("getxattr of {fid}"), &e, excuses)),
    }
}

impl Runner {
    /// Checks a file's attribute, then sets or removes it.
    pub(super) async fn attribute(&mut self) -> Outcome {
        let Some((path, id)) = self.random_file() else { return Ok(()) };
        let fid = self.fid(&path).await?;
        let seen = attribute_of(&self.client, fid, self.excuses).await?;
        let expected = self.me.borrow().names.attribute(id).cloned();
        if seen != expected {
            return Err(Stop::Names(format!("the attribute of {path} is {seen:?}, expected {expected:?}")));
        }
        let (client, key) = (self.client.clone(), attribute_key(id));
        if seen.is_some() && self.dice.below(3) == 0 {
            let request = async { client.removexattr(&caller(), fid, NAME).await };
            self.delete_names(move |names| drop(names.remove(&key)), request).await?;
            return Ok(());
        }
        let longest = if self.fills_mdt { [300, 20_000, 40_000][self.dice.below(3) as usize] } else { 300 };
        let (tag, bytes) = (self.dice.roll() | 1, TAG_BYTES + self.dice.below(longest) as usize);
        let node = Node::Attribute(tag, bytes);
        let request = async { client.setxattr(&caller(), fid, NAME, &Bytes::from(value(tag, bytes)), 0).await };
        self.change_names(move |names| drop(names.insert(key.clone(), node.clone())), request).await?;
        Ok(())
    }
}
