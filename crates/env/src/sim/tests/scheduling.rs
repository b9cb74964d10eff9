use std::{cell::RefCell, rc::Rc, time::Duration};

use crate::{
    Elapsed, Time,
    sim::{Processors, Sim, Waking},
    sync::mpsc,
};

const MS: Duration = Duration::from_millis(1);

#[test]
fn time_is_virtual_and_moves_to_the_next_timer() {
    let sim = Sim::new(1);
    let env = sim.env(sim.add_node("n"));
    sim.block_on(env.sleep(Duration::from_secs(3600)));
    assert_eq!(env.now(), Time(3_600_000_000_000));
    sim.run_for(MS);
    assert_eq!(sim.now(), Time(3_600_001_000_000));
}

#[test]
fn timers_of_one_instant_fire_in_the_order_in_which_they_were_set() {
    let sim = Sim::new(1);
    let env = sim.env(sim.add_node("n"));
    let order = Rc::new(RefCell::new(Vec::new()));
    for i in 0..5u64 {
        let (task_env, order) = (env.clone(), order.clone());
        env.spawn(async move {
            task_env.sleep(MS * (5 - i as u32)).await;
            order.borrow_mut().push(i);
            task_env.sleep(MS * i as u32).await;
            order.borrow_mut().push(10 + i);
        });
    }
    sim.run_for(MS * 20);
    assert_eq!(*order.borrow(), [4, 3, 2, 1, 0, 14, 13, 12, 11, 10]);
}

#[test]
fn a_future_that_is_ready_with_its_timeout_wins() {
    let sim = Sim::new(1);
    let env = sim.env(sim.add_node("n"));
    assert_eq!(sim.block_on(env.timeout(MS, env.sleep(MS))), Ok(()));
    assert_eq!(sim.block_on(env.timeout(MS, env.sleep(MS * 2))), Err(Elapsed));
    assert_eq!(sim.now(), Time(2_000_000));
}

#[test]
fn an_aborted_task_yields_nothing_and_drops_its_future() {
    let sim = Sim::new(1);
    let env = sim.env(sim.add_node("n"));
    let held = Rc::new(());
    let (task_env, in_task) = (env.clone(), held.clone());
    let task = env.spawn(async move {
        let _held = in_task;
        task_env.sleep(Duration::MAX).await;
    });
    sim.run_for(MS);
    task.abort();
    assert_eq!(Rc::strong_count(&held), 1);
    assert_eq!(sim.block_on(task), None);
}

#[test]
#[should_panic(expected = "deadlock at virtual time 1000000 ns")]
fn waiting_for_nothing_is_a_deadlock() {
    let sim = Sim::new(1);
    sim.run_for(MS);
    sim.block_on(std::future::pending::<()>());
}

#[test]
fn work_waits_for_a_free_core_in_turn() {
    let sim = Sim::new(1);
    let node = sim.add_node("n");
    sim.set_cores(node, 2);
    let shards: Vec<_> = (0..4).map(|_| sim.env(node)).collect();
    let tasks: Vec<_> = shards
        .iter()
        .map(|env| {
            let task_env = env.clone();
            env.spawn(async move {
                task_env.charge_cpu(MS).await;
                task_env.now()
            })
        })
        .collect();
    let ends: Vec<_> = tasks.into_iter().map(|task| sim.block_on(task).unwrap().0 / 1_000_000).collect();
    assert_eq!(ends, [1, 1, 2, 2]);
}

#[test]
fn a_shard_is_one_thread_even_on_many_cores() {
    let sim = Sim::new(1);
    let env = sim.env(sim.add_node("n"));
    let task_env = env.clone();
    env.spawn(async move { task_env.charge_cpu(MS).await });
    sim.run_for(Duration::ZERO);
    sim.block_on(env.charge_cpu(MS));
    assert_eq!(sim.now(), Time(2_000_000));
}

const WAKING: Waking = Waking { latency: MS, work: Duration::ZERO, looks: false };

/// Works on `env` for `ms` milliseconds; returns when that is done.
fn work(env: &crate::Env, ms: u32) -> crate::Task<u64> {
    let task_env = env.clone();
    env.spawn(async move {
        task_env.charge_cpu(MS * ms).await;
        task_env.now().0 / 1_000_000
    })
}

#[test]
fn threads_share_processors_and_each_does_one_thing_at_a_time() {
    let sim = Sim::new(1);
    let processors = Processors::new(2);
    let nodes = ["a", "b", "c"].map(|name| sim.add_node(name));
    nodes.iter().for_each(|node| sim.run_on(*node, &processors, WAKING));
    let [a, b, c] = nodes.map(|node| sim.env(node));
    // Each has slept for the first millisecond.
    let three_of_a = [work(&a, 2), work(&a, 2), work(&a, 2)];
    let (of_b, of_c) = (work(&b, 2), work(&c, 2));
    let ends = three_of_a.map(|task| sim.block_on(task).unwrap());
    let of_others = [of_b, of_c].map(|task| sim.block_on(task).unwrap());
    // The next work of `a` takes no processor before its turn.
    assert_eq!((ends, of_others), ([3, 5, 7], [3, 5]));
}

#[test]
fn a_thread_that_sleeps_takes_its_time_and_one_that_looks_does_not() {
    for (looks, bytes, second) in [(false, 100, 5), (true, 100, 4), (true, 1 << 20, 5)] {
        let sim = Sim::new(1);
        let node = sim.add_node("n");
        sim.run_on(node, &Processors::new(1), Waking { looks, ..WAKING });
        let env = sim.env(node);
        assert_eq!(sim.block_on(work(&env, 1)), Some(2));
        sim.run_for(MS);
        // Two messages that follow each other closely.
        (0..2).for_each(|_| sim.heard(node, bytes));
        assert_eq!(sim.block_on(work(&env, 1)), Some(second), "{looks} {bytes}");
    }
}

#[test]
fn only_a_processor_with_nothing_to_do_has_to_be_woken() {
    for (processors, end_of_b) in [(2, 10), (1, 8)] {
        let sim = Sim::new(1);
        let processors = Processors::new(processors);
        let [a, b] = ["a", "b"].map(|name| {
            let node = sim.add_node(name);
            sim.run_on(node, &processors, Waking { latency: 3 * MS, ..WAKING });
            sim.env(node)
        });
        // `a` is awake after three milliseconds and works until the seventh; `b` becomes ready at the sixth.
        let of_a = work(&a, 4);
        sim.run_for(6 * MS);
        let of_b = work(&b, 1);
        assert_eq!((sim.block_on(of_a), sim.block_on(of_b)), (Some(7), Some(end_of_b)), "{end_of_b}");
    }
}

#[test]
fn waking_thread_is_charged_wake_work() {
    // With one processor, which `a` uses, no processor has to be woken.
    for (processors, ends) in [(2, (6, 6)), (1, (5, 4))] {
        let sim = Sim::new(1);
        let processors = Processors::new(processors);
        let [a, b] = ["a", "b"].map(|name| {
            let node = sim.add_node(name);
            sim.run_on(node, &processors, Waking { work: 2 * MS, ..WAKING });
            sim.env(node)
        });
        let (task_env, env_of_b) = (a.clone(), b.clone());
        let of_a = a.spawn(async move {
            task_env.charge_cpu(MS).await;
            let of_b = work(&env_of_b, 1);
            // Its current work comes first, then two milliseconds to wake `b`, then its own work again.
            task_env.charge_cpu(MS).await;
            task_env.charge_cpu(MS).await;
            (task_env.now().0 / 1_000_000, of_b.await.unwrap())
        });
        // No thread woke `a`, which works from the first to the second millisecond.
        assert_eq!(sim.block_on(of_a), Some(ends));
    }
}

/// Two nodes that communicate, write and draw random numbers.
fn busy_world(seed: u64) -> u64 {
    let sim = Sim::new(seed);
    let (a, b) = (sim.add_node("a"), sim.add_node("b"));
    let address: crate::Address = "tcp:b:1".parse().unwrap();
    let server_address = address.clone();
    sim.start(b, |env| async move {
        let mut listener = env.listen(&server_address).await.unwrap();
        let disk = super::open(&env).await;
        while let Ok(accepted) = listener.accept().await {
            let (mut read, _write) = accepted.stream.split();
            let mut byte = [0];
            while read.read_exact(&mut byte).await.is_ok() {
                disk.write(u64::from(byte[0]) * 4096, super::sector(byte[0])).await.unwrap();
            }
        }
    });
    sim.start(a, |env| async move {
        let (_read, mut write) = env.connect(&address).await.unwrap().split();
        for _ in 0..100 {
            let byte = env.random_u64() as u8;
            write.write_all(&[vec![byte].into()]).await.unwrap();
            env.sleep(Duration::from_micros(env.random_u64() % 100)).await;
        }
    });
    sim.run_for(Duration::from_secs(1));
    sim.power_cut(b);
    sim.trace_hash()
}

#[test]
fn one_seed_gives_one_trace_and_another_seed_a_different_trace() {
    for seed in 0..20 {
        assert_eq!(busy_world(seed), busy_world(seed), "seed {seed}");
        assert_ne!(busy_world(seed), busy_world(seed + 1), "seed {seed}");
    }
}

#[test]
fn channels_and_tasks_of_a_dropped_world_are_freed() {
    let held = Rc::new(());
    let sim = Sim::new(1);
    let env = sim.env(sim.add_node("n"));
    let (sender, mut receiver) = mpsc::channel::<()>(1);
    let in_task = held.clone();
    env.spawn(async move {
        let _held = in_task;
        let _sender = sender;
        receiver.recv().await;
    });
    sim.run_for(MS);
    drop(sim);
    assert_eq!(Rc::strong_count(&held), 1);
}

#[test]
fn a_paused_node_runs_nothing_until_it_is_resumed() {
    let sim = Sim::new(1);
    let node = sim.add_node("n");
    let ticks = Rc::new(RefCell::new(0));
    let in_task = ticks.clone();
    sim.start(node, |env| async move {
        loop {
            env.sleep(MS).await;
            *in_task.borrow_mut() += 1;
        }
    });
    sim.run_for(MS * 5 + MS / 2);
    assert_eq!(*ticks.borrow(), 5);
    sim.pause(node);
    sim.run_for(MS * 5);
    assert_eq!(*ticks.borrow(), 5);
    sim.resume(node);
    sim.run_for(MS * 5);
    assert_eq!(*ticks.borrow(), 10);
}

/// Not a benchmark, but a bound that even a debug build meets.
#[test]
fn a_million_events_are_quick() {
    let sim = Sim::new(1);
    let env = sim.env(sim.add_node("n"));
    let tasks: Vec<_> = (0..10u64)
        .map(|i| {
            let task_env = env.clone();
            env.spawn(async move {
                for _ in 0..100_000 {
                    task_env.sleep(Duration::from_nanos(1 + i)).await;
                }
            })
        })
        .collect();
    for task in tasks {
        sim.block_on(task);
    }
    assert_eq!(sim.now(), Time(1_000_000));
}
