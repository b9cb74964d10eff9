//! A short selection of `xtask suites`: all of `pjdfstest`, and some operations of `fsx` in each of its modes. It needs
//! the registry to install the programs the first time.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the user

mod common;

/// A mount passes the test suites of other projects.
#[test]
fn a_mount_passes_the_test_suites_of_others() {
    let suites = ["suites", "--quick", "--only", "pjdfstest,fsx,fsx-two,fsx-mmap,fsx-two-mmap", "--operations", "3000"];
    // A short path, as sockets are made in it whose names have at most 107 bytes.
    common::run(&suites, std::env::temp_dir(), "forebay-suites");
}
