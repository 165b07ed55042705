//! Commands as users of other programs would guess them: keys as options, data as the config, run names and presets.

use std::fs::{self, File};
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::generate::{json, run};
use crate::{SMALL, program, small_run, summary, text, train};

/// Runs a command, asserts that it is refused in one line with exit code 2, and returns the line.
fn refused(dir: &Path, arguments: &[&str]) -> String {
    let output = run(dir, arguments);
    let stderr = text(&output.stderr);
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{arguments:?}: {stderr}");
    stderr
}

fn names() -> String {
    (0..400).map(|i| format!("{}{}\n", ["anna", "bert", "cleo", "dora", "emil"][i % 5], i % 7)).collect()
}

#[test]
fn data_paths_may_look_like_toml_values() {
    let dir = TempDir::new().unwrap();
    for name in ["2024", "1e5", "true", "2024-01-05", "[a, b]"] {
        fs::create_dir(dir.path().join(name)).unwrap();
        fs::write(dir.path().join(name).join("names.txt"), names()).unwrap();
        let data = json(dir.path(), &["data", "--set", &format!("data.path={name}"), "--json"]);
        assert_eq!((&data["source"], &data["name"]), (&Value::from("text"), &Value::from(name)));
        assert_eq!(json(dir.path(), &["data", "--data", name, "--json"]), data);
    }
    for empty in [&["--set", "data.path="][..], &["--data", ""], &["--data="], &["--set", "data.path= "]] {
        let stderr = refused(dir.path(), &[&["train"], empty].concat());
        assert!(stderr.contains("data.path") && stderr.contains("the value is empty"), "{stderr}");
    }
    let stderr = refused(dir.path(), &["train", "--data", "2024", "--set", "data.task=sort"]);
    assert!(stderr.contains("`data.task` = \"sort\"") && stderr.contains("remove one of them"), "{stderr}");
}

#[test]
fn config_keys_are_also_train_options() {
    let dir = TempDir::new().unwrap();
    let options = ["--steps", "2", "--learning-rate=1e-2", "--seed", "7", "--name", "mine", "--layers=1"];
    let output = train(dir.path(), &SMALL, &options);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let mine = dir.path().join("runs/mine");
    assert_eq!(summary(&mine)["steps"], 2);
    let config: toml::Table = fs::read_to_string(mine.join("config.toml")).unwrap().parse().unwrap();
    assert_eq!(config["training"]["learning_rate"].as_float(), Some(1e-2));
    assert_eq!(
        (config["run"]["seed"].as_integer(), config["model"]["layers"].as_integer()),
        (Some(7), Some(1))
    );
    let help = text(&run(dir.path(), &["train", "--help"]).stdout);
    let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("A key with a unique name is also an option: --batch-size 16")
            && help.lines().count() < 80,
        "{help}"
    );
}

#[test]
fn option_names_of_other_programs_suggest_our_keys() {
    let dir = TempDir::new().unwrap();
    for (typed, expected) in [
        (&["--max-steps", "5"][..], "--set training.steps=5 or --steps 5"),
        (&["--steps", "5", "--steps", "6"], "--steps is passed twice"),
        (&["--steps", "5", "--epochs", "2"], "--epochs conflicts with --steps"),
        (&["--delimiter", " "], "use --delimiter space"),
        (&["--max_iters=5"], "--set training.steps=5"),
        (&["--iters", "5"], "--set training.steps=5"),
        (&["--num-epochs", "5"], "--set training.epochs=5"),
        (&["--batch", "8"], "--set training.batch_size=8"),
        (&["--bs", "8"], "--set training.batch_size=8"),
        (&["--min_lr=1e-5"], "--set training.min_learning_rate=1e-5"),
        (&["--grad-clip", "1"], "--set training.max_gradient_norm=1"),
        (&["--eval-interval", "9"], "--set training.validate_every=9"),
        (&["--warmup-steps", "9"], "--set training.warmup=9"),
        (&["--wd", "0.1"], "--set training.weight_decay=0.1"),
        (&["--dtype", "bf16"], "--set training.precision=bf16"),
        (&["--n-layer", "3"], "--set model.layers=3"),
        (&["--n_head", "2"], "--set model.heads=2"),
        (&["--n_embd", "32"], "--set model.d_model=32"),
        (&["--hidden-size", "32"], "--set model.d_model=32"),
        (&["--hidden", "32"], "--set model.d_model=32"),
        (&["--head-dim", "8"], "--set model.d_head=8"),
        (&["--dropout-rate", "0.1"], "--set model.dropout=0.1"),
        (&["--block-size", "64"], "--set data.length=64"),
        (&["--seq-len", "64"], "--set data.length=64"),
        (&["--file", "a.txt"], "--set data.path=a.txt"),
        (&["--dataset", "a.txt"], "--set data.path=a.txt"),
        (&["--tokenizer", "bpe"], "--set data.tokens=bpe"),
        (&["--set", "heads=2"], "use model.heads=2"),
        (&["--set", "lr=1"], "use training.learning_rate=1"),
        (&["--set", "model.head=2"], "did you mean `model.heads`?"),
        (&["--set", "training.lr=1"], "did you mean `training.learning_rate`?"),
        (&["--set", "model.n_layer=1"], "did you mean `model.layers`?"),
    ] {
        let stderr = refused(dir.path(), &[&["train"], typed].concat());
        assert!(stderr.contains(expected), "{typed:?}: {stderr}");
    }
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
}

#[test]
fn data_passed_as_config_suggests_the_data_option() {
    let dir = TempDir::new().unwrap();
    let write = |name: &str, text: &[u8]| fs::write(dir.path().join(name), text).unwrap();
    write("my.txt", b"To be, or not to be\n");
    write("rows.csv", b"a,b\n1,2\n");
    write("headings.md", b"# One\n# Two\n");
    write("empty", b"");
    write("latin.txt", b"r\xe9sum\xe9");
    File::create(dir.path().join("big.txt")).unwrap().set_len(300 << 20).unwrap();
    for command in ["train", "data", "tune"] {
        for name in ["my.txt", "rows.csv", "headings.md", "empty", "latin.txt", "big.txt"] {
            let stderr = refused(dir.path(), &[command, name]);
            assert!(stderr.contains(&format!("pass --data {name}")), "{command} {name}: {stderr}");
        }
    }
    fs::create_dir(dir.path().join("texts")).unwrap();
    assert!(refused(dir.path(), &["train", "texts"]).contains("or --data texts"));
    assert!(refused(dir.path(), &["train", "steps=5"]).contains("pass --steps=5"));
    write("broken.toml", b"[model]\nheads = = 2\n");
    assert!(refused(dir.path(), &["train", "broken.toml"]).contains("broken.toml:2:"));
    write("path.toml", b"[data]\npath = 2024\n");
    let stderr = refused(dir.path(), &["train", "path.toml"]);
    assert!(
        stderr.contains("path.toml:2: `data.path` = 2024 is not text; write it in quotes: \"2024\""),
        "{stderr}"
    );
}

#[test]
fn bare_run_names_resolve_below_runs() {
    let dir = TempDir::new().unwrap();
    let output = train(dir.path(), &SMALL, &["--name", "mine", "--steps", "4", "--until", "2"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    small_run(dir.path(), &["training.steps=2"], "other");
    let done = |arguments: &[&str]| {
        let output = program(dir.path()).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    done(&["train", "--resume", "mine"]);
    assert_eq!(summary(&dir.path().join("runs/mine"))["steps"], 4);
    for command in ["evaluate", "plot", "report"] {
        done(&[command, "mine", "--json"]);
    }
    done(&["compare", "mine", "other", "--json"]);
    done(&["inspect", "mine", "--tokens", "1 2 3", "--json"]);
    done(&["export", "mine", "--format", "safetensors"]);
    done(&["train", "--from", "mine", "--dry-run"]);
    let set = SMALL.map(|set| ["--set", set]).concat();
    done(&[&["train", "--dry-run", "--set", "run.from=mine"], &set[..]].concat());
    assert!(refused(dir.path(), &["evaluate", "nobody"]).contains("`nobody`"));
    let names = |sort: &str| {
        let listed = done(&["runs", "mine", "other", "--sort", sort]);
        listed.lines().map(|line| line.split(' ').next().unwrap().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names("loss"), names("best_valid_loss"));
    assert_eq!(names("name"), ["run", "mine", "other"]);
    let stderr = refused(dir.path(), &["runs", "--sort", "paramters"]);
    assert!(stderr.contains("did you mean `parameters`?"), "{stderr}");
}

#[test]
fn presets_are_part_of_the_program() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("input.txt"), names()).unwrap();
    let printed = text(&run(dir.path(), &["config", "--preset", "characters"]).stdout);
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/configs/characters.toml");
    assert_eq!(printed, fs::read_to_string(shipped).unwrap());
    let by_preset = run(
        dir.path(),
        &["train", "--preset", "characters", "--data", "input.txt", "--steps", "3", "--dry-run"],
    );
    assert!(by_preset.status.success(), "{}", text(&by_preset.stderr));
    assert!(text(&by_preset.stdout).starts_with("characters: dry run"), "{}", text(&by_preset.stdout));
    for arguments in [&["train", "--preset", "tiny"][..], &["config", "--preset", "tiny"]] {
        let stderr = refused(dir.path(), arguments);
        assert!(stderr.contains("'tiny'") && stderr.contains("characters, characters_long, "), "{stderr}");
    }
    let elsewhere = TempDir::new().unwrap();
    let missing = refused(elsewhere.path(), &["train", "--preset", "characters"]);
    assert!(missing.contains("`input.txt`") && missing.contains("--data FILE"), "{missing}");
    let both = refused(dir.path(), &["train", "a.toml", "--preset", "llama"]);
    assert!(both.contains("cannot be used with"), "{both}");
    let wrong = refused(dir.path(), &["data", "--preset", "characters", "--heads", "5"]);
    assert!(wrong.starts_with("error: --heads: `model.heads` = 5 must divide"), "{wrong}");
    let wrong = refused(dir.path(), &["data", "--steps", "abc"]);
    assert!(
        wrong.starts_with("error: --steps: `training.steps` = \"abc\" must be a positive integer"),
        "{wrong}"
    );
}
