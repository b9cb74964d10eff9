use std::{rc::Rc, time::Duration};

use crate::{EnvErrorKind, sim::Sim};

const MS: Duration = Duration::from_millis(1);

/// Spawns a task when it is dropped, as careless code does.
struct SpawnsOnDrop(crate::Env);

impl Drop for SpawnsOnDrop {
    fn drop(&mut self) {
        self.0.spawn(async { unreachable!("a task of a dead life ran") });
    }
}

#[test]
fn a_crash_drops_all_tasks_of_the_life_and_none_of_the_next() {
    let sim = Sim::new(1);
    let node = sim.add_node("n");
    let held = Rc::new(());
    let main = |held: Rc<()>| {
        move |env: crate::Env| async move {
            let (shard_env, in_shard) = (env.clone(), held.clone());
            let _on_drop = SpawnsOnDrop(env.clone());
            env.spawn(async move {
                let _held = in_shard;
                shard_env.sleep(Duration::MAX).await;
            });
            let _held = held;
            std::future::pending::<()>().await;
        }
    };
    sim.start(node, main(held.clone()));
    sim.run_for(MS);
    assert_eq!(Rc::strong_count(&held), 3);
    sim.crash(node);
    assert!(!sim.is_running(node));
    assert_eq!(Rc::strong_count(&held), 1);
    sim.start(node, main(held.clone()));
    sim.run_for(MS);
    assert_eq!(Rc::strong_count(&held), 3);
}

#[test]
fn a_task_may_crash_its_own_node() {
    let sim = Sim::new(1);
    let node = sim.add_node("n");
    let held = Rc::new(());
    let (task_sim, in_task) = (sim.clone(), held.clone());
    sim.start(node, |env| async move {
        let _held = in_task;
        env.sleep(MS).await;
        task_sim.crash(node);
        env.sleep(MS).await;
        unreachable!("a dead task went on");
    });
    sim.run_for(MS * 5);
    assert_eq!(Rc::strong_count(&held), 1);
}

#[test]
fn an_environment_of_an_ended_life_answers_with_errors() {
    let sim = Sim::new(1);
    let node = sim.add_node("n");
    let env = sim.env(node);
    let disk = sim.block_on(super::open(&env));
    sim.crash(node);
    let next = sim.env(node);
    sim.block_on(async {
        assert!(env.listen(&"mem:x".parse().unwrap()).await.is_err());
        assert!(disk.write(0, super::sector(1)).await.is_err());
        assert!(env.spawn(async {}).await.is_none());
        assert!(next.spawn(async {}).await.is_some());
    });
}

#[test]
fn files_survive_a_power_cut_and_locks_do_not_survive_a_crash() {
    let sim = Sim::new(1);
    let node = sim.add_node("n");
    let env = sim.env(node);
    env.write_file("id", b"one").unwrap();
    let lock = env.lock_file("lock").unwrap();
    assert_eq!(env.lock_file("lock").err().unwrap().kind, EnvErrorKind::InUse);
    sim.power_cut(node);
    let env = sim.env(node);
    assert_eq!(env.read_file("id").unwrap(), b"one");
    let _next = env.lock_file("lock").unwrap();
    drop(lock);
    assert!(env.lock_file("lock").is_err(), "the guard of an older life released a lock of this one");
}

#[test]
fn a_clock_jump_moves_unix_time_only() {
    let sim = Sim::new(1);
    let node = sim.add_node("n");
    let env = sim.env(node);
    let (unix, now) = (env.unix_time(), env.now());
    sim.clock_jump(node, -5_000_000_000);
    assert_eq!(env.unix_time().0, unix.0 - 5_000_000_000);
    assert_eq!(env.now(), now);
}
