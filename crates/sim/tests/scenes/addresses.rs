//! Servers that come back at another address, which a newer map names.

use std::time::Duration;

use forebay_client::{Caller, Client, CommitLevel, LayoutSpec, OpenMode, SetAttributes};
use forebay_env::{Address, sim::Sim};
use forebay_proto::Fid;
use forebay_sim::{Cluster, ClusterOptions};

fn caller() -> Caller {
    Caller { uid: 0, gid: 0, groups: Vec::new() }
}

/// write |power, OST, address| write, read, truncate
///
/// An OST loses power and comes back at another address. Its client replays and goes on there. The MDT truncates the file
/// there.
#[test]
fn an_ost_that_comes_back_at_another_address_is_found_by_clients_and_the_mdt() {
    let sim = Sim::new(1);
    sim.block_on(async {
        let mut cluster = Cluster::format(&sim, ClusterOptions::default()).await;
        cluster.boot_all();
        let node = sim.add_node("client");
        let client = cluster.mount(node, CommitLevel::Data).await.expect("it mounts");
        let layout = LayoutSpec { stripe_count: 1, stripe_index: 0, ..LayoutSpec::inherit() };
        let made = client.create(&caller(), Fid::ROOT, b"f", 0o644, OpenMode::READ_WRITE, layout).await;
        let file = made.expect("it is made").1;
        let bytes = vec![7u8; 300_000];
        client.write(&file, 0, bytes.clone()).await.expect("it writes");
        sim.power_cut(cluster.servers[1].node);
        cluster.move_to(1, Address::Mem("elsewhere".into()));
        cluster.boot(1);
        let env = sim.env(node);
        let more = async {
            client.write(&file, 300_000, bytes.clone()).await.expect("it writes");
            client.fsync(&file, false).await.expect("synced");
            assert!(
                client.read(&file, 0, 600_000).await.expect("it reads")[..] == [&bytes[..], &bytes[..]].concat()[..]
            );
            let cut = SetAttributes { size: Some(10), ..SetAttributes::default() };
            client.setattr(&caller(), file.fid(), cut, None).await.expect("the MDT reaches the OST");
        };
        env.timeout(Duration::from_secs(30), more).await.expect("it is reached");
        assert_eq!(client.getattr(file.fid(), Some(&file)).await.expect("told").size, 10);
        assert_eq!(client.stats().evictions, 0);
    });
}

/// create |power, MDT, address| create, lookup
///
/// The MDT comes back at another address, which the client was given at mount. The client goes on there.
#[test]
fn an_mdt_that_comes_back_at_another_address_of_the_mount_is_found() {
    let sim = Sim::new(2);
    sim.block_on(async {
        let mut cluster = Cluster::format(&sim, ClusterOptions::default()).await;
        cluster.boot_all();
        let (node, elsewhere) = (sim.add_node("client"), Address::Mem("elsewhere".into()));
        let mut options = cluster.mount_options(node, CommitLevel::Data);
        options.addresses.push(elsewhere.clone());
        let client = Client::mount(&sim.env(node), options).await.expect("it mounts");
        let create = async |name: &[u8]| {
            let layout = LayoutSpec::inherit();
            client.create(&caller(), Fid::ROOT, name, 0o644, OpenMode::READ_WRITE, layout).await.expect("it is made").1
        };
        create(b"before").await;
        sim.power_cut(cluster.servers[0].node);
        cluster.move_to(0, elsewhere);
        cluster.boot(0);
        let more = async {
            let file = create(b"after").await;
            client.fsync(&file, false).await.expect("synced");
            client.lookup(&caller(), Fid::ROOT, b"before").await.expect("it is there");
        };
        sim.env(node).timeout(Duration::from_secs(30), more).await.expect("it is reached");
        assert_eq!(client.stats().evictions, 0);
    });
}

/// mount |power, both OSTs, addresses exchanged| write, read
///
/// Two OSTs come back, each at the address that the other had. One client knows both from before. The other has an older
/// map, and connects to them for the first time: it finds the wrong target, and looks for a newer map.
#[test]
fn osts_that_exchange_their_addresses_are_found() {
    let sim = Sim::new(3);
    sim.block_on(async {
        let mut cluster = Cluster::format(&sim, ClusterOptions::default()).await;
        cluster.boot_all();
        let (first, second) = (sim.add_node("first"), sim.add_node("second"));
        let known = cluster.mount(first, CommitLevel::Data).await.expect("it mounts");
        let layout = LayoutSpec { stripe_count: 2, stripe_index: 0, stripe_bytes: 64 << 10, ..LayoutSpec::inherit() };
        let made = known.create(&caller(), Fid::ROOT, b"f", 0o644, OpenMode::READ_WRITE, layout).await;
        let file = made.expect("it is made").1;
        known.write(&file, 0, vec![7u8; 300_000]).await.expect("it writes");
        let late = cluster.mount(second, CommitLevel::Data).await.expect("it mounts");
        let addresses = [1, 2].map(|number| cluster.servers[number].address.clone());
        for (number, address) in [1, 2].into_iter().zip(addresses.into_iter().rev()) {
            sim.power_cut(cluster.servers[number].node);
            cluster.move_to(number, address);
        }
        cluster.boot(1);
        cluster.boot(2);
        let more = async {
            known.write(&file, 300_000, vec![7u8; 300_000]).await.expect("it writes");
            known.fsync(&file, false).await.expect("synced");
            assert!(late.read_file(&caller(), "/f").await.expect("it reads")[..] == vec![7u8; 600_000][..]);
            let cut = SetAttributes { size: Some(10), ..SetAttributes::default() };
            late.setattr(&caller(), file.fid(), cut, None).await.expect("the MDT reaches the OSTs");
        };
        sim.env(first).timeout(Duration::from_secs(30), more).await.expect("they are reached");
        assert_eq!((known.stats().evictions, late.stats().evictions), (0, 0));
    });
}

/// write |power, OST left out of the map| fsync
///
/// An OST loses power. While it is away the client gets a newer map, which does not name it. The OST comes back where it
/// was: the client replays there what it had written.
#[test]
fn an_ost_that_a_newer_map_does_not_name_is_looked_for_where_it_was() {
    let sim = Sim::new(4);
    sim.block_on(async {
        let cluster = Cluster::format(&sim, ClusterOptions::default()).await;
        cluster.boot_all();
        let node = sim.add_node("client");
        let client = cluster.mount(node, CommitLevel::Data).await.expect("it mounts");
        let layout = LayoutSpec { stripe_count: 1, stripe_index: 0, ..LayoutSpec::inherit() };
        let made = client.create(&caller(), Fid::ROOT, b"f", 0o644, OpenMode::READ_WRITE, layout).await;
        let file = made.expect("it is made").1;
        client.write(&file, 0, vec![7u8; 300_000]).await.expect("it writes");
        sim.power_cut(cluster.servers[1].node);
        cluster.leave_out(1);
        sim.sleep(Duration::from_secs(8)).await;
        assert_eq!(client.map().epoch, 2, "it has the newer map");
        cluster.boot(1);
        let synced = sim.env(node).timeout(Duration::from_secs(30), client.fsync(&file, false)).await;
        synced.expect("it is reached").expect("synced");
        assert_eq!(client.stats().evictions, 0);
    });
}
