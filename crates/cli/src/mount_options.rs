//! The mount options after `-o`.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use forebay_client::{AccessTimes, CommitLevel, MountOptions};
use forebay_command::{
    error::{CliError, CliResult},
    units::parse_size,
};
use forebay_env::Address;
use forebay_fuse::FuseTransport;
use forebay_proto::limits::INLINE_BYTES;

/// Options of a mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Commit level: when replies to changes are sent.
    pub level: Option<CommitLevel>,
    /// Most bytes pinned for replay.
    pub pin_bytes: Option<u64>,
    /// Most data bytes of one request.
    pub rpc_bytes: Option<u32>,
    /// Most data requests in flight to one OST.
    pub rpcs_in_flight: Option<usize>,
    /// Most bytes of delayed writes.
    pub write_back_bytes: Option<u64>,
    /// Most bytes of the read cache.
    pub read_cache_bytes: Option<u64>,
    /// Largest file whose bytes are stored inline, on the MDT.
    pub inline_bytes: Option<usize>,
    /// No changes through this mount.
    pub read_only: bool,
    /// Honour device files.
    pub devices: bool,
    /// Honour set-user-id and set-group-id bits.
    pub set_ids: bool,
    /// Refuse to execute programs from it.
    pub no_exec: bool,
    /// Which reads update access times.
    pub access_times: Option<AccessTimes>,
    /// Listing a directory does not update its access time.
    pub no_directory_access_times: Option<bool>,
    /// Other users may use it; the default when root mounts.
    pub allow_other: bool,
    /// How the kernel's requests arrive.
    pub transport: FuseTransport,
    /// Change the existing mount.
    pub remount: bool,
}

/// Options that fstab and mount(8) add and that mean nothing here. Also those that always hold: locks work across
/// mounts, access control lists and user attributes are stored, access times are sent to the servers later.
const IGNORED: &[&str] =
    &["auto", "noauto", "nofail", "_netdev", "async", "nouser", "flock", "acl", "user_xattr", "lazytime", "nolazytime"];

/// Whether the word is a note in fstab for other programs.
fn is_note(word: &str) -> bool {
    word.starts_with("x-") || word.starts_with("X-") || word.starts_with("comment=")
}

impl Options {
    /// Parses the comma-separated words.
    pub fn parse(words: &[String]) -> CliResult<Self> {
        // As in mount(8), at any position: rw, suid, dev, exec, auto, nouser, async.
        let ordinary = words.iter().any(|word| word == "defaults");
        let remount = words.iter().any(|word| word == "remount");
        let mut options = Self { devices: ordinary, set_ids: ordinary, remount, ..Self::default() };
        for word in words
            .iter()
            .map(String::as_str)
            .filter(|word| !word.is_empty() && !IGNORED.contains(word) && !is_note(word))
        {
            options.take(word).map_err(|why| CliError::usage(format!("-o {word}: {why}")))?;
        }
        Ok(options)
    }

    fn take(&mut self, word: &str) -> Result<(), String> {
        match word.split_once('=').unwrap_or((word, "")) {
            ("commit", level) => self.level = Some(parse_level(level)?),
            ("pin", size) => self.pin_bytes = Some(parse_pin(size)?),
            ("rpc", size) => self.rpc_bytes = Some(parse_rpc_bytes(size)?),
            ("rpcs_in_flight", count) => {
                let count = count.parse().ok().filter(|count| (1..=64).contains(count));
                self.rpcs_in_flight = Some(count.ok_or("give a number from 1 to 64")?);
            }
            ("writeback", size) => self.write_back_bytes = Some(parse_write_back(size)?),
            ("readcache", size) => self.read_cache_bytes = Some(parse_read_cache(size)?),
            ("inline", size) => self.inline_bytes = Some(parse_inline(size)?),
            ("transport", name) => self.transport = name.parse()?,
            // The last of contradicting options counts, as in mount(8).
            ("ro", "") => self.read_only = true,
            ("rw", "") => self.read_only = false,
            ("dev", "") => self.devices = true,
            ("nodev", "") => self.devices = false,
            ("suid", "") => self.set_ids = true,
            ("nosuid", "") => self.set_ids = false,
            ("noexec", "") => self.no_exec = true,
            ("exec", "") => self.no_exec = false,
            ("defaults", "") => {}
            ("noatime", "") => self.access_times = Some(AccessTimes::Never),
            ("strictatime", "") => self.access_times = Some(AccessTimes::Always),
            ("relatime" | "atime" | "norelatime" | "nostrictatime", "") => {
                self.access_times = Some(AccessTimes::Relative);
            }
            ("nodiratime", "") => self.no_directory_access_times = Some(true),
            ("diratime", "") => self.no_directory_access_times = Some(false),
            // A mount that users may make must not give them rights. mount(8) adds the user's name.
            ("user", _) | ("users", "") => (self.devices, self.set_ids, self.no_exec) = (false, false, true),
            ("owner" | "group", "") => (self.devices, self.set_ids) = (false, false),
            ("allow_other", "") => self.allow_other = true,
            ("sync" | "dirsync", "") => return Err("say commit=commit: replies leave when all is durable".into()),
            ("remount", "") => {}
            // mount(8) repeats the options that the kernel shows for the mount.
            ("user_id" | "group_id" | "max_read" | "blksize", _) | ("default_permissions", "") if self.remount => {}
            _ => return Err("there is no such option; see `forebay mount --help`".into()),
        }
        Ok(())
    }

    /// The client's options.
    pub fn client(&self, addresses: Vec<Address>, description: String) -> MountOptions {
        let mut options = MountOptions::new(addresses);
        options.level = self.level.unwrap_or(options.level);
        options.pin_bytes = self.pin_bytes.unwrap_or(options.pin_bytes);
        options.max_rpc_bytes = self.rpc_bytes.unwrap_or(options.max_rpc_bytes);
        options.rpcs_in_flight = self.rpcs_in_flight.unwrap_or(options.rpcs_in_flight);
        options.write_back_bytes = self.write_back_bytes.unwrap_or(options.write_back_bytes);
        options.read_cache_bytes = self.read_cache_bytes.unwrap_or(options.read_cache_bytes);
        options.inline_bytes = self.inline_bytes.unwrap_or(options.inline_bytes);
        options.access_times = if self.read_only { AccessTimes::Never } else { self.access_times.unwrap_or_default() };
        options.no_directory_access_times = self.no_directory_access_times.unwrap_or(false);
        options.description = description;
        options
    }
}

/// The names of commit levels as the possible values of an argument.
pub fn level_values() -> impl TypedValueParser<Value = CommitLevel> {
    let names = PossibleValuesParser::new(CommitLevel::ALL.map(CommitLevel::name));
    names.map(|name| CommitLevel::named(&name).expect("one of the names"))
}

/// A commit level by its name.
pub fn parse_level(text: &str) -> Result<CommitLevel, String> {
    CommitLevel::named(text).ok_or_else(|| "use memory, data or commit".into())
}

fn parse_pin(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    if bytes >= 1 << 20 { Ok(bytes) } else { Err("use 1MiB or more".into()) }
}

fn parse_rpc_bytes(text: &str) -> Result<u32, String> {
    let bytes = parse_size(text)?;
    let fits = bytes > 0 && bytes.is_multiple_of(64 << 10) && bytes <= forebay_proto::limits::BULK_BYTES as u64;
    if fits { Ok(bytes as u32) } else { Err("use a multiple of 64KiB up to 4MiB".into()) }
}

fn parse_write_back(text: &str) -> Result<u64, String> {
    let bytes = if text == "0" { 0 } else { parse_size(text)? };
    let fits = bytes == 0 || (1 << 20..=4 << 30).contains(&bytes);
    if fits { Ok(bytes) } else { Err("use 1MiB to 4GiB, or 0 to send every write at once".into()) }
}

/// Largest file whose bytes are stored inline, on the MDT.
pub fn parse_inline(text: &str) -> Result<usize, String> {
    let bytes = if text == "0" { 0 } else { parse_size(text)? };
    let fits = usize::try_from(bytes).ok().filter(|bytes| *bytes <= INLINE_BYTES);
    fits.ok_or("use up to 16KiB, or 0 to write every file to the OSTs".into())
}

fn parse_read_cache(text: &str) -> Result<u64, String> {
    let bytes = if text == "0" { 0 } else { parse_size(text)? };
    let fits = bytes == 0 || (4 << 20..=64 << 30).contains(&bytes);
    if fits { Ok(bytes) } else { Err("use 4MiB to 64GiB, or 0 to ask the servers for every read".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> CliResult<Options> {
        Options::parse(&text.split(',').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_of_fstab_are_understood() {
        let options =
            parse("defaults,_netdev,commit=commit,pin=64MiB,rpc=1MiB,rpcs_in_flight=4,writeback=0,readcache=1GiB,inline=4KiB,ro")
                .expect("options");
        assert_eq!(options.level, Some(CommitLevel::Commit));
        assert_eq!(
            (options.pin_bytes, options.rpc_bytes, options.rpcs_in_flight, options.write_back_bytes),
            (Some(64 << 20), Some(1 << 20), Some(4), Some(0))
        );
        assert_eq!((options.read_cache_bytes, options.inline_bytes), (Some(1 << 30), Some(4096)));
        assert!(options.read_only && !options.allow_other && options.devices && options.set_ids);
        assert!(parse("noexec,nosuid,flock,user_xattr,x-systemd.automount").expect("options").no_exec);
        for transport in [FuseTransport::Auto, FuseTransport::Device, FuseTransport::Uring] {
            let parsed = parse(&format!("transport={}", transport.name())).expect("a transport");
            assert_eq!(parsed.transport, transport);
        }
        assert_eq!(parse("").expect("none"), Options::default());
        for (words, access_times, no_directories) in [
            ("relatime,nodiratime", Some(AccessTimes::Relative), Some(true)),
            ("noatime", Some(AccessTimes::Never), None),
            ("noatime,strictatime,nodiratime,diratime,lazytime", Some(AccessTimes::Always), Some(false)),
            ("strictatime,atime", Some(AccessTimes::Relative), None),
        ] {
            let options = parse(words).expect(words);
            let told = (options.access_times, options.no_directory_access_times);
            assert_eq!(told, (access_times, no_directories), "{words}");
        }
        assert_eq!(parse("ro,dev,suid,noexec,rw,nodev,nosuid,exec").expect("the last count"), Options::default());
        let safe = parse("defaults,nosuid,nodev").expect("as fstab has it");
        assert!(!safe.set_ids && !safe.devices);
        for all in ["ro,defaults", "defaults,ro"] {
            let read_only = parse(all).expect("as fstab has it");
            assert!(read_only.read_only && read_only.set_ids && read_only.devices, "{all}");
        }
        let safe = parse("nosuid,noexec,defaults").expect("as fstab has it");
        assert!(!safe.set_ids && safe.no_exec && safe.devices);
        for by_users in ["users", "user=alice", "defaults,user", "users,defaults"] {
            let users = parse(by_users).expect("as fstab has it");
            assert!(!users.set_ids && !users.devices && users.no_exec, "{by_users}");
        }
        assert!(!parse("users,exec").expect("exec comes after").no_exec);
        let again = parse("rw,nosuid,relatime,user_id=0,group_id=0,default_permissions,allow_other,remount,ro");
        assert!(again.is_ok_and(|again| again.remount && again.read_only && !again.set_ids));
    }

    #[test]
    fn wrong_options_are_named() {
        for (text, words) in [
            ("commit=soon", "memory, data or commit"),
            ("rpc=47008", "64KiB"),
            ("rpcs_in_flight=0", "1 to 64"),
            ("writeback=1KiB", "1MiB to 4GiB"),
            ("readcache=1MiB", "4MiB to 64GiB"),
            ("inline=32KiB", "up to 16KiB"),
            ("pin=lots", "not a size"),
            ("pin=1K", "1MiB or more"),
            ("noflock", "no such option"),
            ("transport=pigeon", "auto, dev or uring"),
            ("frobnicate", "no such option"),
            ("user_id=0", "no such option"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.exit_code() == 2 && error.message.contains(words) && error.message.contains(text), "{error}");
        }
    }
}
