//! Studies played with made-up losses: who goes on, and that nothing is asked for twice.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use super::*;

/// A study whose trials' losses are a function of their settings, and what it did.
struct Played {
    /// Every wave of what was due together.
    waves: Vec<Vec<Due>>,
    trials: Vec<Proposed>,
}

fn proposer(text: &str, steps: usize) -> Proposer {
    let config = Config::parse(text, Path::new("study.toml"), &[]).unwrap();
    let tune = config.tune.clone().unwrap_or_default();
    Proposer::new(&tune, &Space::new(&config).unwrap(), 5, steps).unwrap()
}

/// Plays a study to its end.
fn play(proposer: &Proposer, loss: impl Fn(&Setting, usize) -> f64) -> Played {
    let known = RefCell::new(BTreeMap::new());
    let mut waves = Vec::new();
    loop {
        let agenda = proposer.agenda(|_, due| known.borrow().get(&(due.trial, due.rung)).copied());
        if agenda.due.is_empty() {
            return Played { waves, trials: agenda.trials };
        }
        for due in &agenda.due {
            let standing = loss(&agenda.trials[due.trial].setting, due.rung);
            let before = known.borrow_mut().insert((due.trial, due.rung), standing);
            assert_eq!(before, None, "nothing is due twice");
        }
        waves.push(agenda.due);
    }
}

const SPACE: &str = "[tune]\ntrials = 27\n[tune.search]\n\
                     \"training.learning_rate\" = { min = 1e-4, max = 1e-2, scale = \"log\" }\n";

/// Best at a rate of 1e-3, at every rung.
fn bowl(setting: &Setting, _: usize) -> f64 {
    let rate = setting["training.learning_rate"].as_float().unwrap();
    (rate / 1e-3).ln().powi(2)
}

#[test]
fn a_race_leaves_one_in_three_at_each_rung_and_the_best_at_the_end() {
    let played = play(&proposer(SPACE, 1_000), bowl);
    assert_eq!(played.waves.iter().map(Vec::len).collect::<Vec<_>>(), [27, 9, 3, 1]);
    let loss = |trial: usize| bowl(&played.trials[trial].setting, 0);
    let winner = played.waves[3][0].trial;
    assert!((0..27).all(|trial| loss(trial) >= loss(winner)));
}

#[test]
fn short_trials_race_in_fewer_rungs() {
    assert_eq!(proposer(SPACE, 100).rungs, 3, "11 steps to the first rung; 3 would be too few");
    assert_eq!(proposer(SPACE, 29).rungs, 1);
    assert_eq!(most_rungs(1, 1_000, 3), 1, "alone, there is nobody to race with");
}

#[test]
fn what_diverges_never_goes_on_and_a_study_of_such_ends() {
    let played = play(&proposer(SPACE, 1_000), |setting, rung| match bowl(setting, rung) {
        loss if loss > 1.0 => f64::INFINITY,
        loss => loss,
    });
    for due in played.waves[1..].iter().flatten() {
        assert_ne!(bowl(&played.trials[due.trial].setting, 0), f64::INFINITY);
    }
    let played = play(&proposer(SPACE, 1_000), |_, _| f64::INFINITY);
    assert_eq!(played.waves.len(), 1);
    let played = play(&proposer("", 1_000), |_, _| f64::INFINITY);
    assert_eq!(played.waves.len(), 4, "each stage of the recipe is tried around the config's own values");
}

#[test]
fn results_in_hand_are_never_asked_for_again_whatever_else_is_known() {
    let proposer = proposer(SPACE, 1_000);
    let whole = play(&proposer, bowl);
    // Of the second wave every other trial is known: as after a kill in its middle.
    let known = |due: Due| due.rung == 0 || due.rung == 1 && due.trial.is_multiple_of(2);
    let agenda =
        proposer.agenda(|trials, due| known(due).then(|| bowl(&trials[due.trial].setting, due.rung)));
    let rest = whole.waves[1].iter().copied().filter(|due| !known(*due)).collect::<Vec<_>>();
    assert_eq!((agenda.due, agenda.trials), (rest, whole.trials));
}

#[test]
fn who_is_beaten_at_a_rung_is_given_up_though_others_still_race() {
    let proposer = proposer(SPACE, 1_000);
    let whole = play(&proposer, bowl);
    // As after a kill in the middle of the third wave.
    let known = |due: Due| due.rung < 2 || due == whole.waves[2][0];
    let told = |proposer: &Proposer, loss: &dyn Fn(&Setting, usize) -> f64, known: &dyn Fn(Due) -> bool| {
        proposer.agenda(|trials, due| known(due).then(|| loss(&trials[due.trial].setting, due.rung)))
    };
    let agenda = told(&proposer, &bowl, &known);
    let wave = |wave: usize| whole.waves[wave].iter().map(|due| due.trial).collect::<Vec<_>>();
    assert_eq!(agenda.racing, wave(2), "one of them is there already, and may yet go on");
    for trial in 0..27 {
        let furthest = (0..3).rev().find(|&rung| wave(rung).contains(&trial));
        assert_eq!(Some(agenda.rungs[trial]), furthest, "{trial}");
    }
    assert_eq!(told(&proposer, &bowl, &|_| true).racing, [0; 0], "the study is complete");

    // In the recipe the best so far races on in every stage, and who was beaten in an earlier one does not.
    let recipe = self::proposer("", 1_000);
    let own = recipe.settings()[0].clone();
    let best_first = |setting: &Setting, _: usize| f64::from(u8::from(*setting != own));
    let agenda = told(&recipe, &best_first, &|due| due.trial < 3);
    assert_eq!(agenda.racing, [0, 3, 4, 5]);
    assert!(agenda.due.iter().all(|due| due.rung == 0 && due.trial >= 3));
}

#[test]
fn the_recipe_keeps_the_best_of_each_stage_and_tries_no_setting_twice() {
    let loss = |setting: &Setting, _: usize| {
        let number = |key: &str| {
            let value = &setting[key];
            value.as_float().or(value.as_integer().map(|whole| whole as f64)).unwrap()
        };
        (number("training.batch_size") - 16.0).abs() / 16.0
            + (number("training.learning_rate") / 5e-4).ln().abs()
            + (number("model.d_model") - 128.0).abs() / 64.0
            + (number("model.heads") - 8.0).abs() / 8.0
            + (number("model.dropout") - 0.1).abs()
    };
    let played = play(&proposer("", 1_000), loss);
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
    assert_eq!(played.trials.len(), 3 + 3 + 8 + 3, "the best so far is compared, not tried again");
    assert_eq!(proposer("", 1_000).trials(), played.trials.len(), "as announced");
}

#[test]
fn the_best_so_far_goes_on_in_the_recipe_however_slowly_it_begins() {
    // The config's own values begin worst of all and end best.
    let proposer = proposer("", 1_000);
    let own = proposer.settings()[0].clone();
    let loss = |setting: &Setting, rung: usize| {
        let values = setting.values().map(|value| value.to_string()).collect::<String>();
        let other = 2.0 + values.bytes().map(f64::from).sum::<f64>() / 1e5;
        match (*setting == own, rung + 1 == 2) {
            (true, false) => 9.0,
            (true, true) => 1.0,
            (false, _) => other,
        }
    };
    let played = play(&proposer, loss);
    let ended = |stage: usize| played.waves[2 * stage + 1].iter().map(|due| due.trial).collect::<Vec<_>>();
    assert_eq!(ended(0).len(), 3, "two of three, and the config's own");
    assert!(ended(0).contains(&0) && played.trials[0].setting == own);
    assert!((1..4).all(|stage| !ended(stage).contains(&0)), "its result is known from the first stage");
    // Every stage goes on from it, and stays within what was announced.
    let far = |setting: &Setting| setting.iter().filter(|(key, value)| own[*key] != **value).count();
    assert!(
        played.trials.iter().all(|trial| far(&trial.setting) <= 2),
        "only heads and width change together"
    );
    let (races, spared) = proposer.races();
    for (stage, trials) in races.into_iter().enumerate() {
        let (begun, ended) = (played.waves[2 * stage].len(), ended(stage).len());
        assert!(begun <= trials && ended <= begun.div_ceil(2) + spared, "{stage}: {begun}, {ended}");
    }
}
