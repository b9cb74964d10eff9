//! Layout requests of users: fills in what they leave open, and refuses what no layout can satisfy.

use forebay_proto::{
    Errno, ErrorReply, FOR_EVER, limits,
    message::{ComponentSpec, LayoutSpec},
};

use super::Wheels;

/// The requested layout, with defaults from the directory, then from the file system: at least one component, the last
/// without an end.
pub fn resolve(
    asked: &LayoutSpec,
    directory: Option<&LayoutSpec>,
    default_bytes: u32,
    default_count: u32,
) -> Vec<ComponentSpec> {
    let inherit = LayoutSpec::inherit();
    let directory = directory.unwrap_or(&inherit);
    let spec = if *asked == inherit { directory } else { asked };
    let first = |values: [u32; 3], open: u32| values.into_iter().find(|value| *value != open).unwrap_or(open);
    if !spec.components.is_empty() {
        let complete = |part: &ComponentSpec| ComponentSpec {
            stripe_count: first([part.stripe_count, default_count, 1], 0),
            stripe_bytes: first([part.stripe_bytes, default_bytes, 0], 0),
            ..part.clone()
        };
        return spec.components.iter().map(complete).collect();
    }
    vec![ComponentSpec {
        end: FOR_EVER,
        stripe_count: first([asked.stripe_count, directory.stripe_count, default_count], 0),
        stripe_bytes: first([asked.stripe_bytes, directory.stripe_bytes, default_bytes], 0),
        stripe_index: first([asked.stripe_index, directory.stripe_index, u32::MAX], u32::MAX),
        pool: if asked.pool.is_empty() { directory.pool.clone() } else { asked.pool.clone() },
    }]
}

/// True if the first component of `spec`, which was accepted once, gets an OST that takes new files.
pub fn takes_files(spec: &LayoutSpec, wheels: &Wheels) -> bool {
    let (pool, index) = match spec.components.first() {
        Some(part) => (&part.pool, part.stripe_index),
        None => (&spec.pool, spec.stripe_index),
    };
    let is_there = index == u32::MAX || wheels.all().has(index);
    is_there && wheels.of(pool).unwrap_or(wheels.all()).has_usable()
}

/// Refuses (EINVAL) a request that no layout can satisfy. The message names the part that is wrong and what would
/// work.
pub fn check(spec: &LayoutSpec, wheels: &Wheels) -> Result<(), ErrorReply> {
    check_part(spec.stripe_bytes, spec.stripe_count, spec.stripe_index, &spec.pool, wheels)?;
    let ends: Vec<u64> = spec.components.iter().map(|part| part.end).collect();
    if ends.len() > limits::COMPONENTS / 2 {
        let most = limits::COMPONENTS / 2;
        return invalid(format!("{} components are more than the {most} that can be asked for", ends.len()));
    }
    if ends.last().is_some_and(|last| *last != FOR_EVER) {
        return invalid("the last component has an end: end with -E -1, or nothing could be written behind it".into());
    }
    if !ends.is_sorted_by(|a, b| a < b) || ends.first() == Some(&0) {
        return invalid("the ends of the components do not ascend: each -E lies behind the one before".into());
    }
    let odd = |end: &&u64| {
        **end != FOR_EVER && (!end.is_multiple_of(limits::STRIPE_BYTES_MIN.into()) || **end > limits::FILE_BYTES)
    };
    if let Some(end) = ends.iter().find(odd) {
        return invalid(format!("a component cannot end at {end}: use a multiple of 64 KiB below 1 EiB"));
    }
    let mut parts = spec.components.iter();
    parts.try_for_each(|part| check_part(part.stripe_bytes, part.stripe_count, part.stripe_index, &part.pool, wheels))
}

fn check_part(bytes: u32, count: u32, index: u32, pool: &str, wheels: &Wheels) -> Result<(), ErrorReply> {
    if !bytes.is_multiple_of(limits::STRIPE_BYTES_MIN) {
        return invalid(format!("a stripe of {bytes} bytes is not a multiple of 64 KiB"));
    }
    if count != u32::MAX && count as usize > limits::STRIPES {
        return invalid(format!("{count} stripes are more than the {} a file can have", limits::STRIPES));
    }
    let Some(wheel) = wheels.of(pool) else {
        let names: Vec<&str> = wheels.pools().collect();
        let there = if names.is_empty() { "there are none".into() } else { format!("there are {}", names.join(", ")) };
        return invalid(format!("there is no pool named '{pool}' ({there}; `forebay pool new` makes one)"));
    };
    if index != u32::MAX && !wheels.all().has(index) {
        return Err(super::no_such_ost(index));
    }
    if index != u32::MAX && !wheel.has(index) {
        return invalid(format!("OST{index:04x} is not in pool '{pool}': leave out -i or -p"));
    }
    Ok(())
}

fn invalid(what: String) -> Result<(), ErrorReply> {
    Err(ErrorReply::new(Errno::EINVAL, what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Table;

    fn part(end: u64) -> ComponentSpec {
        ComponentSpec { end, stripe_count: 0, stripe_bytes: 0, stripe_index: u32::MAX, pool: String::new() }
    }

    fn of(components: Vec<ComponentSpec>) -> LayoutSpec {
        LayoutSpec { components, ..LayoutSpec::inherit() }
    }

    #[test]
    fn unset_layout_fields_come_from_the_directory_then_from_the_file_system() {
        let asked = LayoutSpec { stripe_count: 3, ..LayoutSpec::inherit() };
        let directory = LayoutSpec { stripe_count: 9, stripe_index: 4, ..LayoutSpec::inherit() };
        let [resolved] = &resolve(&asked, Some(&directory), 1 << 20, 1)[..] else { panic!("it is plain") };
        assert_eq!((resolved.stripe_count, resolved.stripe_bytes, resolved.stripe_index), (3, 1 << 20, 4));
        assert_eq!(resolved.end, FOR_EVER);
    }

    #[test]
    fn a_composite_default_is_taken_whole_or_not_at_all() {
        let directory = of(vec![part(1 << 20), ComponentSpec { stripe_count: 4, ..part(FOR_EVER) }]);
        let resolved = resolve(&LayoutSpec::inherit(), Some(&directory), 1 << 20, 1);
        assert_eq!(
            resolved.iter().map(|part| (part.end, part.stripe_count)).collect::<Vec<_>>(),
            [(1 << 20, 1), (FOR_EVER, 4)]
        );
        let asked = LayoutSpec { stripe_count: 3, ..LayoutSpec::inherit() };
        assert_eq!(resolve(&asked, Some(&directory), 1 << 20, 1).len(), 1);
    }

    #[test]
    fn impossible_layouts_are_refused_with_the_reason() {
        let table = Table { weights: [(0, 1), (1, 1)].into(), pools: [("fast".to_owned(), [1].into())].into() };
        let wheels = Wheels::new(&table);
        let plain = LayoutSpec::inherit;
        let cases = [
            (LayoutSpec { stripe_bytes: 1000, ..plain() }, "64 KiB"),
            (LayoutSpec { stripe_count: 2001, ..plain() }, "2000"),
            (LayoutSpec { stripe_index: 2, ..plain() }, "index 2"),
            (LayoutSpec { pool: "slow".into(), ..plain() }, "there are fast"),
            (LayoutSpec { pool: "fast".into(), stripe_index: 0, ..plain() }, "not in pool"),
            (of(vec![part(1 << 20)]), "-E -1"),
            (of(vec![part(2 << 20), part(1 << 20), part(FOR_EVER)]), "ascend"),
            (of(vec![part(1000), part(FOR_EVER)]), "1000"),
            (of((1..40).map(|n| part(n << 20)).chain([part(FOR_EVER)]).collect()), "40 components"),
        ];
        for (spec, words) in cases {
            let error = check(&spec, &wheels).expect_err(words);
            assert!(error.message.contains(words), "{error:?}");
        }
        assert_eq!(check(&of(vec![part(1 << 20), part(FOR_EVER)]), &wheels), Ok(()));
    }
}
