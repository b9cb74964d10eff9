//! Tests of the journal as a whole: over plain bytes (`tears`, `rot`, `history`), and over simulated disks (`io`).

mod history;
mod io;
mod paper;
mod rot;
mod tears;
