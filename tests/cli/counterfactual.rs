//! Interventions during training: exact resume, validations that include them, and refused ones.

use tempfile::TempDir;

use crate::{SMALL, assert_same_result, resume, rows, small_run, text, train};

const INTERVENE: &str = "training.intervene=[{ at = \"0.1\", kind = \"clamp_pattern\", pattern = \"previous_token\", until = 20 }, \
                         { at = \"1.mlp\", kind = \"mean_ablate\", from = 5, until = 25 }, { at = \"1.0\", kind = \"freeze\" }]";

#[test]
fn runs_with_interventions_resume_exactly() {
    let dir = TempDir::new().unwrap();
    let sets = ["training.steps=30", "training.validate_every=10", INTERVENE];
    let whole = small_run(dir.path(), &sets, "whole");
    // In the middle of one intervention and after the end of none.
    let sets = [&SMALL[..], &sets].concat();
    for (name, until) in [("early", "4"), ("middle", "20")] {
        assert!(train(dir.path(), &sets, &["--run", name, "--until", until]).status.success());
        let output = resume(dir.path(), name).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_same_result(&dir.path().join(name), &whole);
    }
    let plain = small_run(dir.path(), &sets[SMALL.len()..SMALL.len() + 2], "plain");
    assert_ne!(rows(&plain), rows(&whole));
}

#[test]
fn impossible_interventions_are_refused_in_one_line() {
    let dir = TempDir::new().unwrap();
    for (intervention, problem) in [
        (r#"{ at = "2.0", kind = "freeze" }"#, "is not part of the model, which has 2 layers of 2 heads"),
        (r#"{ at = "0.2", kind = "freeze" }"#, "is not part of the model"),
        (r#"{ at = "0", kind = "freeze" }"#, "is not a component; write a head as 1.3"),
        (r#"{ at = "cross.0.0", kind = "zero_ablate" }"#, "is not part of the model"),
        (r#"{ at = "0.0", kind = "clamp_pattern" }"#, "needs the key `pattern`: \"previous_token\""),
        (
            r#"{ at = "0.mlp", kind = "clamp_pattern", pattern = "first_token" }"#,
            "needs a head of the self-attention",
        ),
        (r#"{ at = "0.0", kind = "freeze", pattern = "first_token" }"#, "has no effect"),
        (r#"{ at = "0.0", kind = "freeze", from = 5, until = 5 }"#, "must be after the first step, 5"),
        (
            r#"{ at = "0.0", kind = "freeze" }, { at = "0.0", kind = "zero_ablate", from = 7 }"#,
            "is also changed by training.intervene[0]",
        ),
        (r#"{ at = "0.0", kind = "remove" }"#, "kind"),
        (r#"{ kind = "freeze" }"#, "missing field `at`"),
    ] {
        let set = format!("training.intervene=[{intervention}]");
        let output = train(dir.path(), &[&SMALL[..], &[&set]].concat(), &["--run", "run"]);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{intervention}: {stderr}");
        assert!(
            stderr.contains(problem) && stderr.contains("training.intervene"),
            "{intervention}: {stderr}"
        );
        assert!(!dir.path().join("run").exists());
    }
}
