//! The command line interface: every subcommand and option, hidden ones included.
//!
//! Both programs of the project print it with their hidden command `command-tree`. `xtask every-command` compares it
//! with what it runs. This file uses clap and JSON alone, because `xtask` includes it too.

use clap::{Arg, Command};
use serde_json::{Value, json};

/// Name of the hidden command that prints it.
pub const COMMAND: &str = "command-tree";

/// One entry for each command that can be run, with its name.
pub fn of(mut command: Command) -> Value {
    command.build();
    let mut found = Vec::new();
    collect(&command, &mut Vec::new(), &mut found);
    Value::Array(found)
}

fn collect(command: &Command, path: &mut Vec<String>, found: &mut Vec<Value>) {
    // `help` is clap's own.
    for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
        path.push(inner.get_name().to_owned());
        collect(inner, path, found);
        path.pop();
    }
    if !command.is_subcommand_required_set() {
        let (options, words): (Vec<&Arg>, Vec<&Arg>) = command.get_arguments().partition(|one| !one.is_positional());
        let options: Vec<Value> = options.into_iter().map(option).collect();
        let words: Vec<Value> = words.into_iter().map(|word| json!(word.get_id().as_str())).collect();
        found
            .push(json!({ "path": path.clone(), "hidden": command.is_hide_set(), "options": options, "words": words }));
    }
}

/// The option's names, the one that help shows first; its aliases; whether it takes a value; the possible values.
fn option(option: &Arg) -> Value {
    let long = |name: &str| format!("--{name}");
    let short = |name: char| format!("-{name}");
    let names: Vec<String> = option.get_long().map(long).into_iter().chain(option.get_short().map(short)).collect();
    let aliases: Vec<String> = option
        .get_all_aliases()
        .into_iter()
        .flatten()
        .map(long)
        .chain(option.get_all_short_aliases().into_iter().flatten().map(short))
        .collect();
    let values: Vec<String> = match option.get_action().takes_values() {
        true => option.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect(),
        false => Vec::new(),
    };
    json!({
        "names": names, "aliases": aliases, "values": values,
        "takes_value": option.get_action().takes_values() && !option.is_require_equals_set(),
    })
}

#[cfg(test)]
mod tests {
    use clap::ArgAction;

    use super::*;

    #[test]
    fn hidden_commands_options_aliases_and_values_are_told() {
        let run = Command::new("run")
            .hide(true)
            .arg(Arg::new("way").long("way").short('w').alias("how").value_parser(["dry", "wet"]))
            .arg(Arg::new("secret").long("secret").hide(true).action(ArgAction::SetTrue))
            .arg(Arg::new("dir"));
        let tree = of(Command::new("program").subcommand_required(true).subcommand(run));
        let run = &tree[0];
        assert_eq!((&run["path"], &run["hidden"], &run["words"]), (&json!(["run"]), &json!(true), &json!(["dir"])));
        let way = &run["options"][0];
        assert_eq!((&way["names"], &way["aliases"]), (&json!(["--way", "-w"]), &json!(["--how"])));
        assert_eq!((&way["values"], &way["takes_value"]), (&json!(["dry", "wet"]), &json!(true)));
        assert_eq!(run["options"][1]["names"], json!(["--secret"]));
        assert_eq!(run["options"][1]["takes_value"], json!(false));
    }
}
