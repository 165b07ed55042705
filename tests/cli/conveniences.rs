//! Conveniences at a shell: completions, a manual, --quiet, colours, and a notice about an identical finished run.

use std::process::Command;

use tempfile::TempDir;

use crate::generate::{json, run};
use crate::{SMALL, beside_data_warnings, program, small_run, text, train};

#[test]
fn completions_and_man_pages_cover_commands() {
    let place = TempDir::new().unwrap();
    let said = |arguments: &[&str]| {
        let output = run(place.path(), arguments);
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
        text(&output.stdout)
    };
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let script = said(&["completions", shell]);
        for word in ["causal-attention", "evaluate", "quiet", "checkpoint"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    let program = said(&["man"]);
    assert!(program.contains(".TH causal-attention 1"), "{program}");
    assert!(program.contains("causal\\-attention\\-train(1)"), "{program}");
    let page = said(&["man", "train"]);
    assert!(page.contains("\\-\\-resume") && page.contains(".TH causal-attention-train 1"), "{page}");
    let refused = run(place.path(), &["man", "tarin"]);
    let told = text(&refused.stderr);
    assert_eq!((refused.status.code(), told.lines().count()), (Some(2), 1), "{told}");
    assert!(told.contains("`tarin`") && told.contains("train, tune"), "{told}");
    let terms = said(&["terms", "Induction"]);
    assert!(terms.starts_with("induction head: a head that attends to"), "{terms}");
    assert!(said(&["terms"]).lines().count() > 40);
    let refused = run(place.path(), &["terms", "quark"]);
    assert_eq!((refused.status.code(), text(&refused.stderr).contains("`quark`")), (Some(2), true));
}

#[test]
fn finished_twin_is_noticed_unless_quiet() {
    let place = TempDir::new().unwrap();
    let sets = [&SMALL[..], &["training.steps=2"]].concat();
    let told = |sets: &[&str], more: &[&str]| {
        let output = train(place.path(), sets, more);
        assert!(output.status.success(), "{}", text(&output.stderr));
        (text(&output.stdout), beside_data_warnings(&output.stderr))
    };
    let (said, told_first) = told(&sets, &[]);
    assert!(said.contains("step 2/2") && told_first.is_empty(), "{said}{told_first}");
    let notice = "notice: `runs/repeat-decoder` is a finished run of the same config and seed: --set run.seed=1 \
                  makes another\n";
    assert_eq!(told(&sets, &[]).1, notice);
    assert_eq!(told(&[&sets[..], &["run.name=again"]].concat(), &["--dry-run"]).1, notice);
    for other in ["run.seed=1", "model.heads=4", "training.steps=3"] {
        assert_eq!(told(&[&sets[..], &[other]].concat(), &["--dry-run"]).1, "", "{other}");
    }
    assert_eq!(told(&sets, &["--dry-run", "--run", "elsewhere/run"]).1, "");
    // An interrupted run does not count as finished.
    let stopped = [&sets[..], &["run.seed=7", "training.steps=4"]].concat();
    told(&stopped, &["--until", "2"]);
    assert_eq!(told(&stopped, &["--dry-run"]).1, "");

    let (said, told_quiet) = told(&sets, &["--quiet"]);
    assert!(told_quiet.is_empty() && !said.contains("step 2/2"), "{said}{told_quiet}");
    assert!(said.contains("  loss  ") && said.contains("  run       runs/repeat-decoder-4"), "{said}");
    let (said, _) = told(&sets, &["-q", "--progress", "plain"]);
    assert!(said.contains("step 2/2"), "who asks for progress has it: {said}");
    let evaluate = ["evaluate", "runs/repeat-decoder", "--json"];
    assert_eq!(json(place.path(), &evaluate), json(place.path(), &[&["--quiet"], &evaluate[..]].concat()));
    let refused = run(place.path(), &["--quiet", "evaluate", "nowhere"]);
    assert!(text(&refused.stderr).contains("no run folder"), "an error is said in any case");
}

/// The program's output on a terminal; `None` if no terminal is available.
#[cfg(target_os = "linux")]
fn on_terminal(place: &TempDir, arguments: &str, environment: &[(&str, &str)]) -> Option<String> {
    let typed = format!("{} {arguments}", program(place.path()).get_program().to_string_lossy());
    let mut script = Command::new("script");
    script.current_dir(place).env_remove("NO_COLOR").env("TERM", "xterm-256color");
    let output =
        script.args(["-qec", &typed, "/dev/null"]).envs(environment.iter().copied()).output().ok()?;
    Some(text(&output.stdout))
}

#[cfg(target_os = "linux")]
#[test]
fn colours_need_a_terminal_and_honour_no_color() {
    let place = TempDir::new().unwrap();
    small_run(place.path(), &["training.steps=2"], "run");
    let is_coloured =
        |said: &str| said.contains("\x1b[36m") || said.contains("\x1b[1m") || said.contains("\x1b[4m");
    let sets = SMALL.iter().map(|set| format!(" --set '{set}'")).collect::<String>();
    let training = &format!("train --backend ndarray --set training.steps=3{sets}");
    let Some(shown) = on_terminal(&place, training, &[]) else {
        return eprintln!("notice: no colours were looked at, which takes a terminal by `script`");
    };
    assert!(is_coloured(&shown), "{shown:?}");
    for arguments in [training, "", "evaluate run", "--help", "train --stps"] {
        for environment in [&[("NO_COLOR", "1")][..], &[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")]] {
            let shown = on_terminal(&place, arguments, environment).unwrap();
            assert!(!is_coloured(&shown), "{arguments} {environment:?}: {shown:?}");
        }
    }
    for arguments in [&["evaluate", "run"][..], &[], &["--help"]] {
        let output = run(place.path(), arguments);
        assert!(!is_coloured(&(text(&output.stdout) + &text(&output.stderr))), "{arguments:?}");
    }
}
