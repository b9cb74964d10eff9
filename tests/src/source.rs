//! One Rust file as tokens: its lines, functions, types, tests and paths.
//!
//! It sees what is written: macros are not expanded, but their arguments are read like other code.
//! Not here: which files there are, and what a path refers to (see `crates`).

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, Group, Spacing, TokenStream, TokenTree};

/// What the checks and measures of the tree know of a file.
#[derive(Default)]
pub struct Source {
    /// Numbers of its lines, by kind.
    pub lines: Lines,
    /// Functions with a body, outside tests.
    pub functions: Vec<Function>,
    /// Structs with named fields, outside tests.
    pub structs: Vec<Struct>,
    /// Names of the functions marked `#[test]`.
    pub tests: Vec<String>,
    /// Paths of two and more segments, outside tests and imports.
    pub paths: Vec<Path>,
    /// Leaves of `use` declarations, outside tests.
    pub imports: Vec<Import>,
    /// Modules in files of their own.
    pub modules: Vec<ModuleFile>,
}

/// Lines that are not blank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    pub code: usize,
    pub tests: usize,
    /// Lines that are comments alone, those of tests included.
    pub comments: usize,
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    pub line: usize,
    /// Lines from the keyword `fn` to the closing brace.
    pub lines: usize,
}

/// A struct with named fields.
#[derive(Debug, PartialEq, Eq)]
pub struct Struct {
    pub name: String,
    pub fields: usize,
}

/// A path as it stands in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// A leading `super` that only leaves a module within the file is left out.
    pub segments: Vec<String>,
    pub line: usize,
}

/// One name that a `use` declaration brings into scope.
#[derive(Debug, PartialEq, Eq)]
pub struct Import {
    pub path: Path,
    /// The name in this file; `*` for all of a module.
    pub name: String,
    /// Modules outside of this one may use it.
    pub is_public: bool,
}

/// `mod name;`
#[derive(Debug, PartialEq, Eq)]
pub struct ModuleFile {
    pub name: String,
    /// Below `#[cfg(test)]`.
    pub is_test: bool,
}

impl Source {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// The text is not Rust.
    pub fn read(text: &str) -> Result<Self, String> {
        let tokens: TokenStream = text.parse().map_err(|error| format!("not Rust: {error}"))?;
        let mut walk = Walk::default();
        walk.tokens(tokens, Scope::default());
        walk.source.lines = count(text, &walk.test_lines);
        Ok(walk.source)
    }
}

impl Lines {
    /// All its code belongs to a test.
    pub fn of_test(self) -> Self {
        Self { code: 0, tests: self.tests + self.code, comments: self.comments }
    }
}

impl std::ops::AddAssign for Lines {
    fn add_assign(&mut self, more: Self) {
        self.code += more.code;
        self.tests += more.tests;
        self.comments += more.comments;
    }
}

fn count(text: &str, test_lines: &BTreeSet<usize>) -> Lines {
    let mut lines = Lines::default();
    for (index, line) in text.lines().enumerate() {
        match line.trim() {
            "" => {}
            line if line.starts_with("//") => lines.comments += 1,
            _ if test_lines.contains(&(index + 1)) => lines.tests += 1,
            _ => lines.code += 1,
        }
    }
    lines
}

/// Where the walk is.
#[derive(Clone, Copy, Default)]
struct Scope {
    in_test: bool,
    /// Modules within the file around this place.
    depth: usize,
    /// In a `use` declaration behind `pub`.
    is_public: bool,
}

#[derive(Default)]
struct Walk {
    source: Source,
    test_lines: BTreeSet<usize>,
    /// The last word was `pub`.
    was_pub: bool,
}

impl Walk {
    fn tokens(&mut self, tokens: TokenStream, scope: Scope) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            at += self.step(&tokens[at..], scope);
        }
    }

    /// Reads what `rest` begins with, and returns its number of tokens.
    fn step(&mut self, rest: &[TokenTree], scope: Scope) -> usize {
        if let Some(attribute) = attribute(rest) {
            return self.attribute(attribute, &rest[2..], scope) + 2;
        }
        match &rest[0] {
            TokenTree::Group(group) => self.tokens(group.stream(), scope),
            TokenTree::Ident(ident) => return self.ident(&ident.to_string(), rest, scope),
            _ => {}
        }
        1
    }

    /// Marks the item behind `#[cfg(test)]`, and notes the function behind `#[test]`. Returns how many tokens it read.
    fn attribute(&mut self, attribute: &Group, rest: &[TokenTree], scope: Scope) -> usize {
        match attribute.stream().to_string().replace(' ', "").as_str() {
            "cfg(test)" => {
                let end = item_end(rest);
                let last = rest[..end].last().map_or(attribute.span().end(), |token| token.span().end());
                self.test_lines.extend(attribute.span().start().line..=last.line);
                self.tokens(rest[..end].iter().cloned().collect(), Scope { in_test: true, ..scope });
                return end;
            }
            "test" => self.source.tests.extend(function_name(rest)),
            _ => {}
        }
        0
    }

    fn ident(&mut self, word: &str, rest: &[TokenTree], scope: Scope) -> usize {
        let is_public = std::mem::replace(&mut self.was_pub, word == "pub");
        match word {
            "use" if matches!(rest.get(1), Some(TokenTree::Ident(_))) => {
                let end = rest.iter().position(|token| is_punct(token, ';')).unwrap_or(rest.len());
                if !scope.in_test {
                    self.import(&rest[1..end], Vec::new(), Scope { is_public, ..scope });
                }
                return end;
            }
            "mod" => return self.module(rest, scope),
            "pub" => return if is_restriction(rest.get(1)) { 2 } else { 1 },
            "fn" if !scope.in_test => self.source.functions.extend(function(rest)),
            "struct" if !scope.in_test => self.source.structs.extend(structure(rest)),
            _ => {}
        }
        self.path(rest, scope)
    }

    fn module(&mut self, rest: &[TokenTree], scope: Scope) -> usize {
        match rest {
            [_, TokenTree::Ident(name), end, ..] if is_punct(end, ';') => {
                self.source.modules.push(ModuleFile { name: name.to_string(), is_test: scope.in_test });
                3
            }
            [_, TokenTree::Ident(_), TokenTree::Group(body), ..] => {
                self.tokens(body.stream(), Scope { depth: scope.depth + 1, ..scope });
                3
            }
            _ => 1,
        }
    }

    /// Reads `a::b::c`, and returns its number of tokens.
    fn path(&mut self, rest: &[TokenTree], scope: Scope) -> usize {
        let mut segments = vec![rest[0].to_string()];
        let mut read = 1;
        while let Some(TokenTree::Ident(next)) = behind_colons(&rest[read..]) {
            segments.push(next.to_string());
            read += 3;
        }
        if segments.len() > 1 && !scope.in_test {
            let line = rest[0].span().start().line;
            self.source.paths.push(Path { segments: outside(segments, scope.depth), line });
        }
        read
    }

    /// Reads a tree of a `use` declaration below `prefix`.
    fn import(&mut self, tree: &[TokenTree], mut prefix: Vec<String>, scope: Scope) {
        let mut rest = tree;
        while let [TokenTree::Ident(segment), after @ ..] = rest {
            prefix.push(segment.to_string());
            rest = after.get(2..).filter(|_| behind_colons(after).is_some()).unwrap_or(after);
            if rest.len() == after.len() {
                break;
            }
        }
        match rest.first() {
            Some(TokenTree::Group(list)) => {
                let list: Vec<TokenTree> = list.stream().into_iter().collect();
                for tree in list.split(|token| is_punct(token, ',')).filter(|tree| !tree.is_empty()) {
                    self.import(tree, prefix.clone(), scope);
                }
            }
            Some(star) if is_punct(star, '*') => self.imported(prefix, "*".into(), tree, scope),
            // `as name`
            Some(_) => self.imported(prefix, rest.last().map(TokenTree::to_string).unwrap_or_default(), tree, scope),
            None => {
                prefix.pop_if(|last| last == "self");
                let name = prefix.last().cloned().unwrap_or_default();
                self.imported(prefix, name, tree, scope);
            }
        }
    }

    fn imported(&mut self, segments: Vec<String>, name: String, tree: &[TokenTree], scope: Scope) {
        let line = tree[0].span().start().line;
        let path = Path { segments: outside(segments, scope.depth), line };
        self.source.imports.push(Import { path, name, is_public: scope.is_public });
    }
}

/// Leaves out the `super` of modules within the file.
fn outside(mut segments: Vec<String>, depth: usize) -> Vec<String> {
    let inner = segments.iter().take(depth).take_while(|segment| *segment == "super").count();
    segments.drain(..inner);
    segments
}

fn is_punct(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)
}

/// `pub(crate)`, `pub(in crate::ops)`
fn is_restriction(token: Option<&TokenTree>) -> bool {
    let words = ["crate", "super", "self", "in"];
    let group = token.and_then(|token| group(token, Delimiter::Parenthesis));
    let first = group.and_then(|group| group.stream().into_iter().next());
    first.is_some_and(|first| words.contains(&first.to_string().as_str()))
}

fn group(token: &TokenTree, delimiter: Delimiter) -> Option<&Group> {
    match token {
        TokenTree::Group(group) if group.delimiter() == delimiter => Some(group),
        _ => None,
    }
}

fn attribute(rest: &[TokenTree]) -> Option<&Group> {
    rest.get(1).filter(|_| is_punct(&rest[0], '#')).and_then(|token| group(token, Delimiter::Bracket))
}

/// The token behind `::`.
fn behind_colons(rest: &[TokenTree]) -> Option<&TokenTree> {
    match rest {
        [first, second, after, ..] if is_punct(first, ':') && is_punct(second, ':') => Some(after),
        _ => None,
    }
}

/// The number of tokens of the item, field or statement that `rest` begins with.
fn item_end(rest: &[TokenTree]) -> usize {
    let is_word = |token: &TokenTree, words: &[&str]| words.iter().any(|word| token.to_string() == *word);
    let keywords = ["fn", "mod", "impl", "struct", "enum", "trait", "const", "static", "type", "macro_rules"];
    let is_import = rest.iter().take(3).any(|token| is_word(token, &["use", "let"]));
    let is_item = rest.iter().take(6).any(|token| is_word(token, &keywords));
    let ends = |token: &TokenTree| {
        is_punct(token, ';')
            || (!is_import && group(token, Delimiter::Brace).is_some())
            || (!is_import && !is_item && is_punct(token, ','))
    };
    rest.iter().position(ends).map_or(rest.len(), |last| last + 1)
}

fn function_name(rest: &[TokenTree]) -> Option<String> {
    let keyword = rest.iter().position(|token| token.to_string() == "fn")?;
    rest.get(keyword + 1).map(TokenTree::to_string)
}

/// The body of what `rest` begins with, unless it ends without.
fn body(rest: &[TokenTree]) -> Option<&Group> {
    let end = rest.iter().find(|token| is_punct(token, ';') || group(token, Delimiter::Brace).is_some())?;
    group(end, Delimiter::Brace)
}

fn function(rest: &[TokenTree]) -> Option<Function> {
    let [keyword, TokenTree::Ident(name), ..] = rest else { return None };
    let line = keyword.span().start().line;
    let last = body(rest)?.span_close().end().line;
    Some(Function { name: name.to_string(), line, lines: last - line + 1 })
}

fn structure(rest: &[TokenTree]) -> Option<Struct> {
    let [_, TokenTree::Ident(name), ..] = rest else { return None };
    let fields = body(rest)?.stream().into_iter().collect::<Vec<_>>();
    let lone = |at: usize| match &fields[at] {
        TokenTree::Punct(punct) => punct.as_char() == ':' && punct.spacing() == Spacing::Alone,
        _ => false,
    };
    // `name: Type`: the second colon of `::` is alone too, but stands behind another colon.
    let is_field = |at: &usize| *at > 0 && lone(*at) && matches!(fields[at - 1], TokenTree::Ident(_));
    Some(Struct { name: name.to_string(), fields: (0..fields.len()).filter(is_field).count() })
}

/// The value that `percent` of `sorted` do not exceed; 0 if it is empty.
pub fn percentile(sorted: &[usize], percent: usize) -> usize {
    let last = sorted.len().saturating_sub(1);
    sorted.get(last * percent / 100).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Source {
        Source::read(text).expect("it is Rust")
    }

    fn shown(paths: &[Path]) -> Vec<String> {
        paths.iter().map(|path| format!("{}:{}", path.line, path.segments.join("::"))).collect()
    }

    #[test]
    fn lines_of_tests_comments_and_code_are_told_apart() {
        let text = "//! A page.\n\nfn one() {\n    // why\n    two(\"//\");\n}\n\n#[cfg(test)]\nfn help() -> Result<u8, ()> {\n    Ok(1)\n}\n\n\
                    #[cfg(test)]\nmod tests {\n    #[test]\n    fn it_is() {}\n}\nconst LAST: u8 = 1;\n";
        assert_eq!(read(text).lines, Lines { code: 4, tests: 9, comments: 2 });
    }

    #[test]
    fn a_test_import_ends_at_its_semicolon() {
        let source = read("#[cfg(test)]\nuse a::{b, c};\nuse crate::d;\n");
        assert_eq!(source.lines, Lines { code: 1, tests: 2, comments: 0 });
        assert_eq!(source.imports.len(), 1);
    }

    #[test]
    fn functions_are_measured_from_the_keyword_to_the_brace_and_those_of_tests_are_left_out() {
        let text = "trait T { fn none(&self); }\nimpl A {\n    pub async fn long(\n        &self,\n    ) {\n        let f: fn() = x;\n    }\n}\n\
                    fn short() {}\n#[cfg(test)]\nmod tests {\n    fn helper() {}\n    #[test]\n    fn it_is() {}\n}\n";
        let source = read(text);
        let function = |name: &str, line, lines| Function { name: name.into(), line, lines };
        assert_eq!(source.functions, [function("long", 3, 5), function("short", 9, 1)]);
        assert_eq!(source.tests, ["it_is"]);
    }

    #[test]
    fn fields_are_counted_whatever_their_types() {
        let text = "struct Unit;\nstruct Pair(u8, u8);\npub struct Big<T: Copy> {\n    /// a: b\n    pub(crate) map: BTreeMap<u8, std::vec::Vec<T>>,\n    run: fn(u8) -> u8,\n}\n";
        assert_eq!(read(text).structs, [Struct { name: "Big".into(), fields: 2 }]);
    }

    #[test]
    fn paths_are_found_in_macros_and_not_in_restrictions_comments_and_tests() {
        let text = "// crate::no::One\npub(in crate::ops) fn f() {\n    matches!(x, crate::a::B { .. });\n    super::c::<D>(crate::e!());\n}\n\
                    #[cfg(test)]\nmod tests {\n    use super::*;\n    fn g() { crate::no::two() }\n}\n";
        let source = read(text);
        assert_eq!(shown(&source.paths), ["3:crate::a::B", "4:super::c", "4:crate::e"]);
        assert!(source.imports.is_empty());
    }

    #[test]
    fn imports_are_flattened_with_their_names() {
        let source = read(
            "pub use crate::{a::{self, B as C}, d};\nuse super::*;\nmod inner { use super::super::E; use super::F; }\n",
        );
        let names: Vec<&str> = source.imports.iter().map(|import| import.name.as_str()).collect();
        assert_eq!(names, ["a", "C", "d", "*", "E", "F"]);
        assert!(source.imports[..3].iter().all(|import| import.is_public) && !source.imports[3].is_public);
        let paths: Vec<Path> = source.imports.into_iter().map(|import| import.path).collect();
        assert_eq!(shown(&paths), ["1:crate::a", "1:crate::a::B", "1:crate::d", "2:super", "3:super::E", "3:F"]);
    }

    #[test]
    fn modules_in_files_are_known_with_whether_they_are_tests() {
        let source = read("pub mod a;\n#[cfg(test)]\nmod b;\nmod c { fn f() {} }\n");
        let module = |name: &str, is_test| ModuleFile { name: name.into(), is_test };
        assert_eq!(source.modules, [module("a", false), module("b", true)]);
    }

    #[test]
    fn percentiles_of_nothing_are_nothing() {
        assert_eq!([0, 50, 100].map(|percent| percentile(&[1, 2, 3, 4, 5], percent)), [1, 3, 5]);
        assert_eq!(percentile(&[], 50), 0);
    }
}
