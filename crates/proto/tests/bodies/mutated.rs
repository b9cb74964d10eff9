//! What a decoder does with untrusted bytes: it refuses them, or reads a value that is the same after encoding and
//! decoding it again.
//!
//! It never panics, and never allocates memory out of proportion to its input (checked by `sample::again` and
//! `counted`).

use std::collections::BTreeMap;

use crate::{
    damage::{Random, damage},
    golden,
    sample::{Again, Decoder, Samples},
};

/// Number of damaged forms of each body; seeds count from 0.
const SEEDS: u64 = 10_000;

/// One input. If a test panics over it, it prints which.
struct Case<'a> {
    name: &'a str,
    what: String,
    bytes: &'a [u8],
}

impl Drop for Case<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}, {}: {:02x?}", self.name, self.what, self.bytes);
        }
    }
}

fn read(name: &str, what: String, bytes: &[u8], decoder: Decoder) -> Option<Again> {
    let _case = Case { name, what, bytes };
    decoder(bytes).ok()
}

/// Golden bodies with the decoders of their types.
fn bodies() -> Vec<(String, Vec<u8>, Decoder)> {
    let golden: BTreeMap<_, _> = golden::bodies();
    let all = Samples::all().bodies.into_iter();
    all.map(|(name, sample)| (name.clone(), golden[name.as_str()].clone(), sample.decoder)).collect()
}

/// Sets the length prefix to the actual length.
fn set_length(body: &mut [u8]) {
    if let Some((length, rest)) = body.split_at_mut_checked(4) {
        length.copy_from_slice(&(rest.len() as u32).to_le_bytes());
    }
}

#[test]
fn a_body_cut_anywhere_is_refused_also_if_its_length_says_so() {
    for (name, body, decoder) in bodies() {
        for end in 0..body.len() {
            let mut cut = body[..end].to_vec();
            assert!(read(&name, format!("cut at {end}"), &cut, decoder).is_none(), "{name} cut at {end}");
            set_length(&mut cut);
            if cut.len() >= 4 {
                assert!(read(&name, format!("ends at {end}"), &cut, decoder).is_none(), "{name} ends at {end}");
            }
        }
    }
}

#[test]
fn fields_of_a_newer_version_are_skipped_and_bytes_after_the_body_are_refused() {
    for (name, body, decoder) in bodies() {
        for extra in [vec![0], vec![0xff; 3], vec![1; 100], body.clone()] {
            let mut longer = [body.as_slice(), &extra].concat();
            let what = || format!("with {} bytes more", extra.len());
            assert!(read(&name, what(), &longer, decoder).is_none(), "{name} {}", what());
            set_length(&mut longer);
            let again = read(&name, what(), &longer, decoder).unwrap_or_else(|| panic!("{name} {}", what()));
            assert_eq!(again.bytes, body, "{name} {}", what());
        }
    }
}

#[test]
fn any_word_may_have_any_extreme_value() {
    for (name, body, decoder) in bodies() {
        let left = body.len() as u32;
        for at in 0..body.len() {
            let words = [0, 1, left, left / 2, 4096, 1 << 20, i32::MAX as u32, 1 << 31, u32::MAX - 3, u32::MAX];
            for word in words {
                for width in [1, 2, 4, 8] {
                    let mut wild = body.clone();
                    let end = (at + width).min(wild.len());
                    let word = (u64::from(word) | u64::from(word) << 32).to_le_bytes();
                    wild[at..end].copy_from_slice(&word[..end - at]);
                    read(&name, format!("{word:02x?} at {at}, {width} wide"), &wild, decoder);
                }
            }
        }
    }
}

/// Lists whose length says that they fill a body, with bytes for few members.
#[test]
fn a_list_takes_memory_for_members_that_can_be_there_only() {
    for (name, body, decoder) in bodies() {
        for at in 4..body.len() {
            let mut long = body[..at].to_vec();
            long.extend_from_slice(&4000_u32.to_le_bytes());
            long.resize(at + 4 + 4000, 0);
            set_length(&mut long);
            read(&name, format!("4000 members at {at}, then zeros"), &long, decoder);
        }
    }
}

#[test]
fn a_body_is_no_danger_to_the_decoder_of_another_type() {
    let bodies = bodies();
    for (name, body, _) in &bodies {
        for (other, _, decoder) in &bodies {
            read(name, format!("read as {other}"), body, *decoder);
        }
    }
}

#[test]
fn any_damage_is_refused_or_read_as_a_value_that_has_the_same_bytes_again() {
    let bodies = bodies();
    let (mut refused, mut taken) = (0, 0);
    for (name, body, decoder) in &bodies {
        for seed in 0..SEEDS {
            let mut random = Random(seed);
            let other = &bodies[random.below(bodies.len())].1;
            let mut damaged = body.clone();
            for _ in 0..=random.below(4) {
                damage(&mut random, &mut damaged, other);
            }
            if random.below(2) == 0 {
                set_length(&mut damaged);
            }
            match read(name, format!("seed {seed}"), &damaged, *decoder) {
                Some(_) => taken += 1,
                None => refused += 1,
            }
        }
    }
    assert!(refused > SEEDS && taken > SEEDS, "{refused} refused, {taken} taken: the damage is of one kind only");
}
