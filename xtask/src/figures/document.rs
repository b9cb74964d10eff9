//! A page of the docs: text by people, with generated tables between markers.

use std::path::PathBuf;

use super::Outcome;

/// The page.
pub struct Document {
    path: PathBuf,
    text: String,
}

impl Document {
    /// Loads the page `name` of the project.
    pub fn load(name: &str) -> Outcome<Self> {
        let path = super::forebay::root().join(name);
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self { path, text })
    }

    /// Replaces the text between `<!-- figures: NAME -->` and `<!-- end -->`.
    pub fn set(&mut self, name: &str, tables: &str) -> Outcome {
        self.text = replace(&self.text, name, tables)?;
        Ok(())
    }

    /// The whole text.
    #[cfg(test)]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Writes the page.
    pub fn save(&self) -> Outcome {
        std::fs::write(&self.path, &self.text).map_err(|error| format!("{}: {error}", self.path.display()))
    }
}

fn replace(text: &str, name: &str, tables: &str) -> Outcome<String> {
    let marker = format!("<!-- figures: {name} -->\n");
    let (before, rest) = text.split_once(&marker).ok_or(format!("the page has no marker {marker}"))?;
    let (_, after) = rest.split_once("<!-- end -->").ok_or(format!("the marker of {name} has no end"))?;
    Ok(format!("{before}{marker}\n{}\n\n<!-- end -->{after}", tables.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_a_table_changes_only_the_text_between_its_markers() {
        let text = "a\n<!-- figures: x -->\nold\n<!-- end -->\nb\n<!-- figures: y -->\n<!-- end -->\n";
        let new = replace(text, "x", "new\n").expect("a marker");
        assert_eq!(new, text.replace("\nold\n", "\n\nnew\n\n"));
        assert!(replace(text, "z", "").is_err());
    }
}
