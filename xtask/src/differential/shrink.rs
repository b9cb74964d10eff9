//! Leaves out steps of a failing sequence as long as it fails in the same way.

use super::{Outcome, call::Step, stage::Failure};

/// What makes two failures the same: the kind of call, and what differs.
fn shape(failure: &Failure) -> (String, Vec<&'static str>) {
    (failure.step.call.kind(), failure.differs.iter().map(|differ| differ.what).collect())
}

/// The fewest steps found that fail like `failure`. `play` plays some steps from the beginning.
pub fn shrink(
    steps: &[Step],
    failure: &Failure,
    mut play: impl FnMut(&[Step]) -> Outcome<Option<Failure>>,
) -> Outcome<Vec<Step>> {
    let mut kept: Vec<Step> = steps.iter().filter(|step| step.number <= failure.step.number).cloned().collect();
    let mut size = kept.len().div_ceil(2);
    while size > 0 {
        let mut from = 0;
        while from < kept.len() {
            let until = (from + size).min(kept.len());
            let fewer = [&kept[..from], &kept[until..]].concat();
            match play(&fewer)? {
                Some(other) if shape(&other) == shape(failure) => kept = fewer,
                _ => from = until,
            }
        }
        size = if size == 1 { 0 } else { size.div_ceil(2) };
    }
    Ok(kept)
}
