//! The stages of a run that generalises after it has memorised: memorisation, circuit formation and cleanup (Nanda et
//! al., 2023, arXiv 2301.05217, section 5.2).

use serde::{Deserialize, Serialize};

use super::ProgressMeasures;

/// The share of its fall at which a loss is taken to have begun to fall; one minus it, to have fallen.
const MARGIN: f64 = 0.1;

/// A kind of stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StageKind {
    /// The training loss falls, and the validation loss does not.
    Memorisation,
    /// The key frequencies form while the validation loss is still high.
    CircuitFormation,
    /// The validation loss falls.
    Cleanup,
}

/// A stage of training, between two copies of the weights.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TrainingStage {
    /// The kind.
    pub kind: StageKind,
    /// The measures at its start.
    pub start: ProgressMeasures,
    /// The measures at its end.
    pub end: ProgressMeasures,
}

/// Returns the stages of a run with these measures: memorisation until the training loss has lost 90 % of its first value,
/// circuit formation until the validation loss has lost 10 % of its way from its highest to its last value, and cleanup
/// until it has lost 90 %. Empty if the validation loss falls together with the training loss, or not at all.
pub fn stages(progress: &[ProgressMeasures]) -> Vec<TrainingStage> {
    let (Some(first), Some(last)) = (progress.first(), progress.last()) else { return Vec::new() };
    let has_memorised = |it: &ProgressMeasures| it.training <= MARGIN * first.training;
    let peak = (0..progress.len()).max_by(|&a, &b| progress[a].validation.total_cmp(&progress[b].validation));
    let (Some(memorised), Some(peak)) = (progress.iter().position(has_memorised), peak) else {
        return Vec::new();
    };
    let height = progress[peak].validation - last.validation;
    let fallen = |share: f64| {
        let below = |it: &ProgressMeasures| it.validation <= progress[peak].validation - share * height;
        progress.iter().skip(peak).position(below).map(|index| peak + index)
    };
    let (Some(begun), Some(done)) = (fallen(MARGIN), fallen(1.0 - MARGIN)) else { return Vec::new() };
    // A model that generalises knows the sums of most pairs, which it has not seen.
    let has_generalised = last.validation <= MARGIN * first.validation;
    if !has_generalised || begun <= memorised {
        return Vec::new();
    }
    let bounds = [0, memorised, begun, done].map(|index| progress[index]);
    let kinds = [StageKind::Memorisation, StageKind::CircuitFormation, StageKind::Cleanup];
    let stage =
        |(kind, ends): (StageKind, &[ProgressMeasures])| TrainingStage { kind, start: ends[0], end: ends[1] };
    kinds.into_iter().zip(bounds.windows(2)).map(stage).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Measures with these training and validation losses, every ten steps.
    fn measures(losses: &[[f64; 2]]) -> Vec<ProgressMeasures> {
        let measure = |(index, &[training, validation]): (usize, &[f64; 2])| {
            let step = 10 * index;
            ProgressMeasures {
                step,
                training,
                validation,
                restricted: 0.0,
                excluded: 0.0,
                squared_weights: 0.0,
            }
        };
        losses.iter().enumerate().map(measure).collect()
    }

    #[test]
    fn stages_end_at_the_margins_of_the_losses() {
        let grokked = [
            [4.0, 4.0],
            [2.0, 5.0],
            [0.3, 8.0],
            [0.0, 10.0],
            [0.0, 9.5],
            [0.0, 8.9],
            [0.0, 5.0],
            [0.0, 0.9],
            [0.0, 0.0],
        ];
        let steps: Vec<_> =
            stages(&measures(&grokked)).iter().map(|it| [it.start.step, it.end.step]).collect();
        assert_eq!(steps, [[0, 20], [20, 50], [50, 70]]);
    }

    #[test]
    fn runs_that_do_not_generalise_later_have_no_stages() {
        // Generalises at once, never, or does not even memorise.
        let at_once = [[4.0, 4.0], [2.0, 2.0], [0.1, 0.1]];
        let never = [[4.0, 4.0], [0.1, 9.0], [0.0, 8.0]];
        let nothing = [[4.0, 4.0], [3.9, 4.0]];
        for losses in [&at_once[..], &never, &nothing, &[]] {
            assert_eq!(stages(&measures(losses)), [], "{losses:?}");
        }
    }
}
