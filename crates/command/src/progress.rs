//! Progress bars on a terminal; nothing if stderr is not a terminal.

use std::{io::IsTerminal, time::Duration};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The unit of a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// Bytes, with a rate.
    Bytes,
    /// Files, requests, steps.
    Things,
}

/// A bar named `what` that counts to `total`; hidden unless stderr is a terminal. It disappears when it is dropped.
pub fn bar(what: &str, total: u64, counts: Counts) -> Bar {
    let template = match counts {
        Counts::Bytes => "{msg:30} {bar:30} {bytes:>10} of {total_bytes:10} {bytes_per_sec:>12}  {elapsed}",
        Counts::Things => "{msg:30} {bar:30} {human_pos:>10} of {human_len:10} {per_sec:>12}  {elapsed}",
    };
    shown(ProgressBar::with_draw_target(Some(total), target()), template, what)
}

/// A clock for a step of unknown length.
pub fn spinner(what: &str) -> Bar {
    shown(ProgressBar::with_draw_target(None, target()), "{spinner} {msg}  {elapsed}", what)
}

fn shown(bar: ProgressBar, template: &str, what: &str) -> Bar {
    bar.set_style(ProgressStyle::with_template(template).expect("the template is a constant of ours"));
    bar.set_message(what.to_owned());
    if !bar.is_hidden() {
        bar.enable_steady_tick(Duration::from_millis(200));
    }
    Bar(bar)
}

fn target() -> ProgressDrawTarget {
    if std::io::stderr().is_terminal() { ProgressDrawTarget::stderr_with_hz(8) } else { ProgressDrawTarget::hidden() }
}

/// A bar on the terminal.
pub struct Bar(ProgressBar);

impl Bar {
    /// Sets the total progress.
    pub fn set(&self, position: u64) {
        self.0.set_position(position);
    }

    /// Shows step `what`, with `position` of `total` done.
    pub fn at(&self, what: &str, position: u64, total: u64) {
        self.0.set_message(what.to_owned());
        self.0.set_length(total);
        self.0.set_position(position);
    }

    /// Adds to the progress.
    pub fn add(&self, delta: u64) {
        self.0.inc(delta);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
