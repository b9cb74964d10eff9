//! Text plots: rates over threads, on the axes of the papers' figures.

/// The lines of a plot: one letter per curve, `x` in even steps, `y` from 0 to the maximum.
pub fn plot(title: &str, unit: &str, x: &[u32], curves: &[(&str, Vec<f64>)], height: usize) -> Vec<String> {
    const STEP: usize = 6;
    let highest = curves.iter().flat_map(|(_, values)| values).copied().fold(0.0, f64::max).max(1e-9);
    let mut grid = vec![vec![' '; x.len() * STEP]; height + 1];
    let letters = ('a'..='z').chain('A'..='Z');
    let mut lines = vec![format!("{title} ({unit})")];
    for ((_, values), letter) in curves.iter().zip(letters.clone()) {
        for (column, value) in values.iter().enumerate() {
            let row = height - ((value / highest) * height as f64).round() as usize;
            let line = &mut grid[row];
            // Curves that meet are drawn side by side.
            let place = (column * STEP..(column + 1) * STEP).find(|place| line[*place] == ' ');
            if let Some(place) = place {
                line[place] = letter;
            }
        }
    }
    for (row, line) in grid.iter().enumerate() {
        let value = highest * (height - row) as f64 / height as f64;
        let text: String = line.iter().collect();
        lines.push(format!("{value:>8.0} |{}", text.trim_end()));
    }
    lines.push(format!("{:>8} +{}", "", "-".repeat(x.len() * STEP)));
    let labels: String = x.iter().map(|x| format!("{x:<STEP$}")).collect();
    lines.push(format!("{:>8}  {}", "", labels.trim_end()));
    lines.extend(curves.iter().zip(letters).map(|((name, _), letter)| format!("{:>10} {name}", letter)));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_stands_at_the_top_and_equals_side_by_side() {
        let lines = plot("rates", "MB/s", &[1, 2], &[("one", vec![50.0, 100.0]), ("two", vec![0.0, 100.0])], 2);
        assert_eq!(lines[1], "     100 |      ab");
        assert_eq!(lines[2], "      50 |a");
        assert_eq!(lines[3], "       0 |b");
        assert_eq!(lines[6], "         a one");
    }
}
