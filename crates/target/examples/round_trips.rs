//! What a round trip costs: `cargo run --release -p forebay-target --example round_trips`.
//!
//! One client and one target with a toy service, on one thread, over each transport; reads and changes, one at a time and
//! 32 at once; wall time and CPU time per call. The journal lies in the temporary directory.

#[path = "../tests/toy/mod.rs"]
mod toy;

use std::{cell::Cell, rc::Rc, time::Duration};

use forebay_env::{Address, Env, real, testing};
use forebay_proto::ClientId;
use forebay_rpc::{ClientSession, PinBudget, SessionOptions};
use forebay_store::{FormatOptions, OpenOptions, Store};
use forebay_target::{Target, TargetOptions};
use toy::*;

const CALLS: u32 = 100_000;

fn main() {
    real::run(|env| async move {
        let scratch = testing::scratch_dir(&env);
        let unix = format!("unix:{}/socket", &*scratch);
        for address in ["mem:round-trips", &unix, "tcp:127.0.0.1:0"] {
            measure(&env, &scratch, &address.parse().expect("an address")).await;
        }
    });
}

async fn measure(env: &Env, scratch: &str, address: &Address) {
    let dir = format!("{scratch}/{}", address.to_string().replace(['/', ':'], "_"));
    let options = FormatOptions { journal_bytes: 64 << 20, ..FormatOptions::new(CLUSTER, TARGET, 256 << 20) };
    env.create_dir(&dir).expect("a directory");
    Store::format(env, &dir, &options).await.expect("formatted");
    let store = Store::open(env, &dir, &OpenOptions::default()).await.expect("opened");
    let toy = Rc::new(Toy {
        env: env.clone(),
        tickets: false,
        dawdle: Duration::ZERO,
        ended: Default::default(),
        recovered: Cell::new(false),
    });
    let target = Target::start(env, store, TargetOptions::default(), toy).await.expect("started");
    let listener = env.listen(address).await.expect("listening");
    let addresses = vec![listener.address()];
    let serving = target.clone();
    env.spawn(async move { serving.serve(listener).await });
    let client = ClientId::from_random(env.random_u64(), env.random_u64());
    let base = toy::options(client, "bench", PinBudget::new(256 << 20));
    let session = ClientSession::start(env, SessionOptions { addresses, ..base });
    session.ready().await.expect("connected");
    for lanes in [1, 32] {
        for changes in [false, true] {
            run(env, &session, lanes, changes, address).await;
        }
    }
    session.close().await;
    target.close().await;
}

async fn run(env: &Env, session: &ClientSession, lanes: u32, changes: bool, address: &Address) {
    let (begin, cpu) = (env.now(), cpu_us(env));
    let tasks: Vec<_> = (0..lanes)
        .map(|lane| {
            let session = session.clone();
            env.spawn(async move {
                for _ in 0..CALLS / lanes {
                    call(&session, lane, changes).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    let calls = f64::from(CALLS / lanes * lanes);
    let wall = env.now().since(begin).as_secs_f64() * 1e6 / calls;
    let kind = address.to_string().split(':').next().unwrap_or_default().to_owned();
    let what = if changes { "change" } else { "read" };
    println!("{kind:5} {what:7} {lanes:3} at once: {wall:6.2} us/call, {:6.2} us CPU", (cpu_us(env) - cpu) / calls);
}

async fn call(session: &ClientSession, counter: u32, changes: bool) {
    use forebay_proto::message::{AppendReserve, GetObject};
    use forebay_rpc::Call;
    if changes {
        let request = AppendReserve { object: object(counter), length: 1, attr_epoch: 0, here: false };
        session.call(&request, Call::default()).await.expect("replied");
    } else {
        session.call(&GetObject { object: object(counter) }, Call::default()).await.expect("replied");
    }
}

/// CPU time of this process so far, in microseconds, as the kernel counts it (in ticks of 10 ms).
fn cpu_us(env: &Env) -> f64 {
    let stat = String::from_utf8(env.read_file("/proc/self/stat").expect("Linux")).expect("a text");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("a name in parentheses").split_whitespace().collect();
    let ticks: f64 = fields[11..13].iter().map(|f| f.parse::<f64>().expect("a number")).sum();
    ticks * 10_000.0
}
