//! Programs from the registry, installed once beside the build.

use std::{
    fs::{self, File},
    path::PathBuf,
    process::Command,
};

use crate::figures::{Outcome, forebay::root, process::output};

/// `pjdfstest` of the registry.
pub const PJDFSTEST: (&str, &str) = ("pjdfstest", "0.2.2");
/// `fsx` of the registry.
pub const FSX: (&str, &str) = ("fsx", "0.3.2");

/// The path of the installed program.
pub fn tool((name, version): (&str, &str)) -> Outcome<PathBuf> {
    let own = std::env::current_exe().map_err(|error| format!("where am I? {error}"))?;
    let place = own.parent().and_then(|release| release.parent()).ok_or("where am I?")?.join("suites");
    let program = place.join("bin").join(name);
    let doing = |error: std::io::Error| format!("{}: {error}", place.display());
    fs::create_dir_all(&place).map_err(doing)?;
    // Suites that start at the same time install one after another, and each program once.
    let turn = File::create(place.join("lock")).map_err(doing)?;
    turn.lock().map_err(doing)?;
    if !program.exists() {
        let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
        let mut install = Command::new(cargo);
        install.args(["install", "--locked", "--version", version, name, "--root"]).arg(&place);
        output(install.arg("--target-dir").arg(place.join("build")).current_dir(root()))?;
    }
    Ok(program)
}
