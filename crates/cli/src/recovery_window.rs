//! How long a restarted target waits for its earlier clients: the allowed range, and the value that a cluster of `up`
//! remembers.

use std::time::Duration;

use forebay_target::TargetOptions;

use crate::{
    cluster::Cluster,
    error::{CliError, CliResult},
    processes::PidFile,
    units::{parse_duration, write_duration},
    up::server_processes,
};

/// The shortest window. A live client reconnects every 300 ms; one that comes too late loses its pinned requests.
pub const SHORTEST: Duration = Duration::from_secs(1);
/// The longest window. All clients wait that long for one client that died.
pub const LONGEST: Duration = Duration::from_secs(3600);

/// Parses arguments and descriptions.
pub fn parse(text: &str) -> Result<Duration, String> {
    let window = parse_duration(text)?;
    if (SHORTEST..=LONGEST).contains(&window) {
        return Ok(window);
    }
    let why = if window < SHORTEST {
        "clients that live would not be back in time, and lose what they wrote last"
    } else {
        "everybody waits that long for one client that died"
    };
    Err(format!("{why}: use {} to {}", write_duration(SHORTEST), write_duration(LONGEST)))
}

/// Sets the value of `up --recovery-window` in the description, which is not saved here. Errors: servers run with
/// another value; the change needs a restart.
pub fn set(asked: Duration, cluster: &mut Cluster) -> CliResult {
    let was = of(cluster).unwrap_or(TargetOptions::default().recovery_window);
    let mut processes = server_processes(cluster).into_iter();
    if asked != was && processes.any(|(name, _)| PidFile::of(&cluster.run_dir(), &name).running().is_some()) {
        let (was, dir) = (write_duration(was), cluster.dir.display());
        return Err(CliError::failed(format!(
            "--recovery-window: the servers run with {was}, and only a start changes it: `forebay down {dir}` first"
        )));
    }
    cluster.description.recovery_window = Some(write_duration(asked));
    Ok(())
}

/// The value in the cluster's description. `None`: the servers use their default.
pub fn of(cluster: &Cluster) -> Option<Duration> {
    cluster.description.recovery_window.as_deref().map(|text| parse(text).expect("checked when it was loaded"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_that_lose_data_or_never_end_are_refused_with_words() {
        for (text, words) in
            [("0s", "use 1s to 1h"), ("999ms", "lose what they wrote last"), ("2h", "everybody waits"), ("x", "5s")]
        {
            let said = parse(text).expect_err(text);
            assert!(said.contains(words), "{text}: {said}");
        }
        for text in ["1s", "1500ms", "10m", "1h"] {
            assert_eq!(parse(text).map(write_duration).as_deref(), Ok(text));
        }
    }
}
