//! Layouts of all kinds: plain, composite, and those inherited from directories.

use forebay_client::{ClientResult, LayoutSpec, OpenMode};
use forebay_proto::{Errno, FOR_EVER, Fid, Layout, message::ComponentSpec};

use super::{Dice, FILE_BYTES, Outcome, Runner, caller};

const STRIPE_BYTES: u32 = 64 << 10;

/// A random layout: inherited from the directory, plain, or with up to three components within the size of the
/// workload's files.
pub fn some_layout(dice: &mut Dice) -> LayoutSpec {
    let stripe_count = dice.below(4) as u32;
    match dice.below(5) {
        0 => LayoutSpec::inherit(),
        1 | 2 => LayoutSpec { stripe_count, stripe_bytes: STRIPE_BYTES, ..LayoutSpec::inherit() },
        _ => LayoutSpec { components: components(dice), ..LayoutSpec::inherit() },
    }
}

fn components(dice: &mut Dice) -> Vec<ComponentSpec> {
    let mut ends: Vec<u64> = (0..1 + dice.below(2)).map(|_| (1 + dice.below(FILE_BYTES >> 17)) << 16).collect();
    ends.push(FOR_EVER);
    ends.sort_unstable();
    ends.dedup();
    let part = |end| ComponentSpec {
        end,
        stripe_count: dice.below(4) as u32,
        stripe_bytes: STRIPE_BYTES * (1 + dice.below(2) as u32),
        stripe_index: if dice.below(4) == 0 { 0 } else { u32::MAX },
        pool: String::new(),
    };
    ends.into_iter().map(part).collect()
}

impl Runner {
    /// Migrates a file to another layout, unless it is open for writing. The model does not change.
    pub(super) async fn migrate(&mut self) -> Outcome {
        let Some((path, _)) = self.random_file() else { return Ok(()) };
        let fid = self.fid(&path).await?;
        self.say(&format!("migrate {fid}"));
        match self.try_migrate(fid).await {
            Err(error) if matches!(error.errno, Errno::EBUSY | Errno::EAGAIN | Errno::ESTALE) => Ok(()),
            done => self.allow(done).map(drop),
        }
    }

    async fn try_migrate(&mut self, fid: Fid) -> ClientResult<()> {
        let version = self.client.migrate_start(fid).await?;
        let from = self.client.open(&caller(), fid, OpenMode::READ).await?;
        let bytes = self.client.read(&from, 0, 2 * FILE_BYTES as usize).await;
        let layout = from.layout();
        self.client.close(from).await?;
        let bytes = match bytes {
            Err(error) if error.errno == Errno::EIO && self.is_told_of_damage(&layout, fid) => return Ok(()),
            bytes => bytes?,
        };
        let (made, copy) = self.client.create_nameless(&caller(), self.home, 0o600, OpenMode::READ_WRITE).await?;
        let laid = self.client.set_layout(&caller(), made.fid, some_layout(&mut self.dice)).await;
        let copied = match self.client.write(&copy, 0, bytes.clone()).await {
            Ok(written) if written == bytes.len() => self.client.fsync(&copy, false).await,
            Ok(_) => Err(Errno::ENOSPC.into()),
            Err(error) => Err(error),
        };
        // A read-only handle keeps the copy.
        let keeper = self.client.open(&caller(), made.fid, OpenMode::READ).await;
        self.client.close(copy).await?;
        let keeper = keeper?;
        let moved = match laid.and(copied) {
            Ok(()) => self.client.migrate(&caller(), fid, made.fid, version).await,
            Err(error) => Err(error),
        };
        self.client.close(keeper).await?;
        moved
    }

    /// Damaged bytes cannot be copied: then the error is right.
    fn is_told_of_damage(&self, layout: &Layout, file: Fid) -> bool {
        let damage = self.me.borrow().damage.clone();
        let touches = damage.touches(layout, file, 0..u64::MAX);
        if touches {
            damage.told();
        }
        touches
    }

    /// Gives a directory another default layout. The model does not change.
    pub(super) async fn lay_out(&mut self) -> Outcome {
        let path = self.random_dir();
        let fid = if path.is_empty() { self.home } else { self.fid(&path).await? };
        let layout = some_layout(&mut self.dice);
        let done = self.client.set_layout(&caller(), fid, layout).await;
        self.allow(done)?;
        Ok(())
    }
}
