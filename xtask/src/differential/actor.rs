//! A thread that is a separate program to the kernel: it has its own descriptors, locks, umask, ids and mounts.
//!
//! In its mounts, reads do not move access times on the local file system, as they do not on the mount under test.

use std::{
    cell::Cell,
    ffi::CString,
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread::JoinHandle,
    time::Duration,
};

use super::{
    answer::{Answer, Fact},
    call::Step,
    known::{About, Setup},
    place::Place,
    sys::{Arg::*, Asked, sys},
};
use crate::figures::Outcome;

/// A call that takes longer than this hangs. It is longer than anything waits for a server that comes back.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The answers of both file systems.
pub struct Done {
    /// The local one.
    pub local: Answer,
    /// The mount.
    pub mount: Answer,
    /// What the call was about.
    pub about: About,
    /// The call was repeated on the mount, as docs/posix.md says.
    pub asked: Option<&'static str>,
}

/// One of the programs.
pub struct Actor {
    asks: Option<Sender<Step>>,
    answers: Receiver<Outcome<Done>>,
    /// A call has not returned, and nobody waits for it any more.
    hangs: Cell<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Actor {
    /// Starts it with a local directory and one on a mount.
    pub fn start(local: &Path, mount: &Path, setup: Setup) -> Self {
        let (asks, steps) = channel::<Step>();
        let (answered, answers) = channel();
        let roots = [local.to_owned(), mount.to_owned()];
        let thread = std::thread::spawn(move || {
            let mut places = match settle(&roots, setup) {
                Ok(places) => places,
                Err(error) => return drop(answered.send(Err(error))),
            };
            while let Ok(step) = steps.recv() {
                let slots = places[0].abouts();
                let about = step.call.slot().map_or(About::default(), |slot| slots[slot]);
                let [local, mut mount] = places.each_mut().map(|place| place.perform(&step, &slots));
                let refused = setup.refused(&step.call, &local, &mount);
                if let Some((_, asks)) = &refused {
                    for call in asks {
                        places[1].perform(&Step { call: call.clone(), ..step.clone() }, &slots);
                    }
                    mount = places[1].perform(&step, &slots);
                }
                let asked = refused.map(|(says, _)| says);
                if let Some(slot) = step.call.fills().filter(|_| local.result.is_ok() != mount.result.is_ok()) {
                    places.iter_mut().for_each(|place| place.forget(slot));
                }
                if answered.send(Ok(Done { local, mount, about, asked })).is_err() {
                    return;
                }
            }
            for place in &mut places {
                for map in 0..place.maps.len() {
                    let _ = place.unmap(map);
                }
            }
            // Leave the run's root, so that it can be removed and the mount unmounted.
            let _ = sys(libc::SYS_chdir, &mut [Text(c"/")]);
        });
        Self { asks: Some(asks), answers, hangs: Cell::new(false), thread: Some(thread) }
    }

    /// Makes a call on both file systems.
    pub fn play(&self, step: &Step) -> Outcome<Done> {
        let asks = self.asks.as_ref().expect("it runs until it is dropped");
        let _ = asks.send(step.clone());
        match self.answers.recv_timeout(TIMEOUT) {
            Ok(done) => done,
            Err(RecvTimeoutError::Timeout) => {
                self.hangs.set(true);
                Err(format!("hangs for {TIMEOUT:?}: {step}"))
            }
            Err(RecvTimeoutError::Disconnected) => Err(format!("the actor has ended at {step}")),
        }
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.asks = None;
        if let Some(thread) = self.thread.take().filter(|_| !self.hangs.get()) {
            let _ = thread.join();
        }
    }
}

/// Which file the attributes in an answer belong to.
pub fn of_answer(answer: &Answer, about: About) -> About {
    let stat = answer.facts.iter().find_map(|fact| match fact {
        Fact::Stat(stat) => Some(stat),
        _ => None,
    });
    stat.map_or(about, |stat| About { kind: stat.kind(), ..about })
}

fn settle(roots: &[PathBuf; 2], setup: Setup) -> Outcome<[Place; 2]> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |errno| format!("{what}: {}", std::io::Error::from_raw_os_error(errno))
    };
    let apart = libc::CLONE_FILES | libc::CLONE_FS | libc::CLONE_NEWNS;
    sys(libc::SYS_unshare, &mut [Int(apart.into())]).map_err(failed("unshare(2)"))?;
    mount(c"/", libc::MS_REC | libc::MS_PRIVATE).map_err(failed("mounts of its own"))?;
    // With the directory above, so that its `..` does not lead to another mount.
    let pen = roots[0].parent().unwrap_or(&roots[0]);
    let local = CString::new(pen.as_os_str().as_encoded_bytes()).expect("no path has a zero");
    mount(&local, libc::MS_BIND).map_err(failed("a bind mount"))?;
    let quiet = libc::MS_BIND | libc::MS_REMOUNT | libc::MS_NOATIME;
    mount(&local, quiet).map_err(failed("a bind mount with noatime"))?;
    let place = |which: usize| Place::new(&roots[which], which == 0, setup).map_err(failed("the root of the run"));
    Ok([place(0)?, place(1)?])
}

/// mount(2) of a directory on itself.
fn mount(path: &std::ffi::CStr, flags: libc::c_ulong) -> Asked {
    sys(libc::SYS_mount, &mut [Text(path), Text(path), Int(0), Int(flags as i64), Int(0)])
}
