//! Shell conveniences: completions, a manual, --quiet, colours, and a notice about an identical finished run.

use std::process::Command;

use tempfile::TempDir;

use crate::generate::{json, run};
use crate::{SMALL, program, small_run, text, train, without_data_warnings};

#[test]
fn completions_and_man_pages_cover_commands() {
    let dir = TempDir::new().unwrap();
    let stdout_of = |arguments: &[&str]| {
        let output = run(dir.path(), arguments);
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
        text(&output.stdout)
    };
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let script = stdout_of(&["completions", shell]);
        for word in ["causal-attention", "evaluate", "quiet", "checkpoint"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    let program = stdout_of(&["man"]);
    assert!(program.contains(".TH causal-attention 1"), "{program}");
    assert!(program.contains("causal\\-attention\\-train(1)"), "{program}");
    let page = stdout_of(&["man", "train"]);
    assert!(page.contains("\\-\\-resume") && page.contains(".TH causal-attention-train 1"), "{page}");
    let refused = run(dir.path(), &["man", "tarin"]);
    let stderr = text(&refused.stderr);
    assert_eq!((refused.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
    assert!(stderr.contains("`tarin`") && stderr.contains("train, tune"), "{stderr}");
    let terms = stdout_of(&["terms", "Induction"]);
    assert!(terms.starts_with("induction head: a head that attends to"), "{terms}");
    assert!(stdout_of(&["terms"]).lines().count() > 40);
    let refused = run(dir.path(), &["terms", "quark"]);
    assert_eq!((refused.status.code(), text(&refused.stderr).contains("`quark`")), (Some(2), true));
}

#[test]
fn a_key_that_is_set_twice_is_reported() {
    let dir = TempDir::new().unwrap();
    let sets = |twice: &[&str]| {
        let sets = twice.iter().flat_map(|set| ["--set", set]);
        let output = program(dir.path()).args(["data", "--json"]).args(sets).output().unwrap();
        let described: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(described["train"]["samples"], 70, "{output:?}");
        text(&output.stderr)
    };
    let warned = sets(&["data.train_samples=50", "data.train_samples=70"]);
    let expected =
        "--set data.train_samples is passed twice, and the last value applies: data.train_samples=70";
    assert_eq!(warned.matches(expected).count(), 1, "{warned}");
    assert!(!sets(&["data.train_samples=70", "data.train_samples=70"]).contains("twice"));
    let thrice = sets(&["data.train_samples=70", "data.train_samples=50", "data.train_samples=70"]);
    assert!(thrice.contains(expected) && !thrice.contains("applies: data.train_samples=50"), "{thrice}");
}

#[test]
fn a_dry_run_names_the_time_limit() {
    let dir = TempDir::new().unwrap();
    let plan = |minutes: &str| {
        let sets = ["training.steps=100000", minutes];
        text(&train(dir.path(), &[&SMALL[..], &sets].concat(), &["--dry-run"]).stdout)
    };
    let limited = plan("training.max_minutes=0.001");
    let expected = "  limit       stops after `training.max_minutes` = 0.001, after about ";
    assert!(limited.contains(expected) && limited.contains("steps, before the schedule ends\n"), "{limited}");
    assert!(!plan("training.max_minutes=0").contains("limit"));
}

#[test]
fn a_run_is_not_named_like_an_option() {
    let dir = TempDir::new().unwrap();
    for (more, sets) in [(&["--run=-dash"][..], &[][..]), (&[], &["run.name=-dash"])] {
        let output = train(dir.path(), &[&SMALL[..], sets].concat(), more);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains("-dash") && dir.path().read_dir().unwrap().next().is_none());
    }
}

#[test]
fn identical_finished_run_is_reported_unless_quiet() {
    let dir = TempDir::new().unwrap();
    let sets = [&SMALL[..], &["training.steps=2"]].concat();
    let train_with = |sets: &[&str], more: &[&str]| {
        let output = train(dir.path(), sets, more);
        assert!(output.status.success(), "{}", text(&output.stderr));
        (text(&output.stdout), without_data_warnings(&output.stderr))
    };
    let (stdout, stderr) = train_with(&sets, &[]);
    assert!(stdout.contains("step 2/2") && stderr.is_empty(), "{stdout}{stderr}");
    let notice = "notice: `runs/repeat-decoder` is a finished run of the same config and seed; use --set run.seed=1 \
                  for another seed\n";
    assert_eq!(train_with(&sets, &[]).1, notice);
    assert_eq!(train_with(&[&sets[..], &["run.name=again"]].concat(), &["--dry-run"]).1, notice);
    for other in ["run.seed=1", "model.heads=4", "training.steps=3"] {
        assert_eq!(train_with(&[&sets[..], &[other]].concat(), &["--dry-run"]).1, "", "{other}");
    }
    assert_eq!(train_with(&sets, &["--dry-run", "--run", "elsewhere/run"]).1, "");
    // An interrupted run does not count as finished.
    let stopped = [&sets[..], &["run.seed=7", "training.steps=4"]].concat();
    train_with(&stopped, &["--until", "2"]);
    assert_eq!(train_with(&stopped, &["--dry-run"]).1, "");

    let (stdout, stderr) = train_with(&sets, &["--quiet"]);
    assert!(stderr.is_empty() && !stdout.contains("step 2/2"), "{stdout}{stderr}");
    assert!(stdout.contains("  loss  ") && stdout.contains("  run       runs/repeat-decoder-4"), "{stdout}");
    let (stdout, _) = train_with(&sets, &["-q", "--progress", "plain"]);
    assert!(stdout.contains("step 2/2"), "--progress overrides --quiet: {stdout}");
    let evaluate = ["evaluate", "runs/repeat-decoder", "--json"];
    assert_eq!(json(dir.path(), &evaluate), json(dir.path(), &[&["--quiet"], &evaluate[..]].concat()));
    let refused = run(dir.path(), &["--quiet", "evaluate", "nowhere"]);
    assert!(text(&refused.stderr).contains("no such run folder"), "--quiet does not suppress errors");
}

/// Returns the program's output on a terminal; `None` if no terminal is available.
#[cfg(target_os = "linux")]
fn on_terminal(dir: &TempDir, arguments: &str, environment: &[(&str, &str)]) -> Option<String> {
    let typed = format!("{} {arguments}", program(dir.path()).get_program().to_string_lossy());
    let mut script = Command::new("script");
    script.current_dir(dir).env_remove("NO_COLOR").env("TERM", "xterm-256color");
    let output =
        script.args(["-qec", &typed, "/dev/null"]).envs(environment.iter().copied()).output().ok()?;
    Some(text(&output.stdout))
}

#[cfg(target_os = "linux")]
#[test]
fn colours_need_a_terminal_and_honour_no_color() {
    let dir = TempDir::new().unwrap();
    small_run(dir.path(), &["training.steps=2"], "run");
    let is_coloured = |printed: &str| {
        printed.contains("\x1b[36m") || printed.contains("\x1b[1m") || printed.contains("\x1b[4m")
    };
    let sets = SMALL.iter().map(|set| format!(" --set '{set}'")).collect::<String>();
    let training = &format!("train --backend ndarray --set training.steps=3{sets}");
    let Some(printed) = on_terminal(&dir, training, &[]) else {
        return eprintln!("notice: colours are not tested, because `script` is not installed");
    };
    assert!(is_coloured(&printed), "{printed:?}");
    for arguments in [training, "", "evaluate run", "--help", "train --stps"] {
        for environment in [&[("NO_COLOR", "1")][..], &[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")]] {
            let printed = on_terminal(&dir, arguments, environment).unwrap();
            assert!(!is_coloured(&printed), "{arguments} {environment:?}: {printed:?}");
        }
    }
    for arguments in [&["evaluate", "run"][..], &[], &["--help"]] {
        let output = run(dir.path(), arguments);
        assert!(!is_coloured(&(text(&output.stdout) + &text(&output.stderr))), "{arguments:?}");
    }
}
