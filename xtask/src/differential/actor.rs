//! A thread that is a program of its own to the kernel: its own descriptors, locks, umask, ids and mounts.
//!
//! In its mounts the local file system moves no access times by reading, as the mount under test does not.

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

/// A call that has not returned after this hangs: longer than anything waits for a server that comes back.
const PATIENCE: Duration = Duration::from_secs(120);

/// What both file systems answered.
pub struct Done {
    /// The local one.
    pub local: Answer,
    /// The mount.
    pub mount: Answer,
    /// What the call was about.
    pub about: About,
    /// The mount was asked once more, as docs/posix.md says.
    pub asked: Option<&'static str>,
}

/// One of the programs.
pub struct Actor {
    asks: Option<Sender<Step>>,
    answers: Receiver<Outcome<Done>>,
    /// A call has not returned: nobody waits for it any more.
    hangs: Cell<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Actor {
    /// Starts it, between a local directory and one of a mount.
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
            // The root of the run can be removed, and the mount taken away.
            let _ = sys(libc::SYS_chdir, &mut [Text(c"/")]);
        });
        Self { asks: Some(asks), answers, hangs: Cell::new(false), thread: Some(thread) }
    }

    /// Lets it make a call, on both.
    pub fn play(&self, step: &Step) -> Outcome<Done> {
        let asks = self.asks.as_ref().expect("it runs until it is dropped");
        let _ = asks.send(step.clone());
        match self.answers.recv_timeout(PATIENCE) {
            Ok(done) => done,
            Err(RecvTimeoutError::Timeout) => {
                self.hangs.set(true);
                Err(format!("hangs for {PATIENCE:?}: {step}"))
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

/// What attributes in an answer are of.
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
    // With what is above it: its `..` does not lead to another mount.
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
