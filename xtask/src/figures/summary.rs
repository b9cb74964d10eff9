//! Medians and quartiles in the format of the tables.

/// The values of the rounds.
#[derive(Clone, Debug, Default)]
pub struct Values(pub Vec<f64>);

impl Values {
    /// Linear between the nearest values, as in `forebay bench`.
    fn quantile(&self, fraction: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
        let at = fraction * last as f64;
        let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
        below + (above - below) * at.fract()
    }

    /// The median.
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// `812 (790-840)`: median and quartiles.
    pub fn show(&self, digits: usize) -> String {
        let [q1, median, q3] = [0.25, 0.5, 0.75].map(|fraction| self.quantile(fraction));
        if self.0.len() == 1 {
            return format!("{median:.digits$}");
        }
        format!("**{median:.digits$}** ({q1:.digits$} to {q3:.digits$})")
    }

    /// `self / other` in percent, round by round, so that values of the same round are compared.
    pub fn percent_of(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(ours, theirs)| 100.0 * ours / theirs).collect())
    }
}

/// A Markdown table.
pub fn table(heads: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let heads: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
    let rule: Vec<String> = (0..heads.len()).map(|i| if i == 0 { "---".into() } else { "---:".into() }).collect();
    let rows: String = rows.iter().map(|row| line(row)).collect();
    line(&heads) + &line(&rule) + &rows
}

/// Commands as a reader would type them.
pub fn commands(lines: &[String]) -> String {
    format!("```sh\n{}\n```\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_have_their_quartiles_beside_them() {
        assert_eq!(Values(vec![3.0, 1.0, 2.0]).show(1), "**2.0** (1.5 to 2.5)");
        assert_eq!(Values(vec![7.0]).show(0), "7");
    }

    #[test]
    fn percents_are_of_the_same_round() {
        assert_eq!(Values(vec![1.0, 4.0]).percent_of(&Values(vec![2.0, 2.0])).0, [50.0, 200.0]);
    }
}
