//! Tests of the length of trials, their rungs and the sequences of a stage.

use super::*;
use crate::config::ScheduleKind;

fn config(batch_size: usize, validate_every: usize) -> Config {
    let mut config = Config::default();
    config.training.batch_size = batch_size;
    config.training.validate_every = validate_every;
    config.training.steps = Some(4_000);
    config
}

fn rows(samples: usize) -> TrainingSet {
    TrainingSet { samples: Some(samples), is_stream: false }
}

#[test]
fn trials_get_equal_sequences_at_every_rung() {
    let base = config(32, 500);
    let batch_sizes = [16, 24, 32, 64];
    for rungs in 1..4 {
        let budget = Budget::new(&base, rows(32_768), 1_000, (rungs, 3), batch_sizes);
        for batch_size in [16, 32, 64] {
            let trial = config(batch_size, 500);
            let seen = (budget.steps(&trial) * batch_size, budget.steps_to(&trial, budget.full) * batch_size);
            assert_eq!(seen, (32_000, 128_000));
        }
        let sequences = |step: &dyn Fn(&Config) -> usize| {
            batch_sizes.map(|batch_size| step(&config(batch_size, 500)) * batch_size)
        };
        let between = sequences(&|trial| budget.steps_to(trial, budget.interval));
        assert!(between.iter().all(|&sequences| sequences == between[0]), "{between:?}");
        // One validation per 500 of 4,000 steps is eight validations; rungs can require more.
        assert!(32_000_usize.div_ceil(between[0]) >= 8, "{between:?}");
        for rung in 0..rungs - 1 {
            let reached = sequences(&|trial| budget.rung(trial, rung));
            assert!(reached.iter().all(|&sequences| sequences == reached[0]), "{rung}: {reached:?}");
        }
    }
    let by_epochs = config(32, 0);
    let budget = Budget::new(&by_epochs, rows(3_200), 1_000, (1, 3), []);
    assert_eq!(budget.steps_to(&by_epochs, budget.interval), 25);
    // The common multiple of these batch sizes is too large, so each trial comes as close as its steps allow.
    let odd = Budget::new(&base, rows(32_768), 1_000, (2, 3), [31, 37, 41, 43]);
    assert_eq!(odd.steps_to(&config(37, 500), odd.interval), (4_000.0_f64 / 37.0).round() as usize);
}

#[test]
fn rungs_align_within_one_step_across_batch_sizes() {
    for validate_every in [0, 1, 7, 500] {
        let base = config(32, validate_every);
        let budget = Budget::new(&base, rows(32_768), 1_000, (4, 3), 4..=128);
        for rung in 0..4 {
            let sequences = budget.rung(&base, rung) * 32;
            for batch_size in 4..=128 {
                let trial = config(batch_size, validate_every);
                let step = budget.rung(&trial, rung);
                let seen = budget.sequences(&trial, step);
                assert!(
                    seen.abs_diff(sequences) <= batch_size,
                    "{rung}: {seen} for {sequences} by {batch_size}"
                );
                let is_validated = step.is_multiple_of(budget.steps_to(&trial, budget.interval))
                    || budget.validate_at(&trial).contains(&step)
                    || step == budget.steps(&trial);
                assert!(is_validated, "{rung}: step {step} by {batch_size}");
            }
        }
        assert!(
            budget.validate_at(&base).is_empty(),
            "trials of the config's own batch size need no additional validations"
        );
    }
}

#[test]
fn uneven_batches_keep_the_sequence_budget() {
    let base = config(32, 10);
    let budget = Budget::new(&base, rows(65), 300, (2, 3), [16, 32, 64, 65]);
    let steps = [16, 32, 64, 1_000].map(|batch_size| budget.steps(&config(batch_size, 10)));
    assert_eq!(steps, [500, 300, 200, 100], "a hundred epochs each");
    let rung = budget.sequences_to(0);
    for batch_size in [16, 32, 48, 64, 1_000] {
        let trial = config(batch_size, 10);
        let step = budget.rung(&trial, 0);
        let seen = |step| budget.sequences(&trial, step).abs_diff(rung);
        assert!(seen(step) <= seen(step - 1) && seen(step) <= seen(step + 1), "{batch_size}: {step}");
    }
    // An epoch is a step of 48 and one of 17: 64 sequences are closer to both steps than to the first alone.
    let of = |sequences| Budget { sequences, ..budget };
    assert_eq!([1, 56, 57, 64].map(|sequences| of(sequences).steps(&config(48, 10))), [1, 1, 2, 2]);
}

#[test]
fn token_streams_and_custom_sizes_keep_the_budget() {
    // 57 windows are two steps of 48, which see 96 sequences.
    let mut base = config(48, 0);
    base.training.steps = Some(100);
    let budget = Budget::new(&base, TrainingSet { is_stream: true, ..rows(57) }, 100, (2, 3), [16, 48]);
    // Validations are at least ten steps apart.
    assert_eq!((budget.sequences, budget.full, budget.interval), (4_800, 4_800, 480));
    assert_eq!([16, 48, 96].map(|batch_size| budget.steps(&config(batch_size, 0))), [300, 100, 50]);
    base.training.steps = None;
    base.training.epochs = Some(7);
    assert_eq!(Budget::new(&base, TrainingSet { is_stream: true, ..rows(57) }, 14, (1, 3), []).full, 7 * 96);

    let mut base = config(50, 0);
    base.data.train_samples = 100;
    let budget = Budget::new(&base, TrainingSet { samples: None, is_stream: false }, 20, (1, 3), []);
    let steps = [50, 75, 100, 1_000].map(|train_samples| {
        let mut trial = config(50, 0);
        trial.data.train_samples = train_samples;
        budget.steps(&trial)
    });
    // An epoch of 75 is a step of 50 and one of 25; 13.5 epochs make about 1,000 sequences.
    assert_eq!(steps, [20, 27, 20, 20]);
}

/// Returns the warm-up and the cool-down of a config in a run of `steps` steps.
fn ramps(budget: &Budget, config: &Config, search: &str, steps: usize) -> [f64; 2] {
    let mut scaled = config.clone();
    budget.scale_ramps(&self::config(32, 500), &mut scaled, &search.parse().unwrap(), steps);
    [scaled.training.warmup, scaled.training.cooldown]
}

#[test]
fn warmup_and_logging_scale_with_trial_length() {
    let base = config(32, 500);
    let budget = Budget::new(&base, rows(32_768), 1_000, (1, 3), []);
    for (batch_size, warmup, log_every) in [(32, 50.0, 10), (16, 100.0, 20), (64, 25.0, 5)] {
        let mut trial = config(batch_size, 500);
        trial.training.warmup = 200.0;
        let (steps, full) = (budget.steps(&trial), budget.steps_to(&trial, budget.full));
        assert_eq!(ramps(&budget, &trial, "", steps)[0], warmup);
        assert_eq!(ramps(&budget, &trial, "", full)[0], 4.0 * warmup);
        assert_eq!(budget.scale_interval(&base, &trial, base.training.log_every), log_every);
        assert_eq!(budget.scale_interval(&base, &trial, 0), 0);
        trial.training.momentum_warmup = 400;
        let mut scaled = trial.clone();
        budget.scale_ramps(&base, &mut scaled, &toml::Table::new(), steps);
        assert_eq!(scaled.training.momentum_warmup, 2 * warmup as usize);
        // A searched warm-up depends on the length of the trial alone: a quarter of a full run.
        assert_eq!(ramps(&budget, &trial, "\"training.warmup\" = [200]", steps)[0], 50.0);
        trial.training.warmup = 0.05;
        assert_eq!(ramps(&budget, &trial, "", steps)[0], 0.05);
    }
    // A cool-down in steps also keeps its fraction, and ramps that fill the full run also fill a trial.
    let mut full = config(96, 500);
    full.training.schedule = ScheduleKind::Trapezoid;
    (full.training.warmup, full.training.cooldown) = (2_000.0, 2_000.0);
    let steps = budget.steps(&full);
    let [warmup, cooldown] = ramps(&budget, &full, "", steps);
    assert_eq!((steps, warmup, cooldown), (333, 167.0, 166.0));
    let mut short = config(1_024, 500);
    short.training.warmup = 1.0;
    assert_eq!(ramps(&budget, &short, "", 31)[0], 1.0, "a value below 1 would be a fraction of the run");
}

#[test]
fn rungs_are_eta_apart_at_validations() {
    let base = config(32, 70);
    let budget = Budget::new(&base, rows(4_096), 1_000, (4, 3), []);
    let every = budget.steps_to(&base, budget.interval);
    let rungs = [0, 1, 2, 3].map(|rung| budget.rung(&base, rung));
    assert!(rungs[..3].iter().all(|rung| rung % every == 0), "{rungs:?} by {every}");
    assert_eq!((rungs[1], rungs[2], rungs[3]), (3 * rungs[0], 9 * rungs[0], 1_000));
    let trials = |budget: &Budget, count: usize| vec![budget.seen(&base); count];
    assert_eq!(budget.stage_sequences(&trials(&budget, 1), 0), 32_000);
    let alone = Budget::new(&base, rows(4_096), 1_000, (1, 3), []);
    let sequences = alone.stage_sequences(&trials(&alone, 7), 0);
    assert_eq!((alone.rung(&base, 0), sequences), (1_000, 7_000 * 32));
    let two = Budget::new(&base, rows(4_096), 1_000, (2, 2), []);
    let first = two.rung(&base, 0);
    let sequences = |count, extra_survivors| two.stage_sequences(&trials(&two, count), extra_survivors);
    assert_eq!(sequences(4, 0), 32 * (4 * first + 2 * (1_000 - first)));
    assert_eq!(sequences(3, 0), 32 * (3 * first + 2 * (1_000 - first)));
    assert_eq!(sequences(4, 1), 32 * (4 * first + 3 * (1_000 - first)));
    // A study with more rungs than steps still ends.
    let short = Budget::new(&base, rows(4_096), 2, (9, 3), []);
    assert!((0..9).map(|rung| short.rung(&base, rung)).is_sorted());
}

#[test]
fn steps_larger_than_the_budget_count_in_full() {
    let base = config(8, 10);
    let budget = Budget::new(&base, rows(512), 20, (1, 3), [8, 512]);
    let seen = [8, 512].map(|batch_size| budget.seen(&config(batch_size, 10)));
    assert_eq!(seen, [[160], [512]]);
    assert_eq!(budget.stage_sequences(&seen, 0), 672);
    assert_eq!(seen.map(|seen| budget.largest_deviation(&seen)), [(0, 0.0), (0, 2.2)]);
    // Of two trials, the one with more sequences may continue.
    let raced = Budget::new(&base, rows(512), 20, (2, 2), [8, 512]);
    let seen = [8, 64].map(|batch_size| raced.seen(&config(batch_size, 10)));
    assert_eq!(seen, [[80, 160], [64, 192]]);
    assert_eq!(raced.stage_sequences(&seen, 0), 80 + 64 + 128);
    assert_eq!(raced.largest_deviation(&seen[1]), (1, 0.2));
}
