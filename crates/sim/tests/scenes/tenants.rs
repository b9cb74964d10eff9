//! Tenants: what a host reaches that is trusted with one directory only, whatever its programs send.

use std::{cell::Cell, rc::Rc, time::Duration};

use bytes::Bytes;
use forebay_client::{Client, LayoutSpec, OpenMode, SetAttributes};
use forebay_env::{
    Boxed,
    sim::{NodeId, Sim},
};
use forebay_keys::Role;
use forebay_proto::{Errno, Fid, TargetId, Uuid, message::*};
use forebay_rpc::{Call, Capabilities, ClientSession, PinBudget, RpcError, SessionOptions};

use crate::site::Site;

fn user(uid: u32) -> Caller {
    Caller { uid, gid: uid, groups: Vec::new() }
}

fn bytes(seed: u32) -> Bytes {
    (0..400_000_u32).map(|at| (at * 37 + at / 241 + seed) as u8).collect()
}

/// A file of `user` whose bytes are on the OSTs.
async fn write(client: &Client, caller: &Caller, path: &str, seed: u32) -> Fid {
    let (parent, name) = client.resolve_parent(caller, path).await.expect("its directory");
    let layout = LayoutSpec { stripe_count: 2, ..LayoutSpec::inherit() };
    let made = client.create(caller, parent, name, 0o600, OpenMode::READ_WRITE, layout).await.expect("it is made");
    client.write(&made.1, 0, bytes(seed)).await.expect("it writes");
    client.fsync(&made.1, false).await.expect("synced");
    client.close(made.1).await.expect("it closes");
    made.0.fid
}

fn tenant(name: &str, path: &str) -> TenantInfo {
    TenantInfo {
        name: name.into(),
        path: path.into(),
        users: vec![IdRange { first: 1000, last: 1999 }],
        groups: Vec::new(),
        squash_uid: 65_534,
        squash_gid: 65_534,
        flags: 0,
        expires_ns: 0,
    }
}

/// A site with directories `/a` and `/b`, of two tenants, and files of the admin's.
struct Shared {
    site: Site,
    admin: NodeId,
    own: Client,
    secret: Fid,
    other: Fid,
}

impl Shared {
    async fn of(sim: &Sim) -> Self {
        let site = Site::of(sim).await;
        let admin = site.node(Role::Admin, "admin");
        let own = site.mount(site.node(Role::Client, "n1")).await;
        for dir in ["a", "b"] {
            let attr = own.mkdir(&user(0), Fid::ROOT, dir.as_bytes(), 0o777).await.expect("a directory");
            own.sync_all().await.expect("synced");
            let request = NewTenant { tenant: tenant(dir, &format!("/{dir}")) };
            site.ask(admin, &request).await.expect("an admin");
            assert!(attr.fid != Fid::ROOT);
        }
        let secret = write(&own, &user(0), "secret", 1).await;
        let other = write(&own, &user(1500), "b/other", 2).await;
        Self { site, admin, own, secret, other }
    }

    /// Nothing has changed outside of `/a`.
    async fn is_untouched(&self) {
        for (path, seed) in [("secret", 1), ("b/other", 2)] {
            let read = self.own.read_file(&user(0), path).await.expect("it reads");
            assert!(read[..] == bytes(seed)[..], "{path} has changed");
        }
        let root: Vec<_> =
            self.own.walk(&user(0), "").await.expect("a list").into_iter().map(|(path, _)| path).collect();
        for path in ["a", "b", "secret", "b/other"] {
            assert!(root.iter().any(|found| found == path), "{path} is gone");
        }
    }

    fn session(&self, node: NodeId, target: TargetId) -> ClientSession {
        let server = self.site.cluster.servers.iter().find(|server| server.target == target).expect("a server");
        let options = SessionOptions {
            cluster: Uuid::default(),
            target,
            resolve: Rc::new(vec![server.address.clone()]),
            client: Uuid::from_random(self.site.sim.random_u64(), 7),
            description: "client".into(),
            pins: PinBudget::new(1 << 24),
        };
        ClientSession::start(&self.site.sim.env(node), options)
    }
}

async fn of(client: &Client, path: &str) -> Fid {
    client.resolve(&user(0), path).await.expect("it is there").fid
}

/// What an attempt got.
async fn got<O: Operation>(session: &ClientSession, request: &O) -> Errno {
    match session.call(request, Call::default()).await {
        Ok(_) => Errno(0),
        Err(error) => error.errno(),
    }
}

/// One capability for everything, whatever the OST says of it.
struct Always(Cell<Capability>);

impl Capabilities for Always {
    fn get(&self, _: Fid, _: u8, refused: Option<Capability>) -> Boxed<'_, Result<Capability, RpcError>> {
        let given = match refused {
            Some(_) => Err(RpcError::Reply(Errno::CAPABILITY.into())),
            None => Ok(self.0.get()),
        };
        Box::pin(std::future::ready(given))
    }
}

/// write, sync, look |OST| read, write
#[test]
fn a_tenants_host_has_its_directory_as_root_and_its_users_only() {
    let sim = Sim::new(1);
    sim.block_on(async {
        let shared = Shared::of(&sim).await;
        let site = &shared.site;
        let client = site.mount(site.join_for(shared.admin, "a", "t1").await).await;
        assert_eq!(client.tenant().map(|tenant| tenant.name.as_str()), Some("a"));
        write(&client, &user(1000), "mine", 3).await;
        let names: Vec<_> =
            client.walk(&user(1000), "").await.expect("a list").into_iter().map(|(path, _)| path).collect();
        assert_eq!(names, ["mine"]);
        assert_eq!(client.resolve(&user(1000), "..").await.expect("the root").fid, client.root());
        assert_eq!(client.resolve(&user(1000), "../b").await.expect_err("another's").errno, Errno::ENOENT);
        assert_eq!(client.resolve(&user(1000), "/secret").await.expect_err("the admin's").errno, Errno::ENOENT);
        // The admin's own nodes see all of it.
        assert!(shared.own.read_file(&user(0), "a/mine").await.expect("it reads")[..] == bytes(3)[..]);
        // User 0 and users that the tenant does not have are nobody.
        for caller in [user(0), user(5)] {
            let name = format!("of{}", caller.uid);
            let made =
                client.mkdir(&caller, client.root(), name.as_bytes(), 0o755).await.expect("the directory is open");
            let attr = client.getattr(made.fid, None).await.expect("its attributes");
            assert_eq!((made.uid, attr.uid, attr.gid), (65_534, 65_534, 65_534), "{caller:?}");
        }
        assert_eq!(client.read_file(&user(5), "mine").await.expect_err("not its own").errno, Errno::EACCES);
        assert!(client.read_file(&user(0), "mine").await.is_ok(), "what an allowed user may");
        let ours = write(&shared.own, &user(0), "a/admins", 4).await;
        assert_eq!(client.read_file(&user(0), "admins").await.expect_err("of another user").errno, Errno::EACCES);
        // Keys end while the file is open, and the OSTs start anew.
        let file = client.open_path(&user(1000), "mine", OpenMode::READ_WRITE).await.expect("it opens");
        for round in 0..3 {
            site.sim.sleep(Duration::from_secs(7)).await;
            client.write(&file, round * 1000, bytes(5).slice(..1000)).await.expect("it writes");
            site.sim.crash(site.cluster.servers[1].node);
            site.boot(1);
        }
        client.fsync(&file, false).await.expect("synced");
        client.close(file).await.expect("closed");
        let read = client.read_file(&user(1000), "mine").await.expect("it reads");
        assert!(read[..1000] == bytes(5)[..1000] && read[3000..] == bytes(3)[3000..]);
        assert!(ours != Fid::ROOT);
        shared.is_untouched().await;
    });
}

/// Everything that a program on a tenant's host can send, with the tenant's own keys.
#[test]
fn a_hostile_tenants_host_reads_and_changes_nothing_outside_of_its_directory() {
    let sim = Sim::new(2);
    sim.block_on(async {
        let shared = Shared::of(&sim).await;
        let (site, secret, other) = (&shared.site, shared.secret, shared.other);
        let node = site.join_for(shared.admin, "a", "t1").await;
        let client = site.mount(node).await;
        let mine = write(&client, &user(1000), "mine", 3).await;
        let guarded = write(&shared.own, &user(0), "a/guarded", 4).await;
        let (root, home) = (Fid::ROOT, client.root());
        let mdt = shared.session(node, TargetId::mdt(0));
        let mut listed: Vec<(String, Errno, Errno)> = Vec::new();
        macro_rules! attempt {
            ($session:expr, $expected:ident, $what:expr, $request:expr) => {{
                let got = got(&$session, &$request).await;
                listed.push(($what.to_string(), got, Errno::$expected));
            }};
        }
        let caller = || user(0);
        let name = |name: &str| Bytes::copy_from_slice(name.as_bytes());
        let at_ns = 0;
        for (fid, whose) in [(secret, "the admin's"), (other, "another tenant's")] {
            let open = |flags| Open { caller: caller(), fid, flags, handle: 1 };
            attempt!(mdt, ESTALE, format!("attributes of {whose} file"), GetAttr { fid });
            attempt!(mdt, ESTALE, format!("open of {whose} file to read"), open(open_flags::READ));
            attempt!(mdt, ESTALE, format!("open of {whose} file to write"), open(open_flags::WRITE));
            attempt!(
                mdt,
                ESTALE,
                format!("truncation of {whose} file"),
                open(open_flags::WRITE | open_flags::TRUNCATE)
            );
            attempt!(mdt, ESTALE, format!("inline bytes of {whose} file"), ReadInline { fid });
            attempt!(
                mdt,
                ESTALE,
                format!("a new name of {whose} file"),
                Link { caller: caller(), fid, parent: home, name: name("x") }
            );
            let mode = SetAttr {
                caller: caller(),
                fid,
                mask: set_attr::MODE | set_attr::UID,
                mode: 0o777,
                uid: 1000,
                gid: 1000,
                size: 0,
                atime_ns: 0,
                mtime_ns: 0,
                handle: 0,
                at_ns,
            };
            attempt!(
                mdt,
                ESTALE,
                format!("another owner of {whose} file"),
                SetAttr { mask: set_attr::MODE, ..mode.clone() }
            );
            attempt!(mdt, ESTALE, format!("size 0 of {whose} file"), SetAttr { mask: set_attr::SIZE, ..mode });
            let xattr = name("user.a");
            attempt!(
                mdt,
                ESTALE,
                format!("an attribute of {whose} file"),
                GetXattr { caller: caller(), fid, name: xattr.clone() }
            );
            attempt!(mdt, ESTALE, format!("the names of attributes of {whose} file"), ListXattr { fid });
            let removal = RemoveXattr { caller: caller(), fid, name: xattr };
            attempt!(mdt, ESTALE, format!("removal of an attribute of {whose} file"), removal);
            attempt!(mdt, ESTALE, format!("a claim of {whose} file"), Claim { fid, pieces: Vec::new() });
            let lock = LockSpec {
                kind: lock_kind::FLOCK,
                owner: 1,
                mode: lock_mode::EXCLUSIVE,
                start: 0,
                end: u64::MAX,
                pid: 1,
                handle: 1,
            };
            attempt!(mdt, ESTALE, format!("a lock of {whose} file"), Lock { fid, how: lock_how::TRY, lock });
            let authorized = mdt.ask(&Authorize { object: fid, node: Bytes::new() }).await;
            let authorized = authorized.map_or_else(|error| error.errno(), |_| Errno(0));
            listed.push((format!("a capability for {whose} file"), authorized, Errno::ESTALE));
        }
        let lookup = |parent, of: &str| Lookup { caller: caller(), parent, name: name(of) };
        attempt!(mdt, ESTALE, "a name in the root", lookup(root, "secret"));
        attempt!(
            mdt,
            ESTALE,
            "the list of the root",
            ReadDir { fid: root, cookie: 0, max_bytes: 4096, with_attributes: true }
        );
        let up = mdt.call(&lookup(home, ".."), Call::default()).await.expect("its own root").reply;
        assert_eq!(up.entry.expect("a directory").attr.fid, home, ".. leads out of the subtree");
        attempt!(
            mdt,
            ESTALE,
            "removal of a name",
            Unlink { caller: caller(), parent: root, name: name("secret"), at_ns }
        );
        attempt!(
            mdt,
            ESTALE,
            "removal of a directory",
            Rmdir { caller: caller(), parent: root, name: name("b"), at_ns }
        );
        let rename = |from_parent, from: &str, to_parent, to: &str| Rename {
            caller: caller(),
            from_parent,
            from_name: name(from),
            to_parent,
            to_name: name(to),
            flags: 0,
        };
        attempt!(mdt, ESTALE, "a name moved out", rename(home, "mine", root, "x"));
        attempt!(mdt, ESTALE, "a name moved in", rename(root, "secret", home, "x"));
        let fid = mdt.call(&LeaseSequence {}, Call::default()).await.expect("fids").reply;
        let fid = Fid::new(fid.mdt_index, fid.sequence, 1);
        let make = |parent, mode| Make {
            caller: caller(),
            parent,
            name: name("x"),
            fid,
            mode,
            rdev: 0x103,
            symlink: Bytes::new(),
            at_ns,
        };
        attempt!(mdt, ESTALE, "a directory in the root", make(root, 0o040_755));
        attempt!(mdt, EPERM, "a device of its own", make(home, 0o020_666));
        let program = SetXattr {
            caller: caller(),
            fid: mine,
            name: name("security.capability"),
            value: Bytes::from_static(b"x"),
            flags: 0,
        };
        attempt!(mdt, EPERM, "privileges for a program", program);
        shared.own.mkdir(&user(0), home, b"shut", 0o700).await.expect("a directory");
        shared.own.write_file(&user(0), "a/small", &b"little"[..]).await.expect("it writes");
        shared.own.sync_all().await.expect("synced");
        let (shut, small) = (of(&shared.own, "a/shut").await, of(&shared.own, "a/small").await);
        let bits = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
        shared.own.setattr(&user(0), small, bits, None).await.expect("its mode");
        let list = ReadDir { fid: shut, cookie: 0, max_bytes: 4096, with_attributes: true };
        attempt!(mdt, EACCES, "the list of a directory of user 0", list);
        attempt!(mdt, EACCES, "inline bytes of a file of user 0", ReadInline { fid: small });
        let held = OpenHandle { fid: guarded, handle: 77, flags: open_flags::READ | open_flags::WRITE };
        let reclaim = Reclaim { handles: vec![held], ..Reclaim::default() };
        let reclaimed = mdt.ask(&reclaim).await.map_or_else(|error| error.errno(), |_| Errno(0));
        listed.push(("a handle that it never had".into(), reclaimed, Errno::EACCES));
        // Open, neither to read nor to write: that says how long the file is.
        let nothing = Open { caller: caller(), fid: guarded, flags: 0, handle: 78 };
        mdt.call(&nothing, Call::default()).await.expect("a look");
        let looked = mdt.ask(&Authorize { object: guarded, node: Bytes::new() }).await.expect("its size");
        assert_eq!(looked.rights, u32::from(rights::STAT), "bytes of a file of user 0");
        let write = Open { caller: user(1000), fid: mine, flags: open_flags::WRITE, handle: 79 };
        mdt.call(&write, Call::default()).await.expect("its own");
        let give = SetAttr {
            caller: caller(),
            fid: mine,
            mask: set_attr::UID | set_attr::MODE,
            mode: 0o4755,
            uid: 0,
            gid: 0,
            size: 0,
            atime_ns: 0,
            mtime_ns: 0,
            handle: 79,
            at_ns,
        };
        attempt!(mdt, EPERM, "a program of user 0", give.clone());
        let close = Close {
            fid: mine,
            handle: 79,
            wrote: false,
            size: 0,
            truncate_epoch: 0,
            mtime_ns: 0,
            attr_epoch: 0,
            sparse: false,
            inline: None,
            set: Some(give),
        };
        attempt!(mdt, EPERM, "a program of user 0, by a close", close.clone());
        let grown = Close { handle: 78, fid: guarded, wrote: true, size: 1 << 40, set: None, ..close.clone() };
        attempt!(mdt, EBADF, "a larger file of user 0, by a close", grown);
        for (fid, handle) in [(mine, 79), (guarded, 78)] {
            let close = Close { fid, handle, set: None, ..close.clone() };
            mdt.call(&close, Call::default()).await.expect("it closes");
        }
        let as_user = |uid, fid| Open { caller: user(uid), fid, flags: open_flags::READ, handle: 9 };
        attempt!(mdt, EACCES, "user 0 and a file of user 0", as_user(0, guarded));
        attempt!(mdt, EACCES, "a user that the tenant does not have", as_user(4711, mine));
        attempt!(mdt, EPERM, "another client's end", Fence { client: Uuid([7; 16]) });
        let pool = SetPool { caller: caller(), name: "p".into(), change: pool_change::NEW, osts: Vec::new() };
        attempt!(mdt, EPERM, "a pool", pool);

        // The OSTs, with every capability that it could have come by.
        let ask = async |object| mdt.ask(&Authorize { object, node: Bytes::new() }).await;
        mdt.call(&as_user(1000, mine), Call::default()).await.expect("its own");
        let theirs = shared.session(site.node(Role::Client, "n9"), TargetId::mdt(0));
        theirs.ready().await.expect("it is served");
        let stolen = theirs
            .ask(&Authorize { object: secret, node: Bytes::new() })
            .await
            .expect("the admin's")
            .capability()
            .expect("one");
        // Over TLS the certificate says who asks, whatever the request says.
        let posed = theirs.ask(&Authorize { object: mine, node: vec![7; 32].into() }).await.expect("the admin's own");
        let posed = posed.capability().expect("a capability");
        let object = |fid| ObjectRef { fid, layout_generation: 1, truncate_epoch: 0 };
        let read = |fid| ReadObject { object: object(fid), offset: 0, length: 4096 };
        let punch = |fid| Punch { object: object(fid), offset: 0, length: 400_000, attr_epoch: 0 };
        for ost in 0..2 {
            let read_only = ask(mine).await.expect("its own").capability().expect("a capability");
            let session = shared.session(node, TargetId::ost(ost));
            let always = Rc::new(Always(Cell::new(Capability::NONE)));
            session.set_capabilities(always.clone());
            let cases = [
                ("no capability", Capability::NONE),
                ("one of its own", read_only),
                ("another node's", stolen),
                ("another node's for its own", posed),
                ("all rights", Capability { rights: rights::ALL, ..read_only }),
                ("a guessed one", Capability { tag: [0x5a; 16], ..stolen }),
            ];
            for (what, capability) in cases {
                always.0.set(capability);
                attempt!(session, CAPABILITY, format!("OST{ost}: bytes with {what}"), read(secret));
                attempt!(session, CAPABILITY, format!("OST{ost}: a hole with {what}"), punch(secret));
                attempt!(
                    session,
                    CAPABILITY,
                    format!("OST{ost}: size with {what}"),
                    GetObject { object: object(other) }
                );
            }
            always.0.set(read_only);
            attempt!(session, CAPABILITY, "a hole with the right to read", punch(mine));
            assert_eq!(got(&session, &read(mine)).await, Errno(0), "its own bytes");
            attempt!(session, EPERM, format!("OST{ost}: destruction"), Destroy { fids: vec![secret] });
            let end = TruncateObject { fid: secret, truncate_epoch: 9, object_bytes: 0, file_bytes: 0, attr_epoch: 9 };
            attempt!(session, EPERM, format!("OST{ost}: truncation"), end);
            let fence = FenceLayout { fid: secret, layout_generation: 9 };
            attempt!(session, EPERM, format!("OST{ost}: a fence"), fence);
            let list = ListObjects { from: Default::default(), to: secret.sequence(), after: Fid::default(), limit: 9 };
            attempt!(session, EPERM, format!("OST{ost}: the list of objects"), list);
            let keys = SetCapabilityKeys { keys: Vec::new() };
            attempt!(session, EPERM, format!("OST{ost}: keys of its own"), keys);
            if ost == 0 {
                // Its own capability ends with its key.
                site.sim.sleep(Duration::from_secs(20)).await;
                attempt!(session, CAPABILITY, "its own bytes with a capability that has ended", read(mine));
            }
        }
        for (request, errno) in [
            site.ask(node, &NewTenant { tenant: tenant("c", "/b") }).await.map(drop),
            site.ask(node, &RemoveTenant { name: "b".into() }).await.map(drop),
            site.ask(node, &ListTenants {}).await.map(drop),
            site.ask(node, &NewToken { role: "client".into(), ttl_s: 9, tenant: String::new() }).await.map(drop),
        ]
        .into_iter()
        .enumerate()
        {
            let errno = errno.map_or_else(|error| error.errno, |()| Errno(0));
            listed.push((format!("the admin's request {request}"), errno, Errno::EPERM));
        }
        let mut wrong = Vec::new();
        for (what, got, expected) in &listed {
            println!("{what:<60} {got}");
            if got != expected {
                wrong.push(format!("{what}: {got}, not {expected}"));
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert!(listed.len() >= 95, "{} attempts", listed.len());
        shared.is_untouched().await;
    });
}

#[test]
fn a_tenant_that_only_reads_changes_nothing_and_access_ends_with_its_time() {
    let sim = Sim::new(3);
    sim.block_on(async {
        let site = Site::of(&sim).await;
        let admin = site.node(Role::Admin, "admin");
        let own = site.mount(site.node(Role::Client, "n1")).await;
        own.mkdir(&user(0), Fid::ROOT, b"r", 0o777).await.expect("a directory");
        own.sync_all().await.expect("synced");
        let expires_ns = sim.env(admin).unix_time().0 + 60_000_000_000;
        let reads = TenantInfo { flags: tenant_flags::READ_ONLY, expires_ns, ..tenant("r", "/r") };
        site.ask(admin, &NewTenant { tenant: reads.clone() }).await.expect("an admin");
        write(&own, &user(1000), "r/data", 1).await;
        for (path, errno) in [("/r", Errno::EBUSY), ("/", Errno::EINVAL), ("/none", Errno::ENOENT)] {
            let again = NewTenant { tenant: TenantInfo { name: "q".into(), path: path.into(), ..reads.clone() } };
            assert_eq!(site.ask(admin, &again).await.expect_err("no directory for it").errno, errno, "{path}");
        }
        let client = site.mount(site.join_for(admin, "r", "t1").await).await;
        assert!(client.read_file(&user(1000), "data").await.expect("it reads")[..] == bytes(1)[..]);
        let made = client.mkdir(&user(1000), client.root(), b"x", 0o755).await;
        assert_eq!(made.expect_err("it only reads").errno, Errno::EROFS);
        let opened = client.open_path(&user(1000), "data", OpenMode::READ_WRITE).await;
        assert_eq!(opened.map(drop).expect_err("it only reads").errno, Errno::EROFS);
        sim.sleep(Duration::from_secs(61)).await;
        let late = client.resolve(&user(1000), "data").await;
        let late = match late {
            Ok(_) => {
                client.open_path(&user(1000), "data", OpenMode::READ).await.map(drop).expect_err("its time is over")
            }
            Err(error) => error,
        };
        assert_eq!(late.errno, Errno::EACCES, "{late}");
    });
}

/// Users 5000 to 5099 of the tenant's hosts are 1000 to 1099, and so are its groups.
async fn mapped_site(sim: &Sim) -> (Site, NodeId, Client) {
    let site = Site::of(sim).await;
    let admin = site.node(Role::Admin, "admin");
    let own = site.mount(site.node(Role::Client, "n1")).await;
    own.mkdir(&user(0), Fid::ROOT, b"m", 0o777).await.expect("a directory");
    own.sync_all().await.expect("synced");
    let map = || vec![IdMap { host: 5000, fs: 1000, count: 100 }];
    let maps = IdMaps { users: map(), groups: map() };
    let all = TenantInfo { users: Vec::new(), ..tenant("m", "/m") };
    for wrong in [IdMap { host: 65_534, fs: 9, count: 1 }, IdMap { host: 0, fs: 9, count: 2 }] {
        let maps = IdMaps { users: vec![wrong], groups: Vec::new() };
        let refused = site.ask(admin, &NewMappedTenant { tenant: all.clone(), maps }).await;
        assert_eq!(refused.expect_err("no map").errno, Errno::EINVAL);
    }
    site.ask(admin, &NewMappedTenant { tenant: all, maps: maps.clone() }).await.expect("an admin");
    let listed = site.ask(admin, &ListIdMaps {}).await.expect("an admin").tenants;
    assert_eq!(listed, [TenantMaps { name: "m".into(), maps }]);
    let tenants = site.ask(admin, &ListTenants {}).await.expect("an admin").tenants;
    assert_eq!(tenants[0].users, [IdRange { first: 1000, last: 1099 }], "its users are those of its map");
    (site, admin, own)
}

/// The owner and group of each name in the root, by readdir and by lookup.
async fn owners(client: &Client) -> Vec<(String, u32, u32)> {
    let listed = client.readdir(client.root(), 0, 1 << 16, true).await.expect("a list");
    let mut owners = Vec::new();
    for entry in listed.entries.iter().filter(|entry| !entry.name.starts_with(b".")) {
        let name = String::from_utf8(entry.name.to_vec()).expect("ASCII");
        let listed = entry.attr.as_ref().expect("its attributes");
        let looked = client.getattr(entry.fid, None).await.expect("its attributes");
        assert_eq!((listed.uid, listed.gid), (looked.uid, looked.gid), "{name}");
        owners.push((name, listed.uid, listed.gid));
    }
    owners.sort();
    owners
}

/// make, chown, list there and here |power, MDT| replay, list
#[test]
fn a_mapped_tenants_host_works_with_its_own_ids_and_a_replay_translates_them_as_at_first() {
    let sim = Sim::new(4);
    sim.block_on(async {
        let (site, admin, own) = mapped_site(&sim).await;
        let client = site.mount(site.join_for(admin, "m", "t1").await).await;
        assert_eq!(client.tenant().map(|tenant| tenant.users.clone()), Some(vec![IdRange { first: 5000, last: 5099 }]));
        write(&client, &user(5007), "mine", 1).await;
        for (uid, name) in [(0, "roots"), (1007, "strangers"), (6000, "others")] {
            client.mkdir(&user(uid), client.root(), name.as_bytes(), 0o755).await.expect("the directory is open");
        }
        // The admin's own file, and one that the admin gives to a user of the tenant.
        write(&own, &user(4000), "m/admins", 2).await;
        write(&own, &user(1020), "m/given", 3).await;
        let nobody = 65_534;
        let theirs = [
            ("admins", nobody),
            ("given", 5020),
            ("mine", 5007),
            ("others", nobody),
            ("roots", nobody),
            ("strangers", nobody),
        ];
        let owned =
            |all: &[(&str, u32)]| all.iter().map(|(name, id)| ((*name).to_owned(), *id, *id)).collect::<Vec<_>>();
        assert_eq!(owners(&client).await, owned(&theirs));
        for (path, uid) in [("m/mine", 1007), ("m/roots", 65_534), ("m/strangers", 65_534)] {
            let attr = own.resolve(&user(0), path).await.expect("it is there");
            assert_eq!((attr.uid, attr.gid), (uid, uid), "{path}");
        }
        // Who owns a file on the hosts may use it, and a user of the file system's id may not.
        assert!(client.read_file(&user(5020), "given").await.is_ok());
        assert_eq!(client.read_file(&user(1020), "given").await.expect_err("no such user").errno, Errno::EACCES);
        assert_eq!(client.read_file(&user(5007), "admins").await.expect_err("another's").errno, Errno::EACCES);
        assert_eq!(client.read_file(&user(nobody), "admins").await.expect_err("nobody").errno, Errno::EACCES);
        assert_eq!(client.read_file(&user(0), "admins").await.expect_err("not a user's").errno, Errno::EACCES);
        // Owners to set.
        let mine = of(&client, "mine").await;
        let to = |uid| SetAttributes { uid: Some(uid), ..SetAttributes::default() };
        for unmapped in [1007, 0, nobody] {
            let refused = client.setattr(&user(0), mine, to(unmapped), None).await;
            assert_eq!(refused.expect_err("no mapping").errno, Errno::EINVAL, "{unmapped}");
        }
        let set = client.setattr(&user(0), mine, to(5030), None).await.expect("a user of the tenant");
        assert_eq!((set.uid, set.gid), (5030, 5007));
        // Lists of other users.
        let list = |user: u32, group: u32| -> Bytes {
            let entries = [(1_u16, 6_u16, u32::MAX), (2, 4, user), (4, 4, u32::MAX), (8, 4, group)];
            let entries = entries.into_iter().chain([(0x10, 6, u32::MAX), (0x20, 0, u32::MAX)]);
            let bytes = entries
                .flat_map(|(tag, bits, id)| [&tag.to_le_bytes()[..], &bits.to_le_bytes(), &id.to_le_bytes()].concat());
            2_u32.to_le_bytes().into_iter().chain(bytes).collect()
        };
        let name = b"system.posix_acl_access";
        client.setxattr(&user(0), mine, name, &list(5040, 5041), 0).await.expect("users of the tenant");
        let refused = client.setxattr(&user(0), mine, name, &list(1040, 5041), 0).await;
        assert_eq!(refused.expect_err("no mapping").errno, Errno::EINVAL);
        assert_eq!(client.getxattr(&user(0), mine, name).await.expect("a list"), list(5040, 5041));
        assert_eq!(own.getxattr(&user(0), mine, name).await.expect("a list"), list(1040, 1041));
        assert!(client.read_file(&user(5040), "mine").await.is_ok(), "the list lets it");
        // A change that a crash takes back is replayed, with the ids of the host.
        client.sync_all().await.expect("synced");
        client.setattr(&user(0), mine, to(5050), None).await.expect("a user of the tenant");
        let made = client.mkdir(&user(5008), client.root(), b"last", 0o700).await.expect("it is made");
        assert_eq!(made.uid, 5008);
        site.sim.power_cut(site.cluster.servers[0].node);
        site.boot(0);
        client.sync_all().await.expect("synced");
        for (path, here, there) in [("mine", 5050, 1050), ("last", 5008, 1008)] {
            assert_eq!(client.resolve(&user(0), path).await.expect("it is there").uid, here, "{path}");
            let path = format!("m/{path}");
            assert_eq!(own.resolve(&user(0), &path).await.expect("it is there").uid, there, "{path}");
        }
    });
}
