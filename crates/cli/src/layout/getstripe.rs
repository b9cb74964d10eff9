//! `forebay getstripe`: where files lie, as `lfs getstripe` shows it.

use std::{
    fmt::Write,
    path::{Path, PathBuf},
};

use clap::Args;
use forebay_command::error::{CliResult, Doing};
use serde_json::Value;

use super::{
    deep::{self, Place},
    layout_of_place, plain,
};

/// Whose layout to show.
#[derive(Debug, Args)]
pub struct GetstripeArgs {
    /// Only the stripe count (of a composite layout: of its last component that has OSTs)
    #[arg(short = 'c', long = "stripe-count")]
    count: bool,
    /// Only the stripe size
    #[arg(short = 'S', long = "stripe-size")]
    size: bool,
    /// Only the OST of the first stripe
    #[arg(short = 'i', long = "stripe-index", alias = "stripe-offset")]
    index: bool,
    /// Only the pool
    #[arg(short = 'p', long)]
    pool: bool,
    /// Only the pattern
    #[arg(short = 'L', long)]
    layout: bool,
    /// Only the generation of the layout
    #[arg(short = 'g', long)]
    generation: bool,
    /// Only the number of components
    #[arg(long = "component-count")]
    component_count: bool,
    /// Only the index of its MDT (there is one)
    #[arg(short = 'm', long = "mdt-index", alias = "mdt")]
    mdt: bool,
    /// Only the FID
    #[arg(short = 'F', long)]
    fid: bool,
    /// Only the ID of each component, or with =ID that component
    #[arg(short = 'I', long = "component-id", num_args = 0..=1, require_equals = true, value_name = "ID")]
    component_id: Option<Option<u64>>,
    /// Only components that begin here
    #[arg(long = "component-start", value_parser = parse_end, value_name = "START")]
    component_start: Option<u64>,
    /// Only files that have objects on one of these OSTs
    #[arg(short = 'O', long = "ost", alias = "obd", value_delimiter = ',', value_name = "OST[,OST]")]
    on: Vec<u64>,
    /// Only components that end here
    #[arg(short = 'E', long = "component-end", value_parser = parse_end, allow_negative_numbers = true, value_name = "END")]
    component_end: Option<u64>,
    /// A directory itself, not the files in it
    #[arg(short = 'd', long)]
    directory: bool,
    /// All files below directories
    #[arg(short = 'r', long)]
    recursive: bool,
    /// Without the objects
    #[arg(short = 'q', long)]
    quiet: bool,
    /// As it is (this is how it is shown anyway)
    #[arg(short = 'v', long)]
    verbose: bool,
    /// Print YAML: a list, a line per file
    #[arg(short = 'y', long)]
    yaml: bool,
    /// Print JSON, a line per file
    #[arg(long)]
    json: bool,
    /// Files and directories
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

fn parse_end(text: &str) -> Result<u64, String> {
    if text == "-1" || text.eq_ignore_ascii_case("eof") {
        Ok(u64::MAX)
    } else {
        forebay_command::units::parse_size(text)
    }
}

/// Shows the layouts.
pub fn run(args: &GetstripeArgs) -> CliResult {
    for path in &args.paths {
        let place = Place::new(path);
        show(&place, args)?;
        if path.is_dir() && !args.directory {
            deep::walk(entries(&place)?, |place, _| show_entry(place, args))?;
        }
    }
    Ok(())
}

fn entries(dir: &Place) -> CliResult<Vec<Place>> {
    let all = dir.entries().and_then(|(entries, failed)| failed.map_or(Ok(entries), Err));
    all.doing(|| format!("cannot list {}", dir.path.display()))
}

/// Shows an entry. Returns its children if they are to be shown too.
fn show_entry(place: &Place, args: &GetstripeArgs) -> CliResult<Vec<Place>> {
    let shown = try_show_entry(place, args);
    // A file that was removed meanwhile is not an error.
    if place.at.symlink_metadata().is_ok() { shown } else { Ok(Vec::new()) }
}

fn try_show_entry(place: &Place, args: &GetstripeArgs) -> CliResult<Vec<Place>> {
    let kind = place.at.symlink_metadata().doing(|| format!("cannot look at {}", place.path.display()))?.file_type();
    let enters = args.recursive && kind.is_dir();
    if kind.is_file() || enters {
        show(place, args)?;
    }
    if enters { entries(place) } else { Ok(Vec::new()) }
}

fn show(place: &Place, args: &GetstripeArgs) -> CliResult {
    let (path, mut layout) = (&place.path, layout_of_place(place)?);
    number_components(&mut layout);
    if !args.on.is_empty() && !lies_on(&layout, &args.on) {
        return Ok(());
    }
    if args.json || args.yaml {
        layout["path"] = path.display().to_string().into();
        // JSON is valid YAML.
        println!("{}{layout}", if args.yaml { "- " } else { "" });
        return Ok(());
    }
    args.keep_components(&mut layout);
    fill_in_defaults(&mut layout);
    match args.fields(&layout) {
        fields if fields.is_empty() => println!("{}", describe(path, &layout, args)),
        fields => println!("{}", fields.join(" ")),
    }
    Ok(())
}

/// Numbers the components: their numbers are their IDs, also when others are left out.
fn number_components(layout: &mut Value) {
    for (id, part) in (1_u64..).zip(layout["components"].as_array_mut().into_iter().flatten()) {
        part["id"] = id.into();
    }
}

/// Fills in values that a directory leaves open (0) with the server's defaults for new files, which are fixed.
fn fill_in_defaults(layout: &mut Value) {
    let defaults = [("stripe_count", 1), ("stripe_size", forebay_mds::limits::STRIPE_BYTES)];
    let fill = |part: &mut Value| {
        for (key, default) in defaults {
            if part[key] == 0 {
                part[key] = default.into();
            }
        }
    };
    layout["components"].as_array_mut().into_iter().flatten().for_each(fill);
    fill(layout);
}

/// True if any component has an object on one of these OSTs.
fn lies_on(layout: &Value, wanted: &[u64]) -> bool {
    layout["components"].as_array().into_iter().flatten().flat_map(osts).any(|ost| wanted.contains(&ost))
}

impl GetstripeArgs {
    /// Drops the components that were not requested.
    fn keep_components(&self, layout: &mut Value) {
        let wanted = |part: &Value| {
            let (start, end) = (part["start"].as_u64().unwrap_or(0), part["end"].as_u64().unwrap_or(u64::MAX));
            self.component_start.is_none_or(|wanted| wanted == start)
                && self.component_end.is_none_or(|wanted| wanted == end)
                && self.component_id.flatten().is_none_or(|wanted| part["id"] == wanted)
        };
        if let Some(parts) = layout["components"].as_array_mut() {
            parts.retain(wanted);
        }
    }

    /// The single values that were requested, if any.
    fn fields(&self, layout: &Value) -> Vec<String> {
        // As in lfs, the last component that has OSTs represents a composite layout.
        let parts = layout["components"].as_array().map_or(&[][..], Vec::as_slice);
        let laid = parts.iter().rev().find(|part| part["osts"].as_array().is_some_and(|osts| !osts.is_empty()));
        let one = laid.or(parts.last()).unwrap_or(layout);
        let of_one = |wanted: bool, key: &str| wanted.then(|| plain(&one[key]));
        let ids = || parts.iter().map(|part| plain(&part["id"])).collect::<Vec<_>>().join(" ");
        let generation = || layout["generation"].as_u64().unwrap_or(0).to_string();
        let fields = [
            of_one(self.count, "stripe_count"),
            of_one(self.size, "stripe_size"),
            of_one(self.index, "stripe_index"),
            of_one(self.pool, "pool"),
            self.layout.then(|| "raid0".into()),
            self.generation.then(generation),
            self.component_count.then(|| parts.len().max(1).to_string()),
            matches!(self.component_id, Some(None)).then(ids),
            self.mdt.then(|| "0".into()),
            self.fid.then(|| plain(&layout["fid"])),
        ];
        fields.into_iter().flatten().collect()
    }
}

/// The layout in the form of `lfs getstripe`.
fn describe(path: &Path, layout: &Value, args: &GetstripeArgs) -> String {
    let parts = layout["components"].as_array().map_or(&[][..], Vec::as_slice);
    let is_file = layout.get("osts").is_some();
    let mut out = format!("{}\n", path.display());
    if parts.is_empty() && !is_file {
        let (count, size) = (plain(&layout["stripe_count"]), plain(&layout["stripe_size"]));
        let index = plain(&layout["stripe_index"]);
        let _ = write!(out, "stripe_count:  {count} stripe_size:   {size} pattern:       raid0 stripe_offset: {index}");
        if let Some(pool) = layout["pool"].as_str().filter(|pool| !pool.is_empty()) {
            let _ = write!(out, " pool:          {pool}");
        }
        return out + "\n";
    }
    let fid = plain(&layout["fid"]);
    let generation = plain(&layout["generation"]);
    if let ([part], true) = (parts, is_file) {
        describe_part(&mut out, "", part, &generation);
        if !args.quiet {
            out += "\tobdidx\t\tobjid\n";
            for ost in osts(part) {
                let _ = writeln!(out, "\t{ost:>6}\t\t{fid}");
            }
        }
        return out;
    }
    if is_file {
        let _ = writeln!(out, "  lcm_layout_gen:    {generation}");
    }
    let _ = writeln!(out, "  lcm_mirror_count:  1\n  lcm_entry_count:   {}", parts.len());
    for part in parts {
        let laid = osts(part).next().is_some();
        let end = part["end"].as_u64().map_or("EOF".into(), |end| end.to_string());
        let _ = writeln!(out, "    lcme_id:             {}", plain(&part["id"]));
        let _ = writeln!(out, "    lcme_flags:          {}", if laid { "init" } else { "0" });
        let _ = writeln!(out, "    lcme_extent.e_start: {}", plain(&part["start"]));
        let _ = writeln!(out, "    lcme_extent.e_end:   {end}");
        describe_part(&mut out, "      ", part, &generation);
        if laid && !args.quiet {
            out += "      lmm_objects:\n";
            for (stripe, ost) in osts(part).enumerate() {
                let _ = writeln!(out, "      - {stripe}: {{ l_ost_idx: {ost}, l_fid: {fid} }}");
            }
        }
        out += "\n";
    }
    out.pop();
    out
}

fn osts(part: &Value) -> impl Iterator<Item = u64> {
    part["osts"].as_array().into_iter().flatten().filter_map(Value::as_u64)
}

fn describe_part(out: &mut String, indent: &str, part: &Value, generation: &str) {
    let field = |key: &str| plain(&part[key]);
    let _ = writeln!(out, "{indent}lmm_stripe_count:  {}", field("stripe_count"));
    let _ = writeln!(out, "{indent}lmm_stripe_size:   {}", field("stripe_size"));
    let _ = writeln!(out, "{indent}lmm_pattern:       raid0");
    if indent.is_empty() {
        let _ = writeln!(out, "lmm_layout_gen:    {generation}");
    }
    let _ = writeln!(out, "{indent}lmm_stripe_offset: {}", field("stripe_index"));
    if part["pool"].as_str().is_some_and(|pool| !pool.is_empty()) {
        let _ = writeln!(out, "{indent}lmm_pool:          {}", field("pool"));
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        get: GetstripeArgs,
    }

    fn args(line: &str) -> GetstripeArgs {
        Line::try_parse_from(["getstripe", "f"].into_iter().chain(line.split_whitespace())).expect(line).get
    }

    fn file() -> Value {
        let mut file = json!({"generation": 2, "osts": [3, 0], "fid": "[0x0:0x1]", "components": [
            {"start": 0, "end": 1048576, "stripe_count": 2, "stripe_size": 65536, "stripe_index": 3, "pool": "", "osts": [3, 0]},
            {"start": 1048576, "end": -1, "stripe_count": -1, "stripe_size": 65536, "stripe_index": -1, "pool": "fast", "osts": []},
        ]});
        number_components(&mut file);
        file
    }

    #[test]
    fn plain_files_and_directories_are_shown_as_lfs_shows_them() {
        let mut file = file();
        file["components"].as_array_mut().unwrap().pop();
        let shown = describe(Path::new("f"), &file, &args(""));
        assert!(shown.contains("lmm_stripe_count:  2") && shown.contains("lmm_stripe_offset: 3"), "{shown}");
        assert!(shown.contains("\t     0\t\t[0x0:0x1]"), "{shown}");
        let mut dir =
            json!({"stripe_count": 4, "stripe_size": 0, "stripe_index": -1, "pool": "fast", "components": []});
        fill_in_defaults(&mut dir);
        let shown = describe(Path::new("d"), &dir, &args(""));
        assert!(
            shown.contains(
                "stripe_count:  4 stripe_size:   1048576 pattern:       raid0 stripe_offset: -1 pool:          fast"
            ),
            "{shown}"
        );
    }

    #[test]
    fn composite_layouts_are_shown_component_by_component() {
        let shown = describe(Path::new("f"), &file(), &args(""));
        for line in [
            "  lcm_entry_count:   2\n",
            "    lcme_flags:          init\n",
            "    lcme_extent.e_end:   EOF\n",
            "      - 1: { l_ost_idx: 0, l_fid: [0x0:0x1] }\n",
            "      lmm_pool:          fast\n",
        ] {
            assert!(shown.contains(line), "{shown}");
        }
    }

    #[test]
    fn single_values_are_for_scripts() {
        assert_eq!(args("-c").fields(&file()), ["2"]);
        assert_eq!(args("-i -S --component-count").fields(&file()), ["65536", "3", "2"]);
        let mut dir = json!({"stripe_count": 0, "stripe_size": 0, "stripe_index": -1, "pool": "", "components": [
            {"start": 0, "end": -1, "stripe_count": 0, "stripe_size": 0, "stripe_index": -1, "pool": ""}]});
        fill_in_defaults(&mut dir);
        assert_eq!(args("-c -S -i").fields(&dir), ["1", "1048576", "-1"], "what files in it get");
        assert_eq!(args("-g -L").fields(&file()), ["raid0", "2"]);
        assert!(args("").fields(&file()).is_empty());
        assert_eq!(args("-I -F").fields(&file()), ["1 2", "[0x0:0x1]"]);
        assert_eq!(args("-m -c").fields(&file()), ["2", "0"]);
        assert!(lies_on(&file(), &[7, 0]) && !lies_on(&file(), &[1, 2]));
    }

    #[test]
    fn components_are_picked_by_place_and_number() {
        for (line, ids) in [
            ("-I=2", vec![2]),
            ("-E 1M", vec![1]),
            ("-E eof", vec![2]),
            ("--component-start 1M", vec![2]),
            ("--component-start 0 -E -1", vec![]),
            ("-I", vec![1, 2]),
        ] {
            let mut file = file();
            args(line).keep_components(&mut file);
            let parts = file["components"].as_array().expect("they are there");
            assert_eq!(parts.iter().filter_map(|part| part["id"].as_u64()).collect::<Vec<_>>(), ids, "{line}");
        }
    }
}
