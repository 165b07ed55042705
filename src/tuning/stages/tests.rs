//! Tests of studies with simulated losses: which trials continue, and that no trial is due twice.

use std::{collections::BTreeMap, path::Path};

use super::*;

/// A study simulated with losses that are a function of the settings.
struct Played {
    /// The waves of trials that were due together.
    waves: Vec<Vec<usize>>,
    trials: Vec<Proposed>,
}

fn stages(text: &str, steps: usize) -> Stages {
    let mut config = Config::parse(text, Path::new("study.toml"), &["run.seed=5".into()]).unwrap();
    let tune = config.tune.take().unwrap_or_default();
    Stages::new(&tune, &config, steps).unwrap()
}

/// Simulates a study to its end.
fn play(stages: &Stages, loss: impl Fn(&Setting, usize) -> f64) -> Played {
    let mut known = BTreeMap::new();
    let mut waves = Vec::new();
    loop {
        let agenda = stages.agenda(|trial, rung| known.get(&(trial, rung)).copied());
        if agenda.due.is_empty() {
            return Played { waves, trials: agenda.trials };
        }
        for &trial in &agenda.due {
            let Proposed { setting, rung, .. } = &agenda.trials[trial];
            let before = known.insert((trial, *rung), loss(setting, *rung));
            assert_eq!(before, None, "no trial is due twice at a rung");
        }
        waves.push(agenda.due);
    }
}

const SPACE: &str = "[tune]\ntrials = 27\n[tune.search]\n\
                     \"training.learning_rate\" = { min = 1e-4, max = 1e-2, scale = \"log\" }\n";

/// Returns a loss with its minimum at a rate of 1e-3, the same at every rung.
fn bowl(setting: &Setting, _: usize) -> f64 {
    let rate = setting["training.learning_rate"].as_float().unwrap();
    (rate / 1e-3).ln().powi(2)
}

#[test]
fn halving_keeps_a_third_and_finds_the_best() {
    let played = play(&stages(SPACE, 1_000), bowl);
    assert_eq!(played.waves.iter().map(Vec::len).collect::<Vec<_>>(), [27, 9, 3, 1]);
    let loss = |trial: usize| bowl(&played.trials[trial].setting, 0);
    let winner = played.waves[3][0];
    assert!((0..27).all(|trial| loss(trial) >= loss(winner)));
}

#[test]
fn short_trials_race_in_fewer_rungs() {
    let rungs = |steps| {
        let stages = stages(SPACE, steps);
        (stages.rungs, stages.full_rungs)
    };
    assert_eq!(rungs(100), (3, Some(4)), "11 steps to the first rung; 3 would be too few");
    assert_eq!([rungs(29), rungs(269), rungs(270)], [(1, Some(4)), (3, Some(4)), (4, None)]);
    let one_rung = SPACE.replace("[tune]\n", "[tune]\nrungs = 1\n");
    assert_eq!(stages(&one_rung, 29).full_rungs, None, "the config sets one rung");
    assert_eq!([1, 2, 3, 4, 9, 10].map(|trials| rungs_to_one(trials, 3)), [1, 2, 2, 3, 3, 4]);
}

#[test]
fn diverged_trials_are_never_promoted() {
    let played = play(&stages(SPACE, 1_000), |setting, rung| match bowl(setting, rung) {
        loss if loss > 1.0 => f64::INFINITY,
        loss => loss,
    });
    for &trial in played.waves[1..].iter().flatten() {
        assert!(bowl(&played.trials[trial].setting, 0) <= 1.0);
    }
    let played = play(&stages(SPACE, 1_000), |_, _| f64::INFINITY);
    assert_eq!(played.waves.len(), 1);
    let played = play(&stages("", 1_000), |_, _| f64::INFINITY);
    assert_eq!(played.waves.len(), 4, "each stage of the recipe is tried around the config's own values");
}

#[test]
fn known_results_are_never_due_again() {
    let stages = stages(SPACE, 1_000);
    let complete = play(&stages, bowl);
    // Every other trial of the second wave is known, as if the study had been killed during that wave.
    let known = |trial: usize, rung| rung == 0 || rung == 1 && trial.is_multiple_of(2);
    let loss = |trial: usize, rung| bowl(&complete.trials[trial].setting, rung);
    let agenda = stages.agenda(|trial, rung| known(trial, rung).then(|| loss(trial, rung)));
    let rest = complete.waves[1].iter().copied().filter(|&trial| !known(trial, 1)).collect::<Vec<_>>();
    let settings = |trials: Vec<Proposed>| trials.into_iter().map(|trial| trial.setting).collect::<Vec<_>>();
    assert_eq!((agenda.due, settings(agenda.trials)), (rest, settings(complete.trials)));
}

#[test]
fn beaten_trials_stop_racing_at_once() {
    let stages = self::stages(SPACE, 1_000);
    let complete = play(&stages, bowl);
    let loss = |trial: usize, rung| bowl(&complete.trials[trial].setting, rung);
    let racing = |agenda: &Agenda| {
        (0..agenda.trials.len()).filter(|&trial| agenda.trials[trial].is_racing).collect::<Vec<_>>()
    };
    // As if the study had been killed during the third wave.
    let known = |trial, rung| rung < 2 || (trial, rung) == (complete.waves[2][0], 2);
    let agenda = stages.agenda(|trial, rung| known(trial, rung).then(|| loss(trial, rung)));
    assert_eq!(racing(&agenda), complete.waves[2], "one of them exists and can still be resumed");
    for trial in 0..27 {
        let furthest = (0..3).rev().find(|&rung| complete.waves[rung].contains(&trial));
        assert_eq!(Some(agenda.trials[trial].rung), furthest, "{trial}");
    }
    assert_eq!(
        racing(&stages.agenda(|trial, rung| Some(loss(trial, rung)))),
        [0; 0],
        "the study is complete"
    );

    // In the recipe the current best continues in every stage; trials beaten in an earlier stage do not.
    let recipe = self::stages("", 1_000);
    let best_first = |trial: usize, _| (trial < 3).then(|| f64::from(u8::from(trial > 0)));
    let agenda = recipe.agenda(best_first);
    assert_eq!(racing(&agenda), [0, 3, 4, 5]);
    assert_eq!(agenda.due, [3, 4, 5]);
    assert!(agenda.due.iter().all(|&trial| agenda.trials[trial].rung == 0));
}

#[test]
fn recipe_finds_the_best_without_repeating_settings() {
    let loss = |setting: &Setting, _: usize| {
        let number = |key: &str| {
            let value = &setting[key];
            value.as_float().or(value.as_integer().map(|integer| integer as f64)).unwrap()
        };
        (number("training.batch_size") - 16.0).abs() / 16.0
            + (number("training.learning_rate") / 5e-4).ln().abs()
            + (number("model.d_model") - 128.0).abs() / 64.0
            + (number("model.heads") - 8.0).abs() / 8.0
            + (number("model.dropout") - 0.1).abs()
    };
    let played = play(&stages("", 1_000), loss);
    let best = played.trials.iter().min_by(|a, b| loss(&a.setting, 0).total_cmp(&loss(&b.setting, 0)));
    let best = &best.unwrap().setting;
    let expected: toml::Table = "\"training.batch_size\" = 16\n\"training.learning_rate\" = 5e-4\n\
                                 \"model.d_model\" = 128\n\"model.heads\" = 8\n\"model.dropout\" = 0.1"
        .parse()
        .unwrap();
    assert_eq!(best.clone().into_iter().collect::<toml::Table>(), expected);
    let names = played.trials.iter().filter_map(|trial| trial.stage).collect::<Vec<_>>();
    let mut order = names.clone();
    order.dedup();
    assert_eq!(order, ["batch size", "learning rate", "heads and width", "dropout"]);
    assert_eq!(played.trials.len(), 3 + 3 + 8 + 3, "the best trial is compared, not repeated");
    assert_eq!(stages("", 1_000).new_trials().iter().sum::<usize>(), played.trials.len(), "as announced");
}

#[test]
fn recipe_never_drops_a_slow_starting_best() {
    // The config's own values have the highest loss at first and the lowest at the end.
    let stages = stages("", 1_000);
    let own = stages.settings()[0].clone();
    let loss = |setting: &Setting, rung: usize| {
        let values = setting.values().map(|value| value.to_string()).collect::<String>();
        let other = 2.0 + values.bytes().map(f64::from).sum::<f64>() / 1e5;
        match (*setting == own, rung + 1 == 2) {
            (true, false) => 9.0,
            (true, true) => 1.0,
            (false, _) => other,
        }
    };
    let played = play(&stages, loss);
    let ended = |stage: usize| played.waves[2 * stage + 1].clone();
    assert_eq!(ended(0).len(), 3, "two of three trials, and the config's own values");
    assert!(ended(0).contains(&0) && played.trials[0].setting == own);
    assert!((1..4).all(|stage| !ended(stage).contains(&0)), "its result is known from the first stage");
    // Every stage starts from these values, and no stage exceeds its announced size.
    let changes = |setting: &Setting| setting.iter().filter(|(key, value)| own[*key] != **value).count();
    assert!(
        played.trials.iter().all(|trial| changes(&trial.setting) <= 2),
        "only heads and width change together"
    );
    let (new_trials, extra_survivors) = (stages.new_trials(), stages.extra_survivors());
    for (stage, trials) in new_trials.into_iter().enumerate() {
        let (begun, ended) = (played.waves[2 * stage].len(), ended(stage).len());
        assert!(begun <= trials && ended <= begun.div_ceil(2) + extra_survivors, "{stage}: {begun}, {ended}");
    }
}
