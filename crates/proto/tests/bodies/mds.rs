//! Values of the metadata server's messages.

use forebay_proto::{Component, FOR_EVER, FidSequence, Layout, message::*};

use crate::sample::{Numbers, Samples};

pub fn add(samples: &mut Samples) {
    names(samples);
    files(samples);
    attributes(samples);
    let n = &mut Numbers::default();
    samples.exchange(
        vec![LeaseSequence {}],
        vec![LeaseSequenceReply { mdt_index: n.u32(), sequence: FidSequence(n.u64()) }],
    );
    samples.exchange(
        vec![MdtStatFs {}],
        vec![MdtStatFsReply { files: n.u64(), files_free: n.u64(), total_bytes: n.u64(), free_bytes: n.u64() }],
    );
    let n = &mut Numbers::default();
    samples.exchange(
        vec![FinishDestroys { osts: vec![n.u32(), n.u32()] }],
        vec![FinishDestroysReply { objects: n.u64() }],
    );
}

fn names(samples: &mut Samples) {
    let n = &mut Numbers::default();
    let found = entry_replies().into_iter().map(|entry| LookupReply { entry: Some(entry), leases: 3 });
    let replies = found.chain([LookupReply { entry: None, leases: 2 }]).collect();
    samples.exchange(vec![Lookup { caller: caller(n), parent: n.fid(), name: n.name() }], replies);
    samples.exchange(vec![LookupStatahead { lookup: lookup(), names: 4 }], look_ahead_replies());
    samples.exchange(vec![make()], entry_replies());
    samples.exchange(vec![Link { caller: caller(n), fid: n.fid(), parent: n.fid(), name: n.name() }], entry_replies());
    samples.exchange(vec![Unlink { caller: caller(n), parent: n.fid(), name: n.name(), at_ns: n.i64() }], changed());
    samples.exchange(vec![Rmdir { caller: caller(n), parent: n.fid(), name: n.name(), at_ns: n.i64() }], changed());
    samples.exchange(vec![rename()], changed());
    samples.exchange(vec![FlushBuffered {}], vec![Empty {}]);
    let recall = |n: &mut Numbers| DataRecall { fid: n.fid(), sequence: n.u64() };
    let waits =
        vec![AwaitRecalls { acknowledged: n.u64(), returned: vec![n.fid(), n.fid()], flushed: vec![recall(n)] }];
    let reply = RecallsReply { fids: vec![n.fid()], data: vec![recall(n), recall(n)], sequence: n.u64() };
    samples.exchange(waits, vec![reply]);

    let n = &mut Numbers::default();
    let pieces = |n: &mut Numbers| Pieces { start: n.u64(), length: n.u64(), stride: n.u64(), count: n.u64() };
    let claims = vec![Claim { fid: n.fid(), pieces: vec![pieces(n), pieces(n)] }];
    samples.exchange(claims, vec![ClaimReply { granted: true }, ClaimReply { granted: false }]);

    let n = &mut Numbers::default();
    samples.exchange(vec![ReadLink { fid: n.fid() }], vec![ReadLinkReply { target: n.name() }]);
    let mut read_dir = |with_attributes| ReadDir { fid: n.fid(), cookie: n.u64(), max_bytes: n.u32(), with_attributes };
    samples.exchange(vec![read_dir(true), read_dir(false)], read_dir_replies());
}

fn files(samples: &mut Samples) {
    samples.exchange(vec![create()], open_replies());
    let n = &mut Numbers::default();
    samples.exchange(vec![Open { caller: caller(n), fid: n.fid(), flags: n.u32(), handle: n.u64() }], open_replies());
    samples.exchange(vec![close(true, false), close(false, true)], closed());
    samples.exchange(vec![reclaim()], vec![Empty {}]);
    samples.exchange(
        vec![Lock { fid: n.fid(), how: n.u32(), lock: lock(n) }],
        vec![LockReply { granted: true, holder: None }, LockReply { granted: false, holder: Some(lock(n)) }],
    );
    let n = &mut Numbers::default();
    samples.exchange(vec![Outline { fid: n.fid() }], entry_replies());
    samples.exchange(vec![ReadInline { fid: n.fid() }], entry_replies());
    let n = &mut Numbers::default();
    let reply = AuthorizeReply { key: n.u32(), rights: n.u32(), tag: n.name() };
    samples.exchange(vec![Authorize { object: n.fid(), node: n.name() }], vec![reply]);
}

fn attributes(samples: &mut Samples) {
    let n = &mut Numbers::default();
    samples.exchange(vec![GetAttr { fid: n.fid() }], entry_replies());
    samples.exchange(vec![set_attr()], entry_replies());
    samples.exchange(
        vec![GetXattr { caller: caller(n), fid: n.fid(), name: n.name() }],
        vec![XattrReply { value: n.name() }],
    );
    let set = SetXattr { caller: caller(n), fid: n.fid(), name: n.name(), value: n.name(), flags: n.u32() };
    samples.exchange(vec![set], vec![Empty {}]);
    let names = vec![ListXattrReply { names: vec![n.name(), n.name()] }, ListXattrReply { names: Vec::new() }];
    samples.exchange(vec![ListXattr { fid: n.fid() }], names);
    samples.exchange(vec![RemoveXattr { caller: caller(n), fid: n.fid(), name: n.name() }], vec![Empty {}]);
    samples.exchange(vec![SetLayout { caller: caller(n), fid: n.fid(), layout: spec(n) }], entry_replies());
    let (fid, handle, offset, length) = (n.fid(), n.u64(), n.u64(), n.u64());
    samples.exchange(vec![ExtendLayout { fid, handle, offset, length, full: vec![n.u32(), n.u32()] }], vec![Empty {}]);
    let n = &mut Numbers::default();
    let set = SetPool { caller: caller(n), name: n.text(), change: n.u32(), osts: vec![n.u32(), n.u32()] };
    samples.exchange(vec![set], vec![Empty {}]);
    let n = &mut Numbers::default();
    let (fid, version) = (n.fid(), n.u64());
    samples.exchange(vec![GetContentVersion { fid }], vec![MigrateReply { version }]);
    let migrate = Migrate { caller: caller(n), fid: n.fid(), other: n.fid(), version: n.u64() };
    samples.exchange(vec![migrate], vec![Empty {}]);
    let n = &mut Numbers::default();
    let osts = vec![n.u32(), n.u32()];
    let pools = vec![Pool { name: n.text(), osts: vec![n.u32()] }, Pool { name: n.text(), osts: Vec::new() }];
    samples.exchange(vec![GetPools {}], vec![PoolsReply { osts, pools }]);
}

fn caller(n: &mut Numbers) -> Caller {
    Caller { uid: n.u32(), gid: n.u32(), groups: vec![n.u32(), n.u32()] }
}

fn spec(n: &mut Numbers) -> LayoutSpec {
    LayoutSpec {
        stripe_count: n.u32(),
        stripe_bytes: n.u32(),
        stripe_index: n.u32(),
        pool: n.text(),
        components: vec![ComponentSpec {
            end: n.u64(),
            stripe_count: n.u32(),
            stripe_bytes: n.u32(),
            stripe_index: n.u32(),
            pool: n.text(),
        }],
    }
}

fn layout(n: &mut Numbers) -> Layout {
    let mut layout = Layout::plain(n.u32(), 0x0102_0000, vec![n.u32(), n.u32()]);
    let first = &mut layout.components[0];
    (first.stripe_count, first.stripe_index, first.pool, first.end) = (n.u32(), n.u32(), n.text(), 0x0003_0405);
    let (start, end, osts) = (first.end, FOR_EVER, Vec::new());
    let (stripe_count, stripe_index, pool) = (n.u32(), n.u32(), n.text());
    layout.components.push(Component { start, end, stripe_bytes: 0x0203_0000, stripe_count, stripe_index, pool, osts });
    (layout.objects, layout.former) = (Some(n.fid()), vec![n.u32()]);
    layout
}

fn attr(n: &mut Numbers) -> Attr {
    Attr {
        fid: n.fid(),
        mode: n.u32(),
        nlink: n.u32(),
        uid: n.u32(),
        gid: n.u32(),
        rdev: n.u64(),
        size: n.u64(),
        atime_ns: n.i64(),
        mtime_ns: n.i64(),
        ctime_ns: n.i64(),
        btime_ns: n.i64(),
        truncate_epoch: n.u64(),
        attr_epoch: n.u64(),
        flags: n.u32(),
    }
}

fn lock(n: &mut Numbers) -> LockSpec {
    LockSpec {
        kind: n.u32(),
        owner: n.u64(),
        mode: n.u32(),
        start: n.u64(),
        end: n.u64(),
        pid: n.u32(),
        handle: n.u64(),
    }
}

fn changed() -> Vec<Changed> {
    let n = &mut Numbers::default();
    vec![
        Changed { fids: vec![n.fid(), n.fid()], parents: vec![attr(n)], leases: n.u32() },
        Changed { fids: Vec::new(), parents: Vec::new(), leases: 0 },
    ]
}

fn entry_replies() -> Vec<EntryReply> {
    let n = &mut Numbers::default();
    vec![
        EntryReply {
            attr: attr(n),
            layout: Some(layout(n)),
            default_layout: None,
            leases: n.u32(),
            parent: Some(attr(n)),
        },
        EntryReply { attr: attr(n), layout: None, default_layout: Some(spec(n)), leases: 0, parent: None },
    ]
}

fn lookup() -> Lookup {
    let n = &mut Numbers::default();
    Lookup { caller: caller(n), parent: n.fid(), name: n.name() }
}

fn look_ahead_replies() -> Vec<LookupStataheadReply> {
    let n = &mut Numbers::default();
    let others = [(); 2].map(|()| NamedAttr { name: n.name(), attr: attr(n), leases: n.u32() }).to_vec();
    let found = LookupReply { entry: entry_replies().into_iter().next(), leases: 3 };
    let absent = LookupReply { entry: None, leases: 2 };
    vec![LookupStataheadReply { found, others }, LookupStataheadReply { found: absent, others: Vec::new() }]
}

fn open_replies() -> Vec<OpenReply> {
    let n = &mut Numbers::default();
    vec![
        OpenReply { attr: attr(n), layout: Some(layout(n)), created: true, leases: n.u32(), parent: Some(attr(n)) },
        OpenReply { attr: attr(n), layout: None, created: false, leases: 0, parent: None },
    ]
}

fn read_dir_replies() -> Vec<ReadDirReply> {
    let n = &mut Numbers::default();
    let with = DirEntry { name: n.name(), fid: n.fid(), mode: n.u32(), cookie: n.u64(), attr: Some(attr(n)) };
    let without = DirEntry { name: n.name(), fid: n.fid(), mode: n.u32(), cookie: n.u64(), attr: None };
    vec![ReadDirReply { entries: vec![with, without], end: true }, ReadDirReply { entries: Vec::new(), end: false }]
}

fn create() -> Create {
    let n = &mut Numbers::default();
    Create {
        caller: caller(n),
        parent: n.fid(),
        name: n.name(),
        fid: n.fid(),
        mode: n.u32(),
        flags: n.u32(),
        handle: n.u64(),
        layout: spec(n),
        at_ns: n.i64(),
    }
}

fn make() -> Make {
    let n = &mut Numbers::default();
    Make {
        caller: caller(n),
        parent: n.fid(),
        name: n.name(),
        fid: n.fid(),
        mode: n.u32(),
        rdev: n.u64(),
        symlink: n.name(),
        at_ns: n.i64(),
    }
}

fn rename() -> Rename {
    let n = &mut Numbers::default();
    Rename {
        caller: caller(n),
        from_parent: n.fid(),
        from_name: n.name(),
        to_parent: n.fid(),
        to_name: n.name(),
        flags: n.u32(),
    }
}

fn close(wrote: bool, sparse: bool) -> Close {
    let n = &mut Numbers::default();
    Close {
        fid: n.fid(),
        handle: n.u64(),
        wrote,
        size: n.u64(),
        truncate_epoch: n.u64(),
        mtime_ns: n.i64(),
        attr_epoch: n.u64(),
        sparse,
        inline: wrote.then(|| n.name()),
        set: sparse.then(set_attr),
    }
}

fn closed() -> Vec<Closed> {
    let n = &mut Numbers::default();
    vec![Closed { attr: Some(attr(n)) }, Closed { attr: None }]
}

fn reclaim() -> Reclaim {
    let n = &mut Numbers::default();
    let mut handle = || OpenHandle { fid: n.fid(), handle: n.u64(), flags: n.u32() };
    let handles = vec![handle(), handle()];
    Reclaim { handles, locks: vec![HeldLock { fid: n.fid(), lock: lock(n) }], directories: vec![n.fid()] }
}

fn set_attr() -> SetAttr {
    let n = &mut Numbers::default();
    SetAttr {
        caller: caller(n),
        fid: n.fid(),
        mask: n.u32(),
        mode: n.u32(),
        uid: n.u32(),
        gid: n.u32(),
        size: n.u64(),
        atime_ns: n.i64(),
        mtime_ns: n.i64(),
        handle: n.u64(),
        at_ns: n.i64(),
    }
}
