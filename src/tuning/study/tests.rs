use std::path::Path;

use super::{super::testing::run, *};
use crate::training::{Ended, StopSignal, dataset};

fn outline(text: &str) -> Outline {
    let config = Config::parse(text, Path::new("study.toml"), &[]).unwrap();
    Outline::new(&config, &dataset(&config).unwrap()).unwrap()
}

const STUDY: &str = "[data]\ntrain_samples = 512\n[training]\nsteps = 300\n[tune]\ntrials = 11\nseeds = 2\n\
                     [tune.search]\n\"training.learning_rate\" = { min = 1e-4, max = 1e-2, scale = \"log\" }\n\
                     \"training.batch_size\" = [8, 16]";

fn study(outline: &Outline) -> Study {
    Study::new(outline.clone(), RunFolder::at("nowhere"), None).unwrap()
}

/// Simulates every run that is due, and calls `after` after each.
fn play(study: &mut Study, after: impl Fn(&Study)) {
    loop {
        let due = study.agenda.due.clone();
        if due.is_empty() {
            return;
        }
        for trial in due {
            let rung = study.agenda.trials[trial].rung;
            for seed in 0..study.outline.tune.seeds {
                let config = study.configs[trial].clone();
                let reached = |rung| study.outline.budget.rung(&config, rung);
                let (step, pauses) = (reached(rung), rung + 1 < study.outline.stages.rungs);
                let ended = match (trial, pauses) {
                    (3, _) => Ended::Diverged,
                    (_, true) => Ended::Paused,
                    (_, false) => Ended::Completed,
                };
                let loss = |rung| 1.0 + (trial * 7 % 11 + seed) as f64 / (rung + 1) as f64;
                let valid = (0..=rung).map(|rung| (reached(rung), loss(rung))).collect::<Vec<_>>();
                let record = match trial {
                    5 => Err("too large".to_string()),
                    _ => Ok(run(ended, step, &valid)),
                };
                study.record((trial, seed), Some(record));
                study.update().unwrap();
                after(study);
            }
        }
    }
}

#[test]
fn incremental_and_full_evaluation_agree() {
    let outline = outline(STUDY);
    let mut played = study(&outline);
    play(&mut played, |played| {
        let mut read = study(&outline);
        for (&run, record) in &played.runs {
            read.record(run, Some(record.as_ref().map_err(String::clone).cloned()));
        }
        read.update().unwrap();
        assert_eq!(read.agenda, played.agenda);
        assert!(read.trials().eq(played.trials()));
        assert_eq!(read.sequences(), played.sequences());
    });
    let trials = played.trials().collect::<Vec<_>>();
    assert_eq!(trials.len(), 11);
    let ended = |trial: usize| trials[trial].ended.name();
    assert_eq!((ended(3), ended(5)), ("diverged", "failed"));
    let count = |name| (0..11).filter(|&trial| ended(trial) == name).count();
    assert_eq!((count("completed"), count("unfinished")), (1, 0));
}

#[cfg(unix)]
#[test]
fn a_command_that_trains_nothing_ends_the_study() {
    let dir = tempfile::tempdir().unwrap();
    let target = RunPath::Folder(dir.path().join("study"));
    let config = Config::parse(STUDY, Path::new("study.toml"), &[]).unwrap();
    for (number, script) in ["true", "exit 143"].into_iter().enumerate() {
        let target = RunPath::Folder(target.first().with_extension(number.to_string()));
        let mut command = TrialCommand::new("sh");
        command.arguments = ["-c", script].map(Into::into).to_vec();
        let (mut study, runner) = Study::create(&config, outline(STUDY), &target, (command, 4)).unwrap();
        assert!(study.conduct(runner, &StopSignal::default(), |_, _| {}).unwrap());
        assert_eq!(study.runs.len(), 22);
        assert!(study.runs.values().all(Result::is_err), "{:?}", study.first_failure());
        let folders = fs::read_dir(trials(&study.folder)).unwrap().flatten();
        assert_eq!(folders.filter(|entry| entry.path().is_dir()).count(), 0);
    }
}
