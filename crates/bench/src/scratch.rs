//! Directories that a benchmark creates for itself within the given one.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use forebay_command::error::{CliError, CliResult};

/// Makes `dir`/`name`. It fails if another run uses that.
pub fn make(dir: &Path, name: &str) -> CliResult<PathBuf> {
    let scratch = dir.join(name);
    std::fs::create_dir(&scratch).map_err(|error| {
        let why = match error.kind() {
            ErrorKind::AlreadyExists => {
                "it is there, left by a run that was killed, or used by one that goes on: remove it, or wait".into()
            }
            ErrorKind::NotFound => format!("there is no {}: make it", dir.display()),
            _ => error.to_string(),
        };
        CliError::failed(format!("cannot make {}: {why}", scratch.display()))
    })?;
    Ok(scratch)
}

#[cfg(test)]
mod tests {
    use super::make;

    #[test]
    fn errors_about_a_scratch_directory_say_what_to_do() {
        let dir = std::env::temp_dir().join(format!("forebay-scratch-{}", std::process::id()));
        let missing = make(&dir, "bench").expect_err("no directory").to_string();
        assert!(missing.contains(&format!("there is no {}: make it", dir.display())), "{missing}");
        std::fs::create_dir(&dir).expect("made");
        let made = make(&dir, "bench").expect("made");
        let again = make(&dir, "bench").expect_err("there").to_string();
        std::fs::remove_dir_all(&dir).expect("removed");
        assert_eq!(made, dir.join("bench"));
        assert!(again.contains("left by a run that was killed"), "{again}");
    }
}
