//! The store alone, new and aged.

use super::{
    Outcome, Plan,
    forebay::{Forebay, Measured},
    summary::{Values, commands, table},
};

/// Runs `bench store --age`.
pub fn measure(forebay: &Forebay, plan: &Plan) -> Outcome<String> {
    let dir = plan.dir.to_string_lossy();
    let (size, rounds) = (plan.size("4GiB", "1GiB", "256MiB"), plan.rounds().to_string());
    // Ages so short that any rest is long enough.
    let little: &[&str] = if plan.least { &["--overwrites=0.02", "--rest=1"] } else { &[] };
    let flags = ["store", &dir, "--size", size, "--age", "-i", &rounds];
    let measured = forebay.bench(&[&flags, little].concat())?;
    let rows = [
        rates(&measured, "fresh", "fresh")?,
        rates(&measured, "aged-at-once", "aged, at once")?,
        rates(&measured, "aged", "aged, after a rest")?,
    ];
    let amplification = [
        costs(&measured, "fresh-store", "fresh appends")?,
        costs(&measured, "ageing", "ageing: random overwrites of 4 to 64 KiB at 85 % full")?,
        costs(&measured, "aged-at-once-store", "aged appends, at once")?,
        costs(&measured, "aged-store", "aged appends, after a rest")?,
    ];
    let rest = [vec![
        measured.values("rest")?.show(1),
        measured.details("rest", "cleaned_MiB")?.show(0),
        measured.details("aged-store", "write_amplification_with_rest")?.show(2),
    ]];
    let rest_heads = ["rest, s", "moved by the cleaner, MiB", "device bytes of rest and appends / user bytes"];
    let heads = ["1 MiB appends, 16 in flight", "raw MiB/s", "store MiB/s", "store, % of raw", "% of fresh"];
    let cost_heads = [
        "",
        "MiB/s",
        "device bytes / user bytes",
        "used bytes / live bytes",
        "slabs in use / live bytes",
        "CPU seconds per GiB",
    ];
    Ok(format!(
        "{}\n{}\n{}\n{}",
        table(&heads, &rows),
        table(&cost_heads, &amplification),
        table(&rest_heads, &rest),
        commands(&[format!("forebay bench store DIR --size {size} --age -i {rounds}")])
    ))
}

fn rates(measured: &Measured, age: &str, name: &str) -> Outcome<Vec<String>> {
    let of = |what: &str| measured.values(&format!("{age}-{what}")).map(|values| values.show(0));
    let of_fresh = if age == "fresh" { Values(vec![100.0]) } else { measured.values(&format!("{age}-of-fresh"))? };
    Ok(vec![name.to_owned(), of("raw")?, of("store")?, of("store-of-raw")?, of_fresh.show(0)])
}

fn costs(measured: &Measured, phase: &str, name: &str) -> Outcome<Vec<String>> {
    let details = |what: &str| measured.details(phase, what).map(|values| values.show(2));
    Ok(vec![
        name.to_owned(),
        measured.values(phase)?.show(0),
        details("write_amplification")?,
        details("space_amplification")?,
        details("slabs_amplification")?,
        details("cpu_s_per_GiB")?,
    ])
}
