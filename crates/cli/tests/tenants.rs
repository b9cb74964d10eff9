//! A host that is trusted with one directory mounts it, and reaches nothing else. The hosts are network namespaces: needs
//! root, `ip` and /dev/fuse; without them the tests say so and skip.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the administrator and the tenant

mod common;

use std::{
    fs,
    os::unix::{fs::MetadataExt, process::CommandExt},
    path::Path,
    process::Command,
};

use common::{joined::Site, words};

/// What a shell of this user says and how it ends.
fn shell(uid: u32, script: &str) -> (bool, String) {
    let output = Command::new("sh").args(["-c", script]).uid(uid).gid(uid).output().expect("a shell");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &words(&output);
    (output.status.success(), said)
}

fn says(uid: u32, script: &str, said: &str) {
    let (ok, words) = shell(uid, script);
    assert!(ok && words.trim() == said, "{script}: {words}, not {said}");
}

fn refused(uid: u32, script: &str, said: &str) {
    let (ok, words) = shell(uid, script);
    assert!(!ok && words.contains(said), "{script}: {words}");
}

/// mkdir, tenant, token, mount, write as a user, as root, as a stranger; |servers| go on; removal
#[test]
fn a_tenants_host_mounts_its_directory_and_reaches_nothing_else() {
    let Some(site) = Site::new("tenant") else { return };
    let (a, m0, m1) = (site.path("a"), site.path("m0"), site.path("m1"));
    site.hosts.succeeds(0, &["mount", &a, &m0]);
    says(0, &format!("mkdir -m 1777 {m0}/bio {m0}/full && echo s > {m0}/secret && touch {m0}/full/x"), "");
    let new = |name: &str, path: &str| {
        let args = ["tenant", "new", &a, name, "--subtree", path, "--users", "1000-1999"];
        site.hosts.forebay(0, &args)
    };
    for (name, path, said) in [
        ("bio", "/none", "there is no none"),
        ("bio", "/full", "has entries"),
        ("bio", "/", "a directory of its own"),
        ("Bio", "/bio", "small letters"),
    ] {
        let output = new(name, path);
        assert!(!output.status.success() && words(&output).contains(said), "{path}: {}", words(&output));
    }
    let output = new("bio", "/bio");
    assert!(output.status.success(), "{}", words(&output));
    let listed = site.hosts.succeeds(0, &["tenant", "list", &a]);
    assert!(listed.contains("/bio") && listed.contains("1000-1999"), "{listed}");
    site.hosts.fails(0, &["token", "new", &a, "--role", "client", "--tenant", "none"], "no tenant is called none");
    let token = site.token_for("client", &["--tenant", "bio"]);
    let mounted = site.mount(1, &["--token", &token], "m1");
    assert!(mounted.status.success(), "{}", words(&mounted));
    let nodes = site.hosts.succeeds(0, &["node", "list", &a]);
    assert!(nodes.contains(" bio "), "{nodes}");

    // Its users work as anywhere.
    says(
        1000,
        &format!("cd {m1} && mkdir d && echo a > d/f && cat d/f && mv d/f g && ln g h && stat -c %u g"),
        "a\n1000",
    );
    says(
        1000,
        &format!("head -c 3000000 /dev/urandom > {m1}/big && cmp {m1}/big {m1}/big && stat -c %s {m1}/big"),
        "3000000",
    );
    says(1000, &format!("ls -a {m1} | tr '\\n' ' '"), ". .. big d g h");
    says(1000, &format!("echo x > {m1}/mode && chmod 4755 {m1}/mode && stat -c %a {m1}/mode"), "4755");
    // Root is nobody where it makes something, and may what the users may.
    says(0, &format!("echo r > {m1}/root && stat -c %u:%g {m1}/root"), "65534:65534");
    says(0, &format!("cat {m1}/g"), "a");
    refused(0, &format!("mknod {m1}/null c 1 3"), "not permitted");
    refused(0, &format!("chown 0 {m1}/g"), "not permitted");
    // Users that it does not have.
    says(2500, &format!("echo s > {m1}/stranger && stat -c %u {m1}/stranger"), "65534");
    // What the admin keeps there for itself.
    says(0, &format!("umask 077; echo k > {m0}/bio/kept"), "");
    refused(0, &format!("cat {m1}/kept"), "denied");
    // Neither upwards, nor by a link.
    says(
        1000,
        &format!("ln -s /secret {m1}/up && ln -s ../secret {m1}/up2; ls {m1}/../m1 | grep -c secret; true"),
        "0",
    );
    refused(1000, &format!("cat {m1}/up2"), "");
    assert!(fs::metadata(Path::new(&m1).join("secret")).is_err());
    // The admin sees all of it, and moves nothing across.
    says(0, &format!("cat {m0}/bio/g && stat -c %u {m0}/bio/root"), "a\n65534");
    let (inside, outside) = (Path::new(&m0).join("bio/g"), Path::new(&m0).join("g"));
    assert_eq!(fs::rename(&inside, &outside).expect_err("another project").raw_os_error(), Some(libc::EXDEV));
    assert_eq!(fs::hard_link(&inside, &outside).expect_err("another project").raw_os_error(), Some(libc::EXDEV));
    says(0, &format!("mv {m0}/secret {m0}/bio/given && chmod 644 {m0}/bio/given && cat {m1}/given"), "s");

    // New processes of the servers: the mount goes on, with the keys of capabilities of before and later ones.
    site.hosts.succeeds(0, &["down", &a, "--force"]);
    site.hosts.succeeds(0, &["up", &a, "--no-mount"]);
    says(1000, &format!("head -c 3000000 {m1}/big > {m1}/copy && cmp {m1}/big {m1}/copy && echo same"), "same");
    assert_eq!(fs::metadata(&m1).expect("the root").uid(), 0);
    site.hosts.fails(0, &["tenant", "remove", &a, "bio"], "has nodes");
    site.hosts.succeeds(1, &["umount", &m1]);
    let name = nodes.lines().find(|line| line.contains(" bio ")).and_then(|line| line.split(' ').next());
    site.hosts.succeeds(0, &["node", "remove", &a, name.expect("a name")]);
    site.hosts.succeeds(0, &["tenant", "remove", &a, "bio"]);
}
