//! `forebay bench machine`: measures the parameters of this machine that the laboratory needs, and writes its
//! description.
//!
//! One machine runs programs, mount and servers, as with `forebay up`. Each layer is measured alone: the device, the
//! FUSE layer (over an empty file system), messages over Unix sockets, the client library on small requests. Nothing is
//! measured through all layers together: `forebay sim FILE` predicts that, and `forebay bench ior` measures it.

mod describe;
mod device;
mod fuse;
mod library;

use std::path::PathBuf;

use clap::Args;
use forebay_command::{
    error::{CliError, CliResult, Doing},
    posix, progress,
    units::parse_positive_size,
};

use self::describe::Description;
use super::cpu_costs::{self, Amount};

/// What to measure.
#[derive(Debug, Args)]
pub struct MachineArgs {
    /// A directory on the device where the OSTs will lie: new or empty; removed at the end
    pub dir: PathBuf,
    /// Write the description here (for `forebay sim FILE`)
    #[arg(long, value_name = "FILE.toml")]
    pub toml: PathBuf,
    /// OSTs that it shall have
    #[arg(long, default_value_t = 4, value_name = "N")]
    pub osts: u32,
    /// Programs at work at once
    #[arg(short = 'N', long, default_value_t = 4, value_name = "N")]
    pub programs: u32,
    /// Bytes written and read in each measurement
    #[arg(long, default_value = "1GiB", value_parser = parse_positive_size, value_name = "SIZE")]
    pub bytes: u64,
    /// Repetitions of each: medians are taken
    #[arg(short = 'i', long, default_value_t = 5, value_name = "N")]
    pub repetitions: u32,
}

/// Measures everything and writes the description.
pub fn run(args: &MachineArgs) -> CliResult {
    if args.osts == 0 || args.osts > 100 || args.programs == 0 || args.programs > 1024 || args.repetitions == 0 {
        return Err(CliError::usage("--osts: 1 to 100; -N: 1 to 1024; -i: at least 1"));
    }
    if args.bytes < 64 << 20 {
        return Err(CliError::usage("--bytes: less than 64MiB measures nothing"));
    }
    if args.toml.extension().is_none_or(|extension| extension != "toml") {
        return Err(CliError::usage(format!(
            "--toml {}: `forebay sim` wants a name ending in .toml",
            args.toml.display()
        )));
    }
    forebay_fuse::check_device().map_err(CliError::failed)?;
    if !posix::may_mount() {
        return Err(CliError::failed("only root may mount here (in a container, one with CAP_SYS_ADMIN)"));
    }
    let shown = args.dir.display();
    if args.dir.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(CliError::failed(format!("{shown} is not empty; give a new directory")));
    }
    std::fs::create_dir_all(&args.dir).doing(|| format!("cannot make {shown}"))?;
    let measured = measure(args);
    // Remove the mount point first, so that nothing that is still mounted is deleted.
    let mnt = args.dir.join("mnt");
    let emptied = if mnt.exists() { std::fs::remove_dir(&mnt) } else { Ok(()) };
    let removed = emptied.and_then(|()| std::fs::remove_dir_all(&args.dir));
    let text = measured?.to_toml();
    removed.doing(|| format!("cannot remove {shown}"))?;
    std::fs::write(&args.toml, text).doing(|| format!("cannot write {}", args.toml.display()))?;
    println!("{}: ask `forebay sim {0}` what it would do", args.toml.display());
    Ok(())
}

fn measure(args: &MachineArgs) -> CliResult<Description> {
    let device = device::measure(&args.dir, args.bytes, args.repetitions)?;
    let fuse = {
        let _waiting = progress::spinner("the FUSE layer");
        fuse::measure(&args.dir.join("mnt"), args.programs, args.bytes, args.repetitions)?
    };
    let amount = Amount { files: 5_000, bytes: args.bytes, depth: 32, repetitions: args.repetitions };
    let costs = cpu_costs::over_sockets_of_up(&args.dir.join("messages"), amount)?;
    let library = library::measure(&args.dir.join("library"), amount, &costs)?;
    Ok(Description { osts: args.osts, programs: args.programs, device, fuse, library, costs })
}
