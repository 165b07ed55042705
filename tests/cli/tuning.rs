//! Studies: what they leave, that they go on as if never stopped, and what they refuse.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::{program, text};

/// A small study: each run takes a fraction of a second.
const STUDY: &str = r#"
[data]
task = "sort"
vocab = 8
length = 15
train_samples = 512
valid_samples = 64

[model]
d_model = 16
heads = 2
layers = 1

[training]
steps = 180
batch_size = 16
learning_rate = 3e-3
validate_every = 10

[analysis]
every = 0
sequences = 8

[tune]
method = "halving"
trials = 7
baseline = false

[tune.search]
"training.learning_rate" = { min = 1e-4, max = 1e-1, scale = "log" }
"model.d_model" = [16, 24]
"model.heads" = [2, 3]
"#;

fn place() -> TempDir {
    let place = TempDir::new().unwrap();
    fs::write(place.path().join("study.toml"), STUDY).unwrap();
    place
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = program(folder);
    command.args(["tune", "--backend", "ndarray", "--progress", "none"]).args(arguments);
    command
}

fn tune(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().expect("the program starts")
}

fn succeeds(folder: &Path, arguments: &[&str]) -> String {
    let output = tune(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// The one line that refuses.
fn refusal(folder: &Path, arguments: &[&str]) -> String {
    let output = tune(folder, arguments);
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{arguments:?}: {said}");
    said
}

/// The rows of a study's table, by column, without those that tell the time.
fn rows(study: &Path) -> Vec<BTreeMap<String, String>> {
    let mut reader = csv::Reader::from_path(study.join("study.csv")).unwrap();
    let header = reader.headers().unwrap().clone();
    let row = |row: csv::StringRecord| {
        let cells = header.iter().zip(row.iter()).filter(|(name, _)| !name.contains("seconds"));
        cells.map(|(name, value)| (name.to_string(), value.to_string())).collect()
    };
    reader.records().map(|record| row(record.unwrap())).collect()
}

fn wait_for(what: &str, mut there: impl FnMut() -> bool) {
    let start = Instant::now();
    while !there() {
        assert!(start.elapsed() < Duration::from_secs(120), "{what} never came");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn summaries(study: &Path) -> usize {
    let runs = fs::read_dir(study.join("trials")).into_iter().flatten().flatten();
    runs.filter(|run| run.path().join("summary.json").is_file()).count()
}

#[test]
fn a_study_leaves_runs_a_table_pictures_and_a_config_that_train_takes() {
    let place = place();
    let said = succeeds(place.path(), &["study.toml", "--run", "study"]);
    let study = place.path().join("study");
    for file in [
        "config.toml",
        "study.csv",
        "best.toml",
        "report.html",
        "plots/trials.png",
        "plots/effects.png",
        "plots/learning_rate.png",
        "plots/cost.png",
    ] {
        assert!(
            study.join(file).metadata().is_ok_and(|data| data.len() > 0),
            "{file} is there and not empty"
        );
    }
    let rows = rows(&study);
    assert_eq!(rows.len(), 7);
    for row in &rows {
        assert!(
            row["model.d_model"].parse::<usize>().unwrap() % row["model.heads"].parse::<usize>().unwrap()
                == 0
        );
        let (loss, floor, gap) = (&row["loss"], &row["floor"], &row["gap"]);
        let [loss, floor, gap] = [loss, floor, gap].map(|number| number.parse::<f64>().unwrap());
        assert!((loss - floor - gap).abs() < 1e-9);
    }
    let finished = rows.iter().filter(|row| row["ended"] == "completed").collect::<Vec<_>>();
    assert!(rows.iter().all(|row| ["completed", "pruned"].contains(&row["ended"].as_str())));
    assert!(finished.len() == 1 && finished[0]["steps"] == "180", "{rows:?}");
    assert!(
        said.lines().nth(1).unwrap().trim().starts_with(&format!("00{}", finished[0]["trial"])),
        "{said}"
    );

    // Of the best setting a whole run can be made, and it is that trial's.
    let best = fs::read_to_string(study.join("best.toml")).unwrap();
    assert!(!best.contains("[tune"), "{best}");
    let output = program(place.path())
        .args(["train", "study/best.toml", "--run", "again", "--backend", "ndarray", "--progress", "none"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let loss = |run: PathBuf| {
        let summary: serde_json::Value =
            serde_json::from_slice(&fs::read(run.join("summary.json")).unwrap()).unwrap();
        summary["best_valid_loss"].as_f64().unwrap()
    };
    let trial = study.join("trials").join(format!("00{}", finished[0]["trial"]));
    assert_eq!(loss(place.path().join("again")), loss(trial));

    // A pruned trial is a run like any other: alone it gives what the study saw, and goes further.
    let pruned = rows.iter().find(|row| row["ended"] == "pruned").unwrap();
    let config = format!("study/trials/00{}/config.toml", pruned["trial"]);
    let output = program(place.path())
        .args(["train", &config, "--run", "alone", "--backend", "ndarray", "--progress", "none"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let steps = |rows: &[String]| {
        let valid = rows.iter().filter(|row| row.contains(",valid,"));
        valid.map(|row| row.split(',').next().unwrap().parse().unwrap()).collect::<Vec<usize>>()
    };
    let paused = crate::rows(&place.path().join(&config).with_file_name(""));
    let alone = crate::rows(&place.path().join("alone"));
    assert!(paused.len() > 2 && alone.len() > paused.len());
    let last = steps(&paused).last().copied();
    assert_eq!(last.map(|step| step.to_string()), Some(pruned["steps"].clone()), "a rung is a validation");
    assert_eq!(paused, alone[..paused.len()]);
}

#[test]
fn trials_whose_batch_sizes_have_no_common_multiple_are_compared_after_as_many_sequences() {
    let place = place();
    let sets = [
        "tune.search.training.batch_size=[17, 23, 29, 31]",
        "tune.search.training.learning_rate=[3e-3]",
        "tune.search.model.d_model=[16]",
        "tune.search.model.heads=[2]",
        "tune.rungs=3",
        "training.validate_every=1",
    ];
    let mut arguments = vec!["study.toml", "--run", "study"];
    sets.iter().for_each(|set| arguments.extend(["--set", set]));
    succeeds(place.path(), &arguments);
    let study = place.path().join("study");
    let pruned = rows(&study).into_iter().filter(|row| row["ended"] == "pruned").collect::<Vec<_>>();
    let mut first = Vec::new();
    for row in &pruned {
        let number = |key: &str| row[key].parse::<usize>().unwrap();
        let run = study.join("trials").join(format!("00{}", row["trial"]));
        let mut validations = crate::rows(&run).into_iter().filter(|row| row.contains(",valid,"));
        let last = validations.next_back().unwrap();
        assert!(last.starts_with(&format!("{},", row["steps"])), "a rung is a validation: {last}");
        first.push(number("steps") as f64 * number("training.batch_size") as f64 / (180.0 * 16.0 / 9.0));
        let alone = place.path().join(format!("alone-{}", row["trial"]));
        let output = program(place.path())
            .args(["train", run.join("config.toml").to_str().unwrap(), "--run", alone.to_str().unwrap()])
            .args(["--backend", "ndarray", "--progress", "none"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let seen = crate::rows(&run);
        assert_eq!(crate::rows(&alone)[..seen.len()], seen);
    }
    assert!(
        first.len() >= 2 && first.iter().all(|share| (share.log(3.0) - share.log(3.0).round()).abs() < 0.06),
        "{first:?}"
    );
}

#[test]
fn a_study_killed_at_any_moment_ends_as_the_undisturbed_one() {
    let place = place();
    succeeds(place.path(), &["study.toml", "--run", "undisturbed"]);
    let study = place.path().join("killed");
    let spawn = |arguments: &[&str]| -> Child {
        command(place.path(), arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    // Before the first trial ends, then after each further run or two.
    let mut child = spawn(&["study.toml", "--run", "killed"]);
    wait_for("the study", || study.join("config.toml").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    for done in [1, 2, 4, 6] {
        let mut child = spawn(&["--resume", "killed", "--jobs", "2"]);
        wait_for("a run", || summaries(&study) >= done || child.try_wait().unwrap().is_some());
        let _ = child.kill();
        child.wait().unwrap();
    }
    let before = rows_if_any(&study);
    succeeds(place.path(), &["--resume", "killed"]);
    assert_eq!(rows(&study), rows(&place.path().join("undisturbed")));
    assert!(before.len() <= rows(&study).len());
    let best = |study: &str| fs::read_to_string(place.path().join(study).join("best.toml")).unwrap();
    assert_eq!(best("killed"), best("undisturbed"));

    // What is complete is only drawn again.
    fs::remove_file(study.join("plots/trials.png")).unwrap();
    let summary = study.join("trials/000/summary.json");
    let written = summary.metadata().unwrap().modified().unwrap();
    succeeds(place.path(), &["--resume", "killed"]);
    assert!(study.join("plots/trials.png").exists());
    assert_eq!(summary.metadata().unwrap().modified().unwrap(), written, "no finished trial is repeated");
}

fn rows_if_any(study: &Path) -> Vec<BTreeMap<String, String>> {
    if study.join("study.csv").exists() { rows(study) } else { Vec::new() }
}

#[test]
fn results_do_not_depend_on_the_number_of_jobs_and_seeds_count_together() {
    let place = place();
    let arguments = |name, jobs| {
        ["study.toml", "--set", "tune.seeds=2", "--set", "tune.trials=3", "--run", name, "--jobs", jobs]
    };
    succeeds(place.path(), &arguments("one", "1"));
    succeeds(place.path(), &arguments("three", "3"));
    let one = rows(&place.path().join("one"));
    assert_eq!(one, rows(&place.path().join("three")));
    assert_eq!(one.len(), 3);
    let loss = |seed: usize| {
        let run = place.path().join(format!("one/trials/000-seed-{seed}"));
        let summary: serde_json::Value =
            serde_json::from_slice(&fs::read(run.join("summary.json")).unwrap()).unwrap();
        assert_eq!(summary["seed"], seed);
        (summary["best_valid_loss"].as_f64().unwrap(), summary["floor"].as_f64().unwrap())
    };
    let ([a, b], [floor, other]) = ([loss(0).0, loss(1).0], [loss(0).1, loss(1).1]);
    assert!(a != b && floor == other, "other weights for one validation set: {floor} and {other}");
    // Alone each of them is the same run.
    let config = "one/trials/000-seed-1/config.toml";
    let output = program(place.path())
        .args(["train", config, "--run", "alone", "--backend", "ndarray", "--progress", "none"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let seen = crate::rows(&place.path().join("one/trials/000-seed-1"));
    assert_eq!(crate::rows(&place.path().join("alone"))[..seen.len()], seen);
    let loss = |seed: usize| loss(seed).0;
    let (mean, spread) = ((loss(0) + loss(1)) / 2.0, (loss(0) - loss(1)).abs() / 2f64.sqrt());
    assert!((one[0]["loss"].parse::<f64>().unwrap() - mean).abs() < 1e-12);
    assert!((one[0]["loss_spread"].parse::<f64>().unwrap() - spread).abs() < 1e-12);
}

#[cfg(unix)]
#[test]
fn an_interrupted_study_says_so_by_its_exit_code_and_goes_on() {
    let place = place();
    succeeds(place.path(), &["study.toml", "--run", "undisturbed"]);
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let name = format!("stopped-by-{signal}");
        let mut child = command(place.path(), &["study.toml", "--run", &name])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let study = place.path().join(&name);
        wait_for("a run", || summaries(&study) >= 1);
        Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code));
        assert!(rows(&study).len() < 8);
        succeeds(place.path(), &["--resume", &name, "--jobs", "2"]);
        assert_eq!(rows(&study), rows(&place.path().join("undisturbed")));
    }
}

#[cfg(unix)]
#[test]
fn ctrl_c_in_a_terminal_which_reaches_every_process_interrupts_a_study_at_any_moment() {
    use std::os::unix::process::CommandExt;
    let place = place();
    succeeds(place.path(), &["study.toml", "--run", "undisturbed"]);
    let study = place.path().join("study");
    let mut arguments = vec!["study.toml", "--run", "study", "--jobs", "2"];
    for milliseconds in [0, 3, 6, 9, 12, 15, 20, 30] {
        let mut command = command(place.path(), &arguments);
        command.process_group(0).stdout(Stdio::null()).stderr(Stdio::piped());
        let alive = study.join("trials/.alive");
        let _ = fs::remove_file(&alive);
        let child = command.spawn().unwrap();
        // Made by a run that begins, and as a study is resumed.
        wait_for("a run", || alive.exists());
        std::thread::sleep(Duration::from_millis(milliseconds));
        Command::new("kill").args(["-INT", "--", &format!("-{}", child.id())]).status().unwrap();
        let output = child.wait_with_output().unwrap();
        if output.status.success() {
            break;
        }
        assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
        arguments = vec!["--resume", "study", "--jobs", "2"];
    }
    succeeds(place.path(), &["--resume", "study"]);
    assert_eq!(rows(&study), rows(&place.path().join("undisturbed")));
}

#[test]
fn a_study_that_is_resumed_computes_where_it_was_begun() {
    let place = place();
    let sets = ["--set", "tune.trials=2", "--set", "training.steps=20", "--set", "tune.method=random"];
    succeeds(place.path(), &[&["study.toml", "--run", "study"], &sets[..]].concat());
    let study = place.path().join("study");
    let before = rows(&study);
    let run = study.join("trials/001");
    fs::remove_dir_all(&run).unwrap();
    let output =
        program(place.path()).args(["tune", "--resume", "study", "--progress", "none"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let summary = fs::read_to_string(run.join("summary.json")).unwrap();
    assert!(summary.contains("\"ndarray\""), "{summary}");
    assert_eq!(rows(&study), before);
    let said = text(
        &program(place.path())
            .args(["tune", "--resume", "study", "--backend", "flex"])
            .output()
            .unwrap()
            .stderr,
    );
    assert!(said.contains("`training.backend` = \"flex\" differs") && said.lines().count() == 1, "{said}");
}

#[test]
fn a_trial_that_diverges_is_recorded_and_the_study_goes_on() {
    let place = place();
    let sets = [
        "training.optimizer=sgd",
        "training.max_gradient_norm=0",
        "training.min_learning_rate=0",
        "tune.search.training.learning_rate=[1e-2, 1e30]",
        "tune.search.model.d_model=[16]",
        "tune.search.model.heads=[2]",
        "tune.method=grid",
        "training.steps=40",
    ];
    let mut arguments = vec!["study.toml", "--run", "study"];
    sets.iter().for_each(|set| arguments.extend(["--set", set]));
    let said = succeeds(place.path(), &arguments);
    let rows = rows(&place.path().join("study"));
    let ended = rows.iter().map(|row| (row["ended"].as_str(), row["loss"].is_empty())).collect::<Vec<_>>();
    assert_eq!(ended, [("completed", false), ("diverged", true)], "{said}");
    assert!(
        fs::read_to_string(place.path().join("study/best.toml")).unwrap().contains("learning_rate = 0.01")
    );

    arguments[2] = "lost";
    arguments.extend(["--set", "tune.search.training.learning_rate=[1e30]"]);
    let said = succeeds(place.path(), &arguments);
    assert!(said.contains("every trial diverged") && said.contains("learning_rate"), "{said}");
    assert!(!place.path().join("lost/best.toml").exists());
    // A study is no run: it says so.
    let output = program(place.path()).args(["plot", "lost"]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    assert!(said.contains("`lost` is the folder of a study"), "{said}");
}

#[test]
fn a_trial_that_cannot_be_trained_is_recorded_and_the_study_goes_on() {
    let place = place();
    let sets = [
        "tune.search.training.learning_rate=[1e-2]",
        "tune.search.model.d_model=[16, 65536]",
        "tune.search.model.heads=[2]",
        "tune.method=grid",
        "training.steps=40",
    ];
    let mut arguments = vec!["study.toml", "--run", "study"];
    sets.iter().for_each(|set| arguments.extend(["--set", set]));
    let said = succeeds(place.path(), &arguments);
    assert!(said.contains("could not be trained") && said.contains("are free here"), "{said}");
    let study = place.path().join("study");
    let ended = || rows(&study).into_iter().map(|row| row["ended"].clone()).collect::<Vec<_>>();
    assert_eq!(ended(), ["completed", "failed"], "{said}");
    let why = fs::read_to_string(study.join("trials/001.failed")).unwrap();
    assert!(why.lines().count() == 1 && why.contains("are free here"), "{why}");
    let before = fs::read(study.join("study.csv")).unwrap();
    succeeds(place.path(), &["--resume", "study"]);
    assert_eq!(fs::read(study.join("study.csv")).unwrap(), before, "it is not tried again");

    arguments[2] = "lost";
    arguments.extend(["--set", "tune.search.model.d_model=[65536]"]);
    let output = tune(place.path(), &arguments);
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("every trial failed") && said.contains("are free here"), "{said}");
}

#[test]
fn the_recipe_goes_through_its_stages_and_keeps_the_best_of_each() {
    let place = place();
    let (before, _) = STUDY.split_once("[tune]").unwrap();
    fs::write(place.path().join("plain.toml"), before).unwrap();
    let sets = ["--set", "tune.steps=20", "--set", "tune.baseline=false"];
    succeeds(place.path(), &[&["plain.toml", "--run", "study", "--jobs", "2"], &sets[..]].concat());
    let rows = rows(&place.path().join("study"));
    let mut stages = rows.iter().map(|row| row["stage"].as_str()).collect::<Vec<_>>();
    stages.dedup();
    assert_eq!(stages, ["batch size", "learning rate", "heads and width", "dropout"]);
    let best = |stages: &[&str]| {
        let of =
            rows.iter().filter(|row| stages.contains(&row["stage"].as_str()) && row["ended"] != "pruned");
        of.min_by(|a, b| a["loss"].parse::<f64>().unwrap().total_cmp(&b["loss"].parse().unwrap())).unwrap()
    };
    let batch = &best(&stages[..1])["training.batch_size"];
    assert!(
        rows.iter()
            .filter(|row| row["stage"] != "batch size")
            .all(|row| row["training.batch_size"] == *batch)
    );
    let config = fs::read_to_string(place.path().join("study/best.toml")).unwrap();
    assert!(config.contains("patience = 0"), "as it was: {config}");
    let rate = &best(&stages[..2])["training.learning_rate"];
    assert!(
        rows.iter().filter(|row| row["stage"] == "dropout").all(|row| row["training.learning_rate"] == *rate)
    );
    let settings = rows.iter().map(|row| {
        ["training.batch_size", "training.learning_rate", "model.d_model", "model.heads", "model.dropout"]
            .map(|key| row[key].clone())
    });
    let mut settings = settings.collect::<Vec<_>>();
    settings.sort();
    settings.dedup();
    assert_eq!(settings.len(), rows.len(), "no setting is tried twice");
}

#[test]
fn bad_input_of_a_study_is_one_line_and_leaves_nothing() {
    let place = place();
    fs::write(place.path().join("typo.toml"), "[tune.search]\n\"model.hed\" = [2]\n").unwrap();
    fs::write(place.path().join("empty.toml"), "[tune.search]\n\n\"model.heads\" = []\n").unwrap();
    fs::create_dir(place.path().join("folder")).unwrap();
    let before = fs::read_dir(place.path()).unwrap().count();
    let set = |set: &'static str| vec!["study.toml", "--set", set];
    let cases: [(Vec<&str>, &[&str]); 22] = [
        (vec!["typo.toml"], &["typo.toml:2: `tune.search.model.hed`", "did you mean `model.heads`?"]),
        (vec!["empty.toml"], &["empty.toml:3: `tune.search.model.heads` = [] is empty"]),
        (
            set("tune.search.model.dropout={ min = 0.0, max = 0.5, scale = \"log\" }"),
            &["--set:", "logarithmic"],
        ),
        (set("tune.search.model.dropout={ min = 0.5, max = 0.1 }"), &["is empty", "above `min` = 0.5"]),
        (set("tune.search.training.steps=[1, 2]"), &["`tune.steps`"]),
        (set("tune.search.model.d_model=[17, 25]"), &["no combination", "must divide"]),
        (set("tune.trails=3"), &["`tune.trails` = 3", "did you mean `tune.trials`?"]),
        (set("tune.method=annealing"), &["annealing", "halving"]),
        (set("tune.trials=0"), &["`tune.trials` = 0 must be at least 1"]),
        (set("tune.method=recipe"), &["`tune.method`", "search of its own"]),
        (set("tune.rungs=9"), &["`tune.rungs` = 9 leaves trials of 180 steps no room", "`tune.eta` = 3"]),
        (set("tune.eta=1000000000000"), &["`tune.eta`", "at most 10000"]),
        (set("tune.steps=1000000000001"), &["`tune.steps`", "at most"]),
        (
            vec!["study.toml", "--set", "run.seed=9223372036854775807", "--set", "tune.seeds=2"],
            &["`tune.seeds` = 2", "`run.seed`"],
        ),
        (
            set("tune.search.model.dropout={ min = 1e30, max = 1e-30 }"),
            &["`max` = 1e-30 must be above `min` = 1e30"],
        ),
        (vec!["study.toml", "--run", "folder"], &["`folder` exists already"]),
        (vec!["study.toml", "--progress", "tui"], &["--progress tui"]),
        (vec!["study.toml", "--jobs", "0"], &["--jobs", "--help"]),
        (vec!["--resume", "nowhere"], &["no study `nowhere`"]),
        (vec!["--resume", "study.toml"], &["`study.toml` is a file", "folder of a study"]),
        (vec!["--resume", "folder"], &["`folder` is not the folder of a study"]),
        (vec!["missing.toml"], &["no config file `missing.toml`"]),
    ];
    for (arguments, parts) in cases {
        let said = refusal_of(place.path(), &arguments);
        for part in parts {
            assert!(said.contains(part), "{arguments:?} should say {part:?}: {said}");
        }
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), before, "{arguments:?} leaves nothing");
    }
}

/// As [`refusal`], for arguments that bring their own way to show progress.
fn refusal_of(folder: &Path, arguments: &[&str]) -> String {
    if !arguments.contains(&"--progress") {
        return refusal(folder, arguments);
    }
    let output = program(folder).args(["tune", "--backend", "ndarray"]).args(arguments).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{arguments:?}: {said}");
    said
}

#[test]
fn a_study_of_another_config_or_with_foreign_runs_is_not_touched() {
    let place = place();
    let short = ["study.toml", "--set", "tune.trials=2", "--set", "training.steps=20", "--run", "study"];
    succeeds(place.path(), &short);
    let study = place.path().join("study");
    let before = fs::read(study.join("study.csv")).unwrap();
    let said = refusal(place.path(), &["study.toml", "--resume", "study"]);
    assert!(
        said.contains("`training.steps` = 180 differs from the 20") && said.contains("--run DIR"),
        "{said}"
    );
    let said = refusal(place.path(), &["--resume", "study", "--set", "tune.trials=3"]);
    assert!(said.contains("`tune.trials` = 3 differs from the 2"), "{said}");
    let config = study.join("trials/000/config.toml");
    let written = fs::read_to_string(&config).unwrap();
    fs::write(&config, written.replace("batch_size = 16", "batch_size = 8")).unwrap();
    let said = refusal(place.path(), &["--resume", "study"]);
    assert!(said.contains("`study/trials/000`") && said.contains("`training.batch_size` = 16"), "{said}");
    assert_eq!(fs::read(study.join("study.csv")).unwrap(), before);
}

#[test]
fn a_baseline_that_does_not_converge_says_what_is_wrong_and_stops() {
    let place = place();
    let sets = ["--set", "tune.baseline=true", "--set", "tune.search.training.learning_rate=[10.0]", "--set"];
    let sets = [&sets[..], &["training.learning_rate=1e-3"]].concat();
    let said = refusal(place.path(), &[&["study.toml", "--run", "study"], &sets[..]].concat());
    assert!(said.contains("`training.learning_rate`") && said.contains("too high"), "{said}");
    assert!(!place.path().join("study").exists());
    // A rate that no trial has is not judged.
    let sets = ["tune.baseline=true", "training.learning_rate=10", "tune.trials=2", "tune.method=random"];
    let mut arguments = vec!["study.toml", "--run", "study", "--set", "training.steps=20"];
    sets.iter().for_each(|set| arguments.extend(["--set", set]));
    assert!(succeeds(place.path(), &arguments).contains("learned by heart"));
}

#[test]
fn the_rate_finder_suggests_a_rate_draws_it_and_leaves_the_run_it_starts_from_alone() {
    let place = place();
    let said = succeeds(place.path(), &["study.toml", "--find-rate", "--run", "rate"]);
    assert!(said.contains("train with") && said.contains("unchanged"), "{said}");
    assert!(place.path().join("rate/plots/rate_finder.png").metadata().unwrap().len() > 1_000);

    let flat = ["--set", "training.optimizer=sgd", "--set", "training.max_gradient_norm=1e-9"];
    let said = succeeds(place.path(), &[&["study.toml", "--find-rate", "--run", "flat"], &flat[..]].concat());
    assert!(said.contains("no minimum"), "{said}");

    let output = program(place.path())
        .args(["train", "study.toml", "--run", "run", "--set", "training.steps=12", "--backend", "ndarray"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let weights = || fs::read(place.path().join("run/model.safetensors")).unwrap();
    let before = weights();
    let said = succeeds(
        place.path(),
        &["study.toml", "--find-rate", "--run", "from", "--set", "run.from=run", "--json"],
    );
    let sweep: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert!(sweep["points"].as_array().unwrap().len() > 50);
    assert!(weights() == before);
}

#[test]
fn a_disk_that_fills_up_costs_no_trial_that_is_done() {
    let Some(disk) = crate::resume::SmallDisk::new("8m") else {
        eprintln!("notice: no disk was filled up, for a small one cannot be mounted");
        return;
    };
    let undisturbed = place();
    succeeds(undisturbed.path(), &["study.toml", "--run", "study"]);
    fs::write(disk.path().join("study.toml"), STUDY).unwrap();
    let filler = disk.path().join("filler");
    fs::write(&filler, vec![1; (8 << 20) - (900 << 10)]).unwrap();
    let said = refusal(disk.path(), &["study.toml", "--run", "study"]);
    assert!(said.contains("no space is left") && said.contains("`tune --resume study` goes on"), "{said}");
    fs::remove_file(filler).unwrap();
    succeeds(disk.path(), &["--resume", "study"]);
    assert_eq!(rows(&disk.path().join("study")), rows(&undisturbed.path().join("study")));
}
