//! Command lines in the documents: each names a command, and long options, that its program has.
//!
//! A command line is in backticks, or in a block of code. Not here: other names in documents (`tests/house/names.rs`).

use std::path::Path;

use forebay_tests::crates::read_files;

use super::surface::{Program, Surface};
use crate::figures::Outcome;

/// Pages beside those in docs. CHANGELOG.md speaks of earlier states.
const PAGES: [&str; 3] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"];

/// Command lines of `surface`'s program that the documents show and the program does not have.
pub fn unknown(root: &Path, surface: &Surface, program: Program) -> Outcome<Vec<String>> {
    let mut documents = read_files(root, &["docs"], "md").map_err(|error| format!("cannot read docs: {error}"))?;
    for page in PAGES {
        let text = std::fs::read_to_string(root.join(page)).map_err(|error| format!("{page}: {error}"))?;
        documents.insert(page.to_owned(), text);
    }
    let mut unknown = Vec::new();
    for (name, text) in &documents {
        let errors = lines(text, program).into_iter().filter_map(|words| surface.has(&words).err());
        unknown.extend(errors.map(|error| format!("{name} shows {error}")));
    }
    Ok(unknown)
}

/// The words behind the program's name, for each command line of a document.
fn lines(text: &str, program: Program) -> Vec<Vec<&str>> {
    let parts = text.split("\n```").enumerate();
    let shown = parts.flat_map(|(number, part)| {
        let spans = part.lines().skip(1).flat_map(|line| line.split('`').skip(1).step_by(2));
        let block = part.lines().skip(1).flat_map(|line| line.split(" #").next());
        if number % 2 == 1 { block.collect::<Vec<_>>() } else { spans.collect() }
    });
    shown.flat_map(|line| line.split(['|', '&', ';', '(', ')'])).filter_map(|line| words(line, program)).collect()
}

fn words(line: &str, program: Program) -> Option<Vec<&str>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let name = words.iter().position(|word| *word == program.name())?;
    let mut rest = &words[name + 1..];
    if rest.first() == Some(&"--") && program == Program::Xtask {
        rest = &rest[1..];
    }
    // The name alone is the program, and a word that no command can be is prose.
    let is_command = rest.first()?.starts_with(|first: char| first.is_ascii_lowercase());
    is_command.then(|| rest.to_vec())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn command_lines_are_found_in_backticks_and_in_blocks() {
        let text = "# Page\nSee `forebay df -p` or forebay itself, `forebay`.\n```sh\nforebay up D && forebay down D   # forebay no\n\
                    cargo run -p xtask -- check --print\n```\nThen `forebay sync`, and `xtask test`.\n";
        let shown = |program| lines(text, program).iter().map(|words| words.join(" ")).collect::<Vec<_>>();
        assert_eq!(shown(Program::Forebay), ["df -p", "up D", "down D", "sync"]);
        assert_eq!(shown(Program::Xtask), ["check --print", "test"]);
    }

    #[test]
    fn documents_show_only_commands_and_options_of_xtask_that_exist() {
        let tree = crate::command_tree::of(crate::Task::command());
        let surface = Surface::read(Program::Xtask, &tree).expect("a tree");
        assert_eq!(unknown(&crate::figures::forebay::root(), &surface, Program::Xtask), Ok(Vec::new()));
    }
}
