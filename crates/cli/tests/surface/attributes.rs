//! Extended attributes.

use std::{collections::BTreeSet, ffi::CString, fs, os::unix::fs::PermissionsExt, path::Path};

use crate::{
    c,
    common::{Scratch, mounts::Mounts},
    done,
    owners::as_user,
};

pub fn set_attribute(path: &Path, name: &str, value: &[u8], flags: i32) -> Result<i64, i32> {
    let (path, name) = (c(path), CString::new(name).expect("no zero byte"));
    // SAFETY: strings and bytes that outlive the call.
    done(unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), flags) }.into())
}

pub fn attribute(path: &Path, name: &str) -> Result<Vec<u8>, i32> {
    let (path, name) = (c(path), CString::new(name).expect("no zero byte"));
    let mut value = vec![0_u8; 1 << 16];
    // SAFETY: strings, and room for the value, that outlive the call.
    let length = unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    value.truncate(done(length as i64)? as usize);
    Ok(value)
}

fn attributes(path: &Path) -> BTreeSet<String> {
    let path = c(path);
    let mut names = vec![0_u8; 1 << 16];
    // SAFETY: a string, and room for the names, that outlive the call.
    let length = unsafe { libc::listxattr(path.as_ptr(), names.as_mut_ptr().cast(), names.len()) };
    names.truncate(usize::try_from(length).expect("they are listed"));
    let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

/// user, trusted and security attributes of files, directories and links, and flags | the results of the local file
/// system; the same from the other mount after the servers were killed; other users see no trusted ones
#[test]
fn extended_attributes_of_each_kind_are_those_of_the_local_file_system() {
    let Some(mounts) = Mounts::new("attributes") else { return };
    let local = Scratch::new("attributes-local");
    fs::set_permissions(local.path(), PermissionsExt::from_mode(0o755)).expect("set");
    let answers = |base: &Path| {
        let (file, dir, fifo) = (base.join("xf"), base.join("xd"), base.join("xp"));
        fs::write(&file, b"").expect("made");
        fs::create_dir(&dir).expect("made");
        // SAFETY: a string that outlives the call.
        assert_eq!(unsafe { libc::mkfifo(c(&fifo).as_ptr(), 0o644) }, 0);
        let mut answers = Vec::new();
        for path in [&file, &dir, &fifo] {
            for name in ["user.a", "trusted.b", "security.c", "nothing.d", "user.", "user.long"] {
                let value = if name == "user.long" { vec![7; 3000] } else { vec![0, 1, 255] };
                answers.push((set_attribute(path, name, &value, libc::XATTR_REPLACE), Ok(vec![])));
                answers.push((set_attribute(path, name, &value, 0), attribute(path, name)));
                answers.push((set_attribute(path, name, b"", libc::XATTR_CREATE), attribute(path, name)));
            }
            answers.push((Ok(0), attribute(path, "user.none")));
        }
        let seen: Vec<_> = [&file, &dir, &fifo].map(|path| attributes(path)).to_vec();
        (answers, seen)
    };
    let (ours, theirs) = (answers(&mounts.first), answers(Path::new(local.path())));
    assert_eq!(ours, theirs);
    assert!(ours.1[0].contains("trusted.b") && ours.1[0].contains("security.c") && ours.1[0].contains("user.long"));
    mounts.kill_servers();
    mounts.bring_back();
    let other = mounts.second.join("xf");
    assert_eq!((attributes(&other), attribute(&other, "trusted.b")), (ours.1[0].clone(), Ok(vec![0, 1, 255])));
    let python = "import os,sys; names=os.listxattr('xf'); sys.exit('trusted.b' in names or 'user.a' not in names)";
    for base in [&mounts.first, Path::new(local.path())] {
        assert!(as_user(4242, base, &format!("command -v python3 >/dev/null || exit 0; python3 -c \"{python}\"")));
    }
}
