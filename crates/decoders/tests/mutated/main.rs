//! Feeds each fuzz target with damaged seeds: no panic, and memory in proportion to the input.
//!
//! More: `FOREBAY_FUZZ_ROUNDS=1000000`, for each target. A failure prints the input.

mod counted;
#[path = "../../../proto/tests/bodies/damage.rs"]
mod damage;

use damage::{Random, damage};
use forebay_decoders::{ALL, FuzzTarget};

/// One input. If a test panics over it, it prints which.
struct Case<'a> {
    target: &'a str,
    input: &'a [u8],
}

impl Drop for Case<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("target {}, input {:02x?}", self.target, self.input);
        }
    }
}

/// True if the target takes it.
fn feed(target: &FuzzTarget, input: &[u8]) -> bool {
    let _case = Case { target: target.name, input };
    let (taken, peak) = counted::peak(|| (target.run)(input));
    let bound = target.memory_bytes + 16 * input.len();
    assert!(
        peak <= bound,
        "{peak} bytes of memory at once for {} bytes of input, at most {bound} expected",
        input.len()
    );
    taken
}

/// Seeds, then seeds with up to four damages. The targets of which some were taken, and some refused.
fn try_target(name: &str) {
    let target = ALL.iter().find(|target| target.name == name).expect("a target of this name");
    let rounds = std::env::var("FOREBAY_FUZZ_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(target.rounds);
    let seeds = (target.seeds)();
    // The first inputs make what all later ones use.
    for seed in &seeds {
        (target.run)(seed);
    }
    let whole = seeds.iter().filter(|seed| feed(target, seed)).count();
    let (mut taken, mut refused) = (0, 0);
    for round in 0..rounds {
        let mut random = Random(round);
        let mut input = seeds[random.below(seeds.len())].clone();
        let other = &seeds[random.below(seeds.len())];
        for _ in 0..=random.below(4) {
            damage(&mut random, &mut input, other);
        }
        *(if feed(target, &input) { &mut taken } else { &mut refused }) += 1;
    }
    println!("{name}: {} seeds, {whole} taken; {rounds} damaged ones, {taken} taken", seeds.len());
    let is_known = name == "handshake" || whole > 0 && taken > 0;
    assert!(
        is_known && refused > 0,
        "{whole} seeds and {taken} damaged ones taken, {refused} refused: too much of one kind"
    );
}

macro_rules! targets {
    ($($name:ident: $test:ident,)*) => {
        $(#[test]
        fn $test() {
            try_target(stringify!($name));
        })*

        #[test]
        fn every_target_is_tried_here_and_can_be_run_by_cargo_fuzz() {
            let names = [$(stringify!($name)),*];
            assert_eq!(names, ALL.map(|target| target.name));
            let manifest = include_str!("../../../../fuzz/Cargo.toml");
            for name in names {
                assert!(manifest.contains(&format!("name = \"{name}\"\npath = \"fuzz_targets/{name}.rs\"")), "{name}");
            }
        }
    };
}

targets! {
    frame_header: a_frames_header_is_refused_or_means_the_same_again,
    frames: a_damaged_stream_of_frames_is_refused_or_read_as_it_was_sent,
    bodies: a_damaged_body_is_refused_or_means_the_same_again,
    handshake: nobody_gets_through_a_handshake_without_a_key,
    records: what_a_hostile_node_seals_is_read_as_that_or_refused,
    certificates: damaged_certificates_and_keys_are_refused_or_mean_the_same_again,
    capabilities: only_the_capability_that_was_signed_is_taken,
    bans: bans_are_those_of_the_latest_epoch,
    texts: damaged_texts_are_refused_or_mean_the_same_again,
    description: a_damaged_description_is_refused_or_can_be_used,
}
