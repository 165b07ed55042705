//! The phases of a run as sentences with numbers.

use super::super::fourier::stage_sentence;
use super::found::{Confirmation, MeasuredLoss, Phase, PhaseChange, PhaseCurve, Phases, Replayed};
use crate::analysis::Score;

use crate::numbers::{clock, counted, fixed, percent, thousands};

/// The maximum number of heads that a phase names.
const MAX_HEADS: usize = 3;
/// The minimum share of the fall that a head restores if the fall rests on it.
const MIN_RESTORED: f64 = 0.5;

/// Describes each phase of a run, and the whole result.
pub fn describe(phases: &mut Phases) {
    let (count, steps) = (phases.phases.len(), counted(phases.steps, "step"));
    for (index, phase) in phases.phases.iter_mut().enumerate() {
        phase.sentences = of_phase(phase, (index + 1, count), &steps);
    }
    phases.sentences = phases.phases.iter().flat_map(|phase| &phase.sentences).cloned().collect();
    if phases.phases.is_empty() {
        phases.sentences.push(format!(
            "No phase in {steps}: none of {} recorded curves has an interval that is significantly more than twice as \
             steep as the steps right before and right after it.",
            phases.curves
        ));
    }
    phases.sentences.extend(phases.stages.iter().map(stage_sentence));
    phases.sentences.extend(phases.replay.iter().map(replay));
}

/// Describes a phase of a run of `steps`, given its number and the number of phases.
fn of_phase(phase: &Phase, (number, count): (usize, usize), steps: &str) -> Vec<String> {
    let mut sentences = vec![format!("Phase {number} of {count}: {}", span(phase, steps))];
    sentences.extend(heads(phase));
    sentences.extend(circuits(phase));
    sentences.extend(phase.end.as_ref().and_then(|end| confirmation(phase, end)));
    sentences
}

/// Describes the steps of a phase, and its change of the loss.
fn span(phase: &Phase, of: &str) -> String {
    let [from, until] = phase.between.map(|step| thousands(step as f64));
    let when = match phase.steps {
        Some([tenth, half, most]) => {
            let [tenth, half, most] = [tenth, half, most].map(|step| thousands(step as f64));
            format!("steps {tenth} to {most} of {of}, half of the change by step {half}")
        }
        None => format!("between steps {from} and {until} of {of}"),
    };
    if !phase.changes_loss() {
        return format!("{when}, without a phase of the loss.");
    }
    if let (Some(_), Some(first), Some(last)) = (phase.steps, phase.losses.first(), phase.losses.last()) {
        return format!("{when}. On validation sequences {}.", losses(first, last));
    }
    let name = match phase.changes[0].curve {
        PhaseCurve::ValidationLoss => "validation loss",
        _ => "training loss",
    };
    format!("{when}. The {name} {} nats per token.", change(phase.changes[0].values, 2))
}

/// Describes the change of the losses by kind of target.
fn losses(first: &MeasuredLoss, last: &MeasuredLoss) -> String {
    let all = format!("the loss {} nats per token", change([first.loss.all, last.loss.all], 2));
    let kinds = [
        (first.loss.determined.zip(last.loss.determined), "determined targets"),
        (first.loss.undetermined.zip(last.loss.undetermined), "the other targets"),
    ];
    let kind = |(pair, name): (Option<(f64, f64)>, &str)| {
        let (before, after) = pair?;
        Some(format!("on {name} it {}", change([before, after], 2)))
    };
    [all].into_iter().chain(kinds.into_iter().filter_map(kind)).collect::<Vec<_>>().join("; ")
}

/// Returns such as "falls from 3.91 to 1.95".
fn change(values: [f64; 2], decimals: usize) -> String {
    let [before, after] = values.map(|value| fixed(value, decimals));
    if before == after {
        return format!("stays at {after}");
    }
    let direction = if values[1] < values[0] { "falls" } else { "rises" };
    format!("{direction} from {before} to {after}")
}

/// Describes the largest change of each head.
fn heads(phase: &Phase) -> Vec<String> {
    let mut named: Vec<[usize; 2]> = Vec::new();
    let mut sentences = Vec::new();
    let mut others = 0;
    for found in &phase.changes {
        let PhaseCurve::HeadScore { layer, head, score } = found.curve else { continue };
        if named.contains(&[layer, head]) {
            continue;
        }
        named.push([layer, head]);
        if named.len() <= MAX_HEADS {
            sentences.push(head_sentence(phase, found, [layer, head], score));
        } else {
            others += 1;
        }
    }
    if others > 0 {
        sentences.push(format!("{} more change at the same time.", counted(others, "head")));
    }
    sentences
}

fn head_sentence(phase: &Phase, found: &PhaseChange, [layer, head]: [usize; 2], score: &str) -> String {
    let about = Score::ALL.map(Score::about).into_iter().find(|about| about.key == score);
    let name = about.map_or(score, |about| about.name);
    let values = change(found.values, 2);
    let Some([_, half, _]) = found.steps else {
        let [from, until] = found.between.map(|step| thousands(step as f64));
        return format!("The {name} score of head {layer}.{head} {values} between steps {from} and {until}.");
    };
    let loss = phase.steps.filter(|_| phase.changes_loss()).map(|[_, half, _]| half);
    let order = match loss.map(|loss| (loss, loss.abs_diff(half))) {
        None => String::new(),
        Some((_, 0)) => ", as half of the change of the loss".to_string(),
        Some((loss, steps)) if loss > half => format!(", {} before the loss", counted(steps, "step")),
        Some((_, steps)) => format!(", {} after the loss", counted(steps, "step")),
    };
    let half = thousands(half as f64);
    format!("The {name} score of head {layer}.{head} {values}, half of it by step {half}{order}.")
}

/// Describes the circuits of the head that changed most.
fn circuits(phase: &Phase) -> Option<String> {
    let ([layer, head], [first, last]) = (phase.head()?, phase.circuits?);
    Some(format!(
        "From step {} to {}, the norm of the QK circuit of head {layer}.{head} {}, and its effective rank {}; the norm of \
         its OV circuit {}, and its effective rank {}.",
        thousands(phase.between[0] as f64),
        thousands(phase.between[1] as f64),
        change([first.qk_norm, last.qk_norm], 1),
        change([first.qk_rank, last.qk_rank], 1),
        change([first.ov_norm, last.ov_norm], 1),
        change([first.ov_rank, last.ov_rank], 1)
    ))
}

/// Compares the effects of the heads at the end of the run with the fall of the loss.
fn confirmation(phase: &Phase, end: &Confirmation) -> Option<String> {
    let [layer, head] = phase.head()?;
    let fall = phase.fall().filter(|fall| *fall > 0.0)?;
    let rise = |of: &crate::analysis::phases::HeadAblation| of.loss.all - end.full.all;
    let own = rise(end.heads.iter().find(|it| [it.layer, it.head] == [layer, head])?);
    let others = end.heads.iter().filter(|it| it.head != head);
    let other = others.max_by(|a, b| rise(a).total_cmp(&rise(b)));
    let of_fall = |rise: f64| percent(rise / fall);
    let mut sentence = format!(
        "At the end of the run, the loss {} nats if head {layer}.{head} is mean-ablated, {} of the fall of {} nats",
        change([end.full.all, end.full.all + own], 2),
        of_fall(own),
        fixed(fall, 2)
    );
    if let Some(other) = other {
        sentence += &format!(
            "; another head of layer {layer} restores at most {} (head {layer}.{})",
            of_fall(rise(other).max(0.0)),
            other.head
        );
    }
    let is_alone = other.map_or(0.0, rise) < own / 2.0;
    sentence += match own >= MIN_RESTORED * fall {
        true if is_alone => ": the fall rests on this head.",
        true => ": the fall rests on this head, but not on it alone.",
        false => ": the fall does not rest on this head alone.",
    };
    Some(sentence)
}

fn replay(replay: &Replayed) -> String {
    let Replayed { from, until, equal_rows, .. } = replay;
    let mut sentence = format!(
        "The run was replayed from step {} to step {} in {}: loss, accuracy and gradient norm of {} equal those in \
         metrics.csv in all digits",
        thousands(*from as f64),
        thousands(*until as f64),
        clock(replay.seconds),
        counted(*equal_rows, "logged step")
    );
    if let Some(step) = replay.equal_checkpoint {
        sentence += &format!(", and the weights of step {} those of its checkpoint", thousands(step as f64));
    }
    sentence + if replay.is_complete { "." } else { "; it paused before the last phase." }
}
