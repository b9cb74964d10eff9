//! A host that is trusted with one directory mounts it, and reaches nothing else. The hosts are network namespaces: needs
//! root, `ip` and /dev/fuse; without them the tests say so and skip.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the administrator and the tenant

mod common;

use std::{fs, os::unix::fs::MetadataExt, path::Path, process::Command};

use common::{joined::Site, words};

/// What a shell of this user says in a directory, and whether it succeeds. It changes its user there, as the path to it
/// may be closed to others.
fn shell(uid: u32, dir: &str, script: &str) -> (bool, String) {
    let user = uid.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "sh", "-c", script]).current_dir(dir);
    let output = command.output().expect("setpriv is part of util-linux");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &words(&output);
    (output.status.success(), said)
}

fn says(uid: u32, dir: &str, script: &str, said: &str) {
    let (ok, words) = shell(uid, dir, script);
    assert!(ok && words.trim() == said, "{script}: {words}, not {said}");
}

fn refused(uid: u32, dir: &str, script: &str, said: &str) {
    let (ok, words) = shell(uid, dir, script);
    assert!(!ok && words.contains(said), "{script}: {words}");
}

/// mkdir, tenant, token, mount, write as a user, as root, as a stranger; |servers| go on; removal
#[test]
fn a_tenants_host_mounts_its_directory_and_reaches_nothing_else() {
    let Some(site) = Site::new("tenant") else { return };
    let (a, m0, m1) = (site.path("a"), site.path("m0"), site.path("m1"));
    site.hosts.succeeds(0, &["mount", &a, &m0]);
    says(0, &m0, "mkdir -m 1777 bio full && echo s > secret && touch full/x", "");
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
    says(1000, &m1, "mkdir d && echo a > d/f && cat d/f && mv d/f g && ln g h && stat -c %u g", "a\n1000");
    says(1000, &m1, "head -c 3000000 /dev/urandom > big && cat big | cmp - big && stat -c %s big", "3000000");
    says(1000, &m1, "ls -a | tr '\\n' ' '", ". .. big d g h");
    says(1000, &m1, "echo x > mode && chmod 4755 mode && stat -c %a mode", "4755");
    // Root is nobody where it makes something, and may what the users may.
    says(0, &m1, "echo r > root && stat -c %u:%g root", "65534:65534");
    says(0, &m1, "echo r > d/root && rm d/root && mkdir d/roots && stat -c %u d/roots && rmdir d/roots", "65534");
    says(0, &m1, "cat g", "a");
    refused(0, &m1, "mknod null c 1 3", "not permitted");
    refused(0, &m1, "chown 0 g", "not permitted");
    refused(0, &m1, "touch new && chown 0 new", "not permitted");
    says(0, &m1, "chown 1001 new && stat -c %u new && rm new", "1001");
    // Users that it does not have.
    says(2500, &m1, "echo s > stranger && stat -c %u stranger", "65534");
    // What the admin keeps there for itself, and what it leaves to a group.
    says(0, &m0, "umask 077; echo k > bio/kept; mkdir -m 770 bio/team; chgrp 1000 bio/team", "");
    refused(0, &m1, "cat kept", "denied");
    refused(0, &m1, "rm kept", "not permitted");
    says(1000, &m1, "echo t > team/f && cat team/f && rm team/f && ls team", "t");
    refused(1001, &m1, "ls team", "denied");
    // Neither upwards, nor by a link.
    refused(1000, &m1, "ln -s ../secret up && cat up", "No such file");
    assert!(fs::metadata(Path::new(&m1).join("secret")).is_err());
    // The admin sees all of it, and moves nothing across.
    says(0, &m0, "cat bio/g && stat -c %u bio/root", "a\n65534");
    let (inside, outside) = (Path::new(&m0).join("bio/g"), Path::new(&m0).join("g"));
    assert_eq!(fs::rename(&inside, &outside).expect_err("another project").raw_os_error(), Some(libc::EXDEV));
    assert_eq!(fs::hard_link(&inside, &outside).expect_err("another project").raw_os_error(), Some(libc::EXDEV));
    says(0, &m0, "mv secret bio/given && chmod 644 bio/given", "");
    says(1000, &m1, "cat given", "s");

    // New processes of the servers: the mount goes on, with the keys of capabilities of before and later ones.
    site.hosts.succeeds(0, &["down", &a, "--force"]);
    site.hosts.succeeds(0, &["up", &a, "--no-mount"]);
    says(1000, &m1, "cat big > copy && cmp big copy && echo same", "same");
    assert_eq!(fs::metadata(&m1).expect("the root").uid(), 0);
    site.hosts.fails(0, &["tenant", "remove", &a, "bio"], "has nodes");
    site.hosts.succeeds(1, &["umount", &m1]);
    let name = nodes.lines().find(|line| line.contains(" bio ")).and_then(|line| line.split(' ').next());
    site.hosts.succeeds(0, &["node", "remove", &a, name.expect("a name")]);
    site.hosts.succeeds(0, &["tenant", "remove", &a, "bio"]);
}

/// mkdir, tenant with id maps, token, mount, write, chown, list; here and there
#[test]
fn a_mapped_tenants_host_sees_its_own_ids_and_the_admin_those_of_the_file_system() {
    let Some(site) = Site::new("mapped") else { return };
    let (a, m0, m1) = (site.path("a"), site.path("m0"), site.path("m1"));
    site.hosts.succeeds(0, &["mount", &a, &m0]);
    says(0, &m0, "mkdir -m 1777 geo", "");
    let new = ["tenant", "new", &a, "geo", "--subtree", "/geo"];
    for (map, said) in
        [("0:70000:5", "never mapped"), ("65534:9", "without a mapping"), ("5:70:4,8:90", "in two ranges")]
    {
        site.hosts.fails(0, &[&new[..], &["--map-uid", map]].concat(), said);
    }
    site.hosts.succeeds(0, &[&new[..], &["--map-uid", "1000:70000:100", "--map-gid", "1000:70000:100"]].concat());
    let listed = site.hosts.succeeds(0, &["tenant", "list", &a]);
    assert!(listed.contains("geo: users 1000-1099 of its hosts are 70000-70099"), "{listed}");
    let token = site.token_for("client", &["--tenant", "geo"]);
    let mounted = site.mount(1, &["--token", &token], "m1");
    assert!(mounted.status.success(), "{}", words(&mounted));

    says(1000, &m1, "echo a > f && mkdir d && chmod 700 d && echo b > d/g && stat -c %u:%g f", "1000:1000");
    says(0, &m0, "stat -c %u:%g geo/f geo/d/g | tr '\\n' ' '", "70000:70000 70000:70000");
    says(0, &m0, "echo o > geo/others && chown 5000:5000 geo/others && touch geo/given && chown 70007 geo/given", "");
    says(1000, &m1, "ls -ln others given | tr -s ' ' | cut -d ' ' -f 3", "1007\n65534");
    says(1007, &m1, "echo g > given && cat given", "g");
    refused(1001, &m1, "cat d/g", "denied");
    says(2500, &m1, "echo s > stranger && stat -c %u stranger", "65534");
    says(0, &m1, "chown 1007 f && stat -c %u f", "1007");
    says(0, &m0, "stat -c %u geo/f", "70007");
    refused(0, &m1, "chown 2500 f", "Invalid argument");
    refused(0, &m1, "chown 70001 f", "Invalid argument");
    // New processes of the servers read the maps from the MDT.
    site.hosts.succeeds(0, &["down", &a, "--force"]);
    site.hosts.succeeds(0, &["up", &a, "--no-mount"]);
    says(1007, &m1, "echo h > f && stat -c %u f", "1007");
    let status = site.hosts.succeeds(0, &["status", &a]);
    assert!(status.contains(" encrypted"), "{status}");
    site.hosts.succeeds(1, &["umount", &m1]);
}
