use super::*;
use crate::testing::Dice;

#[test]
fn flags_of_setstripe_are_read() {
    let layout = LayoutSpec {
        stripe_count: 4,
        stripe_bytes: 1 << 20,
        stripe_index: 2,
        pool: "fast".into(),
        ..LayoutSpec::inherit()
    };
    assert_eq!(parse_layout(b"-c 4 -S 1048576 -i 2 -p fast"), Some(layout));
    assert_eq!(parse_layout(b"-c 0 -S 0 -i -1"), Some(LayoutSpec::inherit()));
    assert_eq!(parse_layout(b"-c -1").map(|layout| layout.stripe_count), Some(u32::MAX));
    let composite = parse_layout(b"-E 1048576 -c 1 -E -1 -c -1 -p fast").unwrap();
    let ends: Vec<(u64, u32)> = composite.components.iter().map(|part| (part.end, part.stripe_count)).collect();
    assert_eq!((ends, &composite.components[1].pool[..]), (vec![(1 << 20, 1), (FOR_EVER, u32::MAX)], "fast"));
    let sizes: [&[u8]; 4] = [b"-S 1M", b"-S 1024k", b"-S 1MiB", b"-S 1048576B"];
    assert!(sizes.iter().all(|text| parse_layout(text).is_some_and(|layout| layout.stripe_bytes == 1 << 20)));
    assert_eq!(
        (parse_size("3GB"), parse_size("1T"), parse_size("99999999999G")),
        (Some(3_000_000_000), Some(1 << 40), None)
    );
    let bad: [&[u8]; 11] = [b"-c", b"-c x", b"-S -1", b"4", b"-q 1", b"\xff", b"", b" ", b"-S 1", b"-S 1XB", b"-S 4G"];
    for bad in bad {
        assert_eq!(parse_layout(bad), None, "{}", String::from_utf8_lossy(bad));
    }
}

#[test]
fn the_attribute_says_what_a_copy_needs_and_no_osts() {
    let plain = Layout::plain(1, 1 << 20, vec![3, 1]);
    assert_eq!(text_of(&plain), "-c 2 -S 1048576");
    let part = |start, end, osts: &[u32]| Component { start, end, ..Component::plain(1 << 20, osts.to_vec()) };
    let mut layout = Layout { components: vec![part(0, 1 << 20, &[1]), part(1 << 20, FOR_EVER, &[])], ..plain };
    layout.components[1].stripe_count = u32::MAX;
    layout.components[1].pool = "fast".into();
    assert_eq!(text_of(&layout), "-E 1048576 -c 1 -S 1048576 -E -1 -c -1 -S 1048576 -p fast");
    let spec = parse_layout(text_of(&layout).as_bytes()).unwrap();
    assert_eq!(text_of_default(&spec), text_of(&layout));
    // Grown round a full OST.
    layout.components = vec![part(0, 1_000_001, &[1]), part(1_000_001, FOR_EVER, &[2])];
    assert_eq!(text_of(&layout), "-c 1 -S 1048576");
}

fn some_part(dice: &mut Dice) -> ComponentSpec {
    let pool = ["", "fast", "archive"][dice.below(3) as usize].into();
    let stripe_count = [0, 1, 7, u32::MAX][dice.below(4) as usize];
    let stripe_bytes = dice.below(64) as u32 * limits::STRIPE_BYTES_MIN;
    ComponentSpec { end: 0, stripe_count, stripe_bytes, stripe_index: u32::MAX, pool }
}

#[test]
fn a_default_layout_that_is_written_as_text_is_read_as_it_was() {
    for seed in 0..500 {
        let mut dice = Dice::new(seed);
        let ComponentSpec { stripe_count, stripe_bytes, pool, .. } = some_part(&mut dice);
        let mut spec = LayoutSpec { stripe_count, stripe_bytes, pool, ..LayoutSpec::inherit() };
        let count = dice.below(4);
        if count > 0 {
            spec = LayoutSpec::inherit();
        }
        for left in (0..count).rev() {
            let before = spec.components.last().map_or(0, |part| part.end);
            let end = if left == 0 { FOR_EVER } else { before + (1 + dice.below(99)) * 65_536 };
            spec.components.push(ComponentSpec { end, ..some_part(&mut dice) });
        }
        let text = text_of_default(&spec);
        assert_eq!(parse_layout(text.as_bytes()), Some(spec), "seed {seed}: {text}");
    }
}

#[test]
fn any_words_are_a_layout_or_are_refused_and_only_whole_pairs_of_flags_and_values_are_read() {
    let words = ["-c", "-S", "-i", "-p", "-E", "-1", "0", "4", "1M", "65536", "1000", "fast", "-x", "-"];
    let mut read = 0;
    for seed in 0..20_000 {
        let mut dice = Dice::new(seed);
        let text: Vec<&str> = (0..dice.below(7)).map(|_| words[dice.below(words.len() as u64) as usize]).collect();
        let Some(layout) = parse_layout(text.join("  ").as_bytes()) else { continue };
        read += 1;
        assert!(text.len().is_multiple_of(2) && !text.is_empty(), "{text:?}");
        assert!(text.iter().step_by(2).all(|flag| ["-c", "-S", "-i", "-p", "-E"].contains(flag)), "{text:?}");
        let ends = text.iter().step_by(2).filter(|flag| **flag == "-E").count();
        assert_eq!(layout.components.len(), ends, "{text:?}");
        let sizes = layout.components.iter().map(|part| part.stripe_bytes).chain([layout.stripe_bytes]);
        assert!(sizes.into_iter().all(|bytes| bytes.is_multiple_of(limits::STRIPE_BYTES_MIN)), "{text:?}");
    }
    assert!(read > 300, "{read}");
}

#[test]
fn flags_count_for_the_component_before_them_and_the_last_of_several_for_all() {
    let layout = parse_layout(b"-c 2 -c 3 -E 1M -i 4 -E -1 -p fast -c -1").expect("it is one");
    assert_eq!((layout.stripe_count, layout.pool.as_str()), (3, ""));
    let [first, last] = &layout.components[..] else { panic!("{layout:?}") };
    assert_eq!((first.end, first.stripe_index, first.stripe_count, first.pool.as_str()), (1 << 20, 4, 0, ""));
    assert_eq!((last.end, last.stripe_index, last.stripe_count), (FOR_EVER, u32::MAX, u32::MAX));
    assert_eq!(last.pool, "fast");
}

#[test]
fn what_only_one_cluster_knows_of_a_layout_is_left_out_for_another() {
    let spec = parse_layout(b"-E 1M -c 2 -S 128K -i 3 -p fast -E -1 -c 4 -i 1 -p slow").expect("it is one");
    let expected = parse_layout(b"-E 1M -c 2 -S 128K -E -1 -c 4").expect("it is one");
    assert_eq!(anywhere(spec), expected);
    let plain = parse_layout(b"-c 2 -S 128K -i 3 -p fast").expect("it is one");
    assert_eq!(Some(anywhere(plain)), parse_layout(b"-c 2 -S 128K"));
}
