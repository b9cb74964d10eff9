//! The laboratory's predictions, from measurements of the parts, beside what `bench ior` measures on this machine.

use super::{
    Outcome, Plan,
    cluster::{Cluster, OSTS},
    forebay::Forebay,
    process::output,
    summary::{Values, commands, table},
};

/// The laboratory's names of the patterns, with the equivalent flags of `bench ior`.
const PATTERNS: [(&str, &[&str]); 2] = [
    ("file-per-process", &["-F", "-t", "1MiB", "-b", "512MiB"]),
    ("shared-file", &["-t", "47008", "-b", "47008", "-s", "11422"]),
];
/// The flags with --least.
const LEAST: [&[&str]; 2] = [&["-F", "-t", "1MiB", "-b", "4MiB"], &["-t", "47008", "-b", "47008", "-s", "89"]];
const PHASES: [&str; 2] = ["write", "read"];

/// In each round the machine is measured and described again; its rates are predicted, then measured.
pub fn measure(forebay: &Forebay, plan: &Plan) -> Outcome<String> {
    let cluster = Cluster::make(forebay, plan)?;
    let mut rows: Vec<(String, Values, Values)> = PATTERNS
        .iter()
        .flat_map(|(name, _)| PHASES.map(|phase| (format!("{name}-{phase}"), Values::default(), Values::default())))
        .collect();
    for _ in 0..plan.size(plan.rounds(), 1, 1) {
        let predicted = predict(forebay, plan)?;
        for (name, values, _) in &mut rows {
            let row = predicted["rows"].as_array().and_then(|rows| rows.iter().find(|row| row["name"] == **name));
            let mb_s = row.and_then(|row| row["default"].as_f64()).ok_or(format!("forebay sim tells no {name}"))?;
            values.0.push(mb_s * 1e6 / f64::from(1 << 20));
        }
        for ((name, flags), least) in PATTERNS.into_iter().zip(LEAST) {
            let flags = plan.size(flags, flags, least);
            for (phase, more) in PHASES.into_iter().zip([&["-w", "-k"][..], &["-r"]]) {
                let mnt = cluster.mnt.to_string_lossy();
                let args: Vec<&str> = [&["ior"], flags, &["-N", "4", "-e"], more, &[&mnt]].concat();
                let mib_s = forebay.bench(&args)?.value(phase)?;
                let row = rows.iter_mut().find(|(row, ..)| *row == format!("{name}-{phase}"));
                row.ok_or("a row is missing")?.2.0.push(mib_s);
            }
        }
    }
    let shown: Vec<Vec<String>> = rows
        .iter()
        .map(|(name, predicted, measured)| {
            vec![name.clone(), predicted.show(0), measured.show(0), predicted.percent_of(measured).show(0)]
        })
        .collect();
    let typed = [
        format!("forebay bench machine DIR --osts {OSTS} --toml here.toml && forebay sim here.toml"),
        "forebay bench ior -F -t 1MiB -b 512MiB -N 4 -e -w -k MNT; ... -r MNT".to_owned(),
        "forebay bench ior -t 47008 -b 47008 -s 11422 -N 4 -e -w -k MNT; ... -r MNT".to_owned(),
    ];
    let heads = ["MiB/s", "predicted", "measured", "predicted, % of measured"];
    Ok(format!("{}\n{}", table(&heads, &shown), commands(&typed)))
}

fn predict(forebay: &Forebay, plan: &Plan) -> Outcome<serde_json::Value> {
    let (dir, toml) = (plan.dir.join("parts"), plan.dir.join("here.toml"));
    let osts = OSTS.to_string();
    eprintln!("   forebay bench machine");
    let mut machine = forebay.command(&["bench", "machine", "--osts", &osts]);
    output(machine.arg(&dir).args(["--bytes", plan.size("1GiB", "128MiB", "64MiB"), "--toml"]).arg(&toml))?;
    eprintln!("   forebay sim {}", toml.display());
    let said = output(forebay.command(&["sim", "--json"]).arg(&toml))?;
    serde_json::from_str(&said).map_err(|error| format!("forebay sim: {error}"))
}
