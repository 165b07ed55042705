use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use super::found::MeasuredStep;
use super::*;
use crate::analysis::{HeadScores, Score, ScoredStep};
use crate::backend::choose;
use crate::training::metrics::{Row, Split, read as read_metrics};
use crate::training::{Mode, RunInputs, RunPath, checkpoint_steps, dataset, launch_with};

/// Returns true in a process that runs only this test. Elsewhere, runs the test in such a process, because all tests of a
/// process draw weights from one generator.
fn is_alone(test: &str) -> bool {
    const ALONE: &str = "CAUSAL_ATTENTION_TEST_IS_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let name = format!("training::phases::tests::{test}");
    let mut alone = Command::new(std::env::current_exe().unwrap());
    let output = alone.args(["--exact", &name]).env(ALONE, "1").output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}");
    false
}

/// Trains a small run whose label smoothing needs exact sums.
fn trained(folder: &Path, set: &[&str]) -> (RunFolder, Config, Control) {
    let base = [
        "training.steps=12",
        "training.batch_size=4",
        "training.log_every=2",
        "training.checkpoint_every=5",
        "training.validate_every=6",
        "training.label_smoothing=0.1",
        "model.d_model=12",
        "model.heads=3",
        "model.layers=2",
        "data.train_samples=32",
        "data.valid_samples=10",
        "data.length=11",
        "analysis.sequences=7",
        "analysis.every=4",
        "analysis.circuit=false",
    ];
    let set: Vec<String> = base.iter().chain(set).map(ToString::to_string).collect();
    let config = Config::parse("", Path::new("config.toml"), &set).unwrap();
    let control = Control::unwatched(choose(None, None).unwrap());
    let run = RunFolder::at(folder.join("run"));
    let mode = Mode::New(RunPath::Folder(run.path().to_path_buf()));
    launch_with(&config, mode, &control, RunInputs::default()).unwrap();
    (run, config, control)
}

/// Returns phases between these steps, in which no curve changed.
fn phases_between(steps: &[[usize; 2]]) -> Phases {
    let phase = |&between: &[usize; 2]| Phase {
        between,
        steps: None,
        losses: Vec::new(),
        changes: vec![PhaseChange {
            curve: PhaseCurve::HeadScore { layer: 1, head: 2, score: "induction" },
            between,
            values: [0.1, 0.9],
            steps: None,
            measured: Vec::new(),
        }],
        circuits: None,
        end: None,
        sentences: Vec::new(),
    };
    Phases {
        steps: 12,
        curves: 1,
        recorded_every: 4,
        phases: steps.iter().map(phase).collect(),
        stages: Vec::new(),
        replay: None,
        sentences: Vec::new(),
    }
}

fn replayed(
    (folder, config, control): (&RunFolder, &Config, &Control),
    budget: Option<f64>,
    between: &[[usize; 2]],
) -> Result<Phases> {
    let search = PhaseSearch { folder, config, control, replays: true, budget };
    let mut summary = Summary::read(folder).unwrap();
    // Any budget suffices for a run that took no time.
    summary.work.seconds = 0.0;
    let mut phases = phases_between(between);
    let dataset = dataset_of(config, folder)?;
    replay::replay(&search, &summary, &mut phases, &dataset).map(|_| phases)
}

/// Returns the contents of all files below a folder.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = walkdir::WalkDir::new(folder).into_iter().map(|entry| entry.unwrap());
    let files = files.filter(|entry| entry.file_type().is_file() && entry.file_name() != "lock");
    files.map(|file| (file.path().display().to_string(), std::fs::read(file.path()).unwrap())).collect()
}

#[test]
fn replays_equal_the_run_to_the_bit() {
    if !is_alone("replays_equal_the_run_to_the_bit") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (run, config, control) = trained(dir.path(), &[]);
    let before = contents(run.path());
    let kept = checkpoint_steps(&run).unwrap();
    assert!(kept.contains(&10) && kept.iter().all(|&step| step > 3), "earlier ones are pruned: {kept:?}");
    let phases = replayed((&run, &config, &control), None, &[[3, 8], [9, 11]]).unwrap();
    assert!(contents(run.path()) == before, "the replay leaves the run as it was");

    let replay = phases.replay.as_ref().unwrap();
    assert_eq!((replay.from, replay.until, replay.is_complete), (0, 11, true));
    assert_eq!((replay.equal_rows, replay.equal_checkpoint), (5, Some(10)));
    let steps = |at: usize| phases.phases[at].losses.iter().map(|loss| loss.step).collect::<Vec<_>>();
    assert_eq!((steps(0), steps(1)), ((3..=8).collect(), (9..=11).collect()));
    // The run scored its heads after steps 4 and 8.
    let scored = HeadHistory::open(&run.head_scores(), usize::MAX).unwrap().all;
    let measured = &phases.phases[0].changes[0].measured;
    for step in [4, 8] {
        let recorded = scored.iter().find(|scored| scored.step == step).unwrap();
        let replayed = measured.iter().find(|measured| measured.0 == step).unwrap().1;
        assert_eq!(recorded.heads[1][2][Score::Induction], Some(replayed));
    }

    let later = replayed((&run, &config, &control), None, &[[10, 12]]).unwrap();
    let replay = later.replay.unwrap();
    assert_eq!((replay.from, replay.until, replay.equal_checkpoint), (10, 12, Some(12)));
}

#[test]
fn paused_replays_continue() {
    if !is_alone("paused_replays_continue") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (run, config, control) = trained(dir.path(), &[]);
    let between = [[1, 5], [6, 8]];
    let paused = replayed((&run, &config, &control), Some(1e-9), &between).unwrap();
    let replay = paused.replay.as_ref().unwrap();
    assert!(!replay.is_complete && replay.until < 8, "{replay:?}");
    assert!(paused.phases[1].losses.is_empty() && run.path().join(".replay").exists());
    let continued = replayed((&run, &config, &control), None, &between).unwrap();
    let at_once = replayed((&run, &config, &control), None, &between).unwrap();
    assert_eq!(continued.phases, at_once.phases);
    let counts = |phases: &Phases| phases.replay.as_ref().map(|it| (it.until, it.equal_rows, it.is_complete));
    assert_eq!(counts(&continued), counts(&at_once));
    assert!(!run.path().join(".replay").exists());
}

#[test]
fn replays_that_differ_from_the_run_are_errors() {
    if !is_alone("replays_that_differ_from_the_run_are_errors") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (run, config, control) = trained(dir.path(), &[]);
    let error =
        |config: &Config| replayed((&run, config, &control), None, &[[3, 8]]).unwrap_err().to_string();
    let changed = |set: &str| {
        let text = std::fs::read_to_string(run.config()).unwrap();
        Config::parse(&text, Path::new("config.toml"), &[set.to_string()]).unwrap()
    };
    let rate = error(&changed("training.learning_rate=0.5"));
    assert!(rate.contains("training.learning_rate") && rate.contains("restore it"), "{rate}");
    let data = error(&changed("data.train_samples=33"));
    assert!(data.contains("the data has changed"), "{data}");

    let metrics = std::fs::read_to_string(run.metrics()).unwrap();
    let row = read_metrics(&run.metrics()).unwrap().into_iter().find(|row| row.step == 4).unwrap();
    let nearest = f64::from_bits(row.loss.to_bits() + 1);
    std::fs::write(run.metrics(), metrics.replacen(&row.loss.to_string(), &nearest.to_string(), 1)).unwrap();
    let differs = error(&config);
    assert!(differs.contains("differs from the run at step 4 in its training loss"), "{differs}");
    std::fs::write(run.metrics(), metrics).unwrap();

    std::fs::remove_dir_all(run.checkpoints()).unwrap();
    std::fs::create_dir(run.checkpoints()).unwrap();
    let missing = error(&config);
    assert!(missing.contains("lacks a checkpoint") && missing.contains("--no-replay"), "{missing}");
}

#[test]
fn budgets_too_small_for_the_first_phase_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, config, control) = trained(dir.path(), &[]);
    let search =
        PhaseSearch { folder: &folder, config: &config, control: &control, replays: true, budget: Some(1.0) };
    let mut summary = Summary::read(&folder).unwrap();
    summary.work.seconds = 120.0;
    let dataset = dataset(&config).unwrap();
    let error = replay::replay(&search, &summary, &mut phases_between(&[[3, 8]]), &dataset);
    let error = error.err().unwrap();
    // 8 steps and 5 times the time of 3 steps, at 10 seconds per step.
    assert!(error.to_string().ends_with("use at least --budget 230"), "{error}");
    assert_eq!(error.exit_code(), 2);
}

/// Returns a row of a training loss.
fn row(step: usize, loss: f64) -> Row {
    Row {
        step,
        epoch: 1,
        split: Split::Train,
        loss,
        accuracy: 0.5,
        learning_rate: 0.1,
        gradient_norm: Some(1.0),
        tokens: 1,
        seconds: 1.0,
        clip_rate: Some(0.0),
        objective: None,
    }
}

/// Returns curves of 40 steps with a phase at step 20, in which the induction score of head 1.0 rises. That of head 0.0
/// drifts, and its entropy alone rises at step 30.
fn recorded() -> Vec<RecordedCurve> {
    let rows: Vec<Row> = (1..=40).map(|step| row(step, if step > 20 { 1.0 } else { 3.0 })).collect();
    let scores = |induction: f64, entropy: Option<f64>| {
        vec![HeadScores::new(|score| match score {
            Score::Induction => Some(induction),
            Score::Entropy => entropy,
            _ => None,
        })]
    };
    let step = |step: usize| ScoredStep {
        step,
        heads: vec![
            scores(step as f64 / 40.0, Some(if step > 30 { 2.0 } else { 1.0 })),
            scores(if step > 20 { 0.9 } else { 0.1 }, None),
        ],
    };
    recorded::curves(&rows, &(0..=40).step_by(4).map(step).collect::<Vec<_>>())
}

#[test]
fn changes_at_the_same_time_are_one_phase() {
    let curves = recorded();
    assert_eq!(curves.len(), 4, "the training loss, the scores of two heads, and an entropy");
    let phases = recorded::phases(&curves, 11);
    assert_eq!(phases.len(), 1, "{phases:?}");
    assert_eq!(phases[0].between, [20, 24]);
    assert_eq!(phases[0].head(), Some([1, 0]));
    assert_eq!(phases[0].changes.len(), 2);
    for (change, expected) in phases[0].changes.iter().zip([[3.0, 1.0], [0.1, 0.9]]) {
        assert!((0..2).all(|end| (change.values[end] - expected[end]).abs() < 1e-9), "{change:?}");
    }
}

#[test]
fn sentences_follow_the_numbers() {
    let curves = recorded();
    let mut phases = Phases { phases: recorded::phases(&curves, 11), ..phases_between(&[]) };
    phases.steps = 40;
    let described = |mut phases: Phases| {
        sentences::describe(&mut phases);
        phases
    };
    assert_eq!(
        described(phases.clone()).sentences,
        [
            "Phase 1 of 1: between steps 20 and 24 of 40 steps. The training loss falls from 3.00 to 1.00 nats per \
             token.",
            "The induction score of head 1.0 rises from 0.10 to 0.90 between steps 20 and 24.",
        ]
    );
    let loss = |all: f64, determined: f64| LossByTarget {
        all,
        determined: Some(determined),
        undetermined: Some(4.0),
    };
    let measured = (20..=24).map(|step| {
        let done = (step - 20) as f64 / 4.0;
        let scores = |value: f64| vec![HeadScores::new(|score| (score == Score::Induction).then_some(value))];
        let heads = vec![scores(0.5), scores(if step > 21 { 0.9 } else { 0.1 })];
        MeasuredStep { step, loss: loss(3.0 - 2.0 * done, 3.0 - 2.5 * done), heads }
    });
    located::locate(&mut phases, &measured.collect::<Vec<_>>());
    let ablated = |head: usize, all: f64| HeadAblation { layer: 1, head, loss: loss(all, all) };
    let full = loss(0.9, 0.4);
    phases.phases[0].end = Some(Confirmation { full, heads: vec![ablated(0, 2.5), ablated(1, 1.0)] });
    phases.replay =
        Some(Replayed { until: 24, is_complete: true, equal_rows: 6, seconds: 2.0, ..Replayed::default() });
    let all = described(phases);
    assert_eq!(all.phases[0].sentences, all.sentences[..3]);
    assert_eq!(
        all.sentences,
        [
            "Phase 1 of 1: steps 21 to 24 of 40 steps, half of the change by step 22. On validation sequences the loss \
             falls from 3.00 to 1.00 nats per token; on determined targets it falls from 3.00 to 0.50; on the other \
             targets it stays at 4.00.",
            "The induction score of head 1.0 rises from 0.10 to 0.90, half of it by step 22, as half of the change of the \
             loss.",
            "At the end of the run, the loss rises from 0.90 to 2.50 nats if head 1.0 is mean-ablated, 80 % of the fall of \
             2.00 nats; another head of layer 1 restores at most 5 % (head 1.1): the fall rests on this head.",
            "The run was replayed from step 0 to step 24 in 0:02: loss, accuracy and gradient norm of 6 logged steps equal \
             those in metrics.csv in all digits.",
        ]
    );
    let none = described(phases_between(&[])).sentences;
    assert!(none.len() == 1 && none[0].starts_with("No phase in 12 steps"), "{none:?}");
}
