//! `explain`: the circuits that it finds, and its refusals.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use causal_attention::analysis::circuit::{Edge, Explanation, ExplanationStage, HeadInput, HeadKind};
use causal_attention::analysis::{Analysis, Score, shown_head};
use serde_json::Value;
use tempfile::TempDir;

use crate::{program, small_run, stdout_of, summary, text, train};

const COUNTING: [&str; 4] =
    ["data.task=arithmetic", "training.steps=120", "training.learning_rate=1e-2", "analysis.circuit=true"];

#[test]
fn a_circuit_of_another_run_is_refused() {
    let dir = TempDir::new().unwrap();
    small_run(dir.path(), &COUNTING, "own");
    small_run(dir.path(), &[&COUNTING[..], &["run.seed=5"]].concat(), "other");
    fs::copy(dir.path().join("other/circuit.json"), dir.path().join("own/circuit.json")).unwrap();
    for command in ["plot", "report", "explain"] {
        let output = program(dir.path()).args([command, "own"]).output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
        assert!(stderr.contains("circuit.json") && stderr.contains("another run"), "{stderr}");
    }
    fs::remove_file(dir.path().join("own/circuit.json")).unwrap();
    let output = program(dir.path()).args(["explain", "own"]).output().unwrap();
    assert!(output.status.success(), "the suggested command succeeds: {}", text(&output.stderr));
}

#[test]
fn run_without_gain_reports_no_circuit() {
    let dir = TempDir::new().unwrap();
    let sets = [
        "training.steps=1",
        "training.learning_rate=1e-9",
        "training.min_learning_rate=0",
        "analysis.circuit=true",
    ];
    let run = small_run(dir.path(), &sets, "run");
    let saved: Value = serde_json::from_slice(&fs::read(run.join("circuit.json")).unwrap()).unwrap();
    assert!(saved["no_circuit"].is_string() && saved["components"] == serde_json::json!([]), "{saved}");
    let given = ["explain", "run", "--tokens", "3 1 4 1 5 9 2 6 5 3"];
    for arguments in [&given[..], &["explain", "run"]] {
        let output = program(dir.path()).args(arguments).output().unwrap();
        let stdout = text(&output.stdout);
        assert!(output.status.success() && stdout.starts_with("Nothing to explain: the loss is"), "{stdout}");
    }
    assert!(run.join("plots/logit_lens.png").is_file() && !run.join("plots/circuit.png").exists());
}

#[test]
fn long_sequences_are_explained_only_in_part() {
    let dir = TempDir::new().unwrap();
    let long = [
        "data.length=1800",
        "data.train_samples=2",
        "data.valid_samples=2",
        "training.batch_size=1",
        "training.steps=1",
        "model.d_model=16",
        "model.heads=2",
        "analysis.snapshots=0",
        "analysis.every=0",
    ];
    let output = train(dir.path(), &long, &["--run", "run"]);
    let stderr = text(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(
        stderr.contains("only the first 1,672 of 1,800 tokens of each sequence are explained"),
        "{stderr}"
    );
    let lens = "the tuned lens is skipped: the training sequences have 1,800 tokens, but it is trained on at most 1,672\n";
    assert!(stderr.contains(lens), "{stderr}");
    for picture in ["loss.png", "heads.png", "logit_lens.png"] {
        assert!(dir.path().join("run/plots").join(picture).is_file(), "{picture}");
    }
}

#[test]
fn repeating_decoders_contain_an_induction_head() {
    let dir = TempDir::new().unwrap();
    let sets = [
        "data.vocab=32",
        "data.length=24",
        "training.steps=2100",
        "training.learning_rate=2e-3",
        "analysis.every=500",
    ];
    let output = train(dir.path(), &sets, &["--run", "run"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let read = |file: &str| fs::read(dir.path().join("run").join(file)).unwrap();
    let summary: Value = serde_json::from_slice(&read("summary.json")).unwrap();
    let gap = summary["best_valid_loss"].as_f64().unwrap() - summary["floor"].as_f64().unwrap();
    assert!(gap < 0.08, "the task is not solved: {gap}");

    let analysis: Analysis = serde_json::from_slice(&read("analysis.json")).unwrap();
    let layer = &analysis.heads[1];
    // The pictures show the most important head.
    let shown = &layer[shown_head(layer)];
    assert!(shown[Score::Ablation].unwrap() > 0.5, "ablating the head raises the loss: {shown:?}");
    assert!(shown[Score::Induction].unwrap() > 0.7, "the head is an induction head: {shown:?}");
    let circuit: Explanation = serde_json::from_slice(&read("circuit.json")).unwrap();
    assert!(circuit.random_effects.is_none(), "`train` omits random weights");
    let induction = circuit.components.iter().find(|part| part.kinds.contains(&HeadKind::Induction));
    let reader = induction.map(|part| (part.layer, part.head));
    let is_by_key = |edge: &&Edge| edge.from.1.is_some() && edge.input == Some(HeadInput::Key);
    let by_key = circuit.edges.iter().filter(is_by_key).find(|edge| Some(edge.to) == reader);
    let from = by_key.unwrap_or_else(|| panic!("{:?}", circuit.sentences)).from;
    assert_eq!((reader.unwrap().0, from.0), (1, 0), "{:?}", circuit.sentences);
    let history = String::from_utf8(read("head_scores.csv")).unwrap();
    assert!(history.lines().count() > 8 * 3, "the scores during training are recorded");
}

#[test]
fn explain_finds_and_saves_the_circuit() {
    let dir = TempDir::new().unwrap();
    // A quarter of a second of training is enough, because the previous token determines much of the next one.
    small_run(dir.path(), &COUNTING, "run");
    let without = small_run(dir.path(), &[&COUNTING[..], &["analysis.circuit=false"]].concat(), "without");
    assert!(!without.join("circuit.json").exists(), "`analysis.circuit=false` skips the circuit");
    let path = dir.path().join("run/circuit.json");
    let by_train = fs::read(&path).unwrap();
    let pictures = ["circuit.png", "logit_lens.png", "attribution.png", "patching.png"]
        .map(|it| dir.path().join("run/plots").join(it));
    for file in pictures.iter().chain([&path]) {
        fs::remove_file(file).unwrap_or_else(|error| panic!("train writes {}: {error}", file.display()));
    }
    let printed: Value = serde_json::from_str(&stdout_of(dir.path(), &["explain", "run", "--json"])).unwrap();
    assert!(!path.exists(), "--json writes no files");
    let sentences = stdout_of(dir.path(), &["explain", "run"]);
    assert!(pictures.iter().all(|picture| picture.is_file()));
    let by_explain = fs::read(&path).unwrap();
    let saved: Value = serde_json::from_slice(&by_explain).unwrap();
    assert_eq!(printed, saved, "explain is deterministic");
    check_evidence(&saved, serde_json::from_slice(&by_train).unwrap());
    let lines: Vec<&str> = saved["sentences"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(sentences.starts_with(&lines.join("\n")), "{sentences}");
    check_explanation(&saved, &sentences);

    let given: Value = serde_json::from_str(&stdout_of(
        dir.path(),
        &["explain", "run", "--tokens", "1 3 5 7 9 11 13 15 1 3 5", "--json"],
    ))
    .unwrap();
    let positions = given["positions"].as_array().unwrap();
    assert!(given["sequences"] == 1 && given["targets"] == positions.len(), "{positions:?}");
    assert!((5..=10).contains(&positions.len()), "a step that was seen is predicted: {positions:?}");
    stdout_of(dir.path(), &["explain", "run", "--tokens", "1 3 5 7 9 11 13 15 1 3 5"]);
    let stored: Value =
        serde_json::from_slice(&fs::read(dir.path().join("run/explain/circuit.json")).unwrap()).unwrap();
    assert_eq!(stored, given);
    assert_eq!(given["neuron_contexts"], "validation_set");
    let own = fs::read(dir.path().join("run/circuit.json")).unwrap();
    assert!(own == by_explain, "explaining an input does not change the run's own circuit");
    let most_important = summary(&dir.path().join("run"))["heads_worth_most"].clone();
    let analysis: Analysis =
        serde_json::from_slice(&fs::read(dir.path().join("run/analysis.json")).unwrap()).unwrap();
    let expected: Vec<usize> = analysis.heads.iter().map(|layer| shown_head(layer)).collect();
    assert_eq!(most_important, serde_json::json!(expected));

    stdout_of(dir.path(), &["export", "run", "--format", "transformers", "--out", "exported"]);
    fs::write(dir.path().join("given.json"), given.to_string()).unwrap();
    compare_with_transformer_lens(dir.path());
}

/// Checks intervals and random weights, which the explanation by `train` lacks.
fn check_evidence(saved: &Value, by_train: Value) {
    // `train` omits what random weights give.
    let mut without_random = saved.clone();
    let random = without_random.as_object_mut().unwrap().remove("random_effects").unwrap();
    let of_random = ["With random weights, ", "The effects of ", "These kinds are no evidence"];
    let is_random = |it: &Value| of_random.iter().any(|start| it.as_str().unwrap().starts_with(start));
    without_random["sentences"].as_array_mut().unwrap().retain(|it| !is_random(it));
    for component in without_random["components"].as_array_mut().unwrap() {
        let scores = component.get_mut("kind_scores").and_then(Value::as_array_mut);
        for score in scores.into_iter().flatten() {
            assert!(score.as_object_mut().unwrap().remove("random").unwrap().as_f64().is_some());
        }
    }
    assert_eq!(without_random, by_train);
    for (searched, bound) in [("connections", 0.1), ("neurons", 0.1), ("patching", 2.0)] {
        let largest = random[searched]["largest"].as_f64().unwrap_or(f64::INFINITY);
        assert!(largest < bound && random[searched]["tested"].as_u64() > Some(1), "{random}");
    }
    // Chance is the largest of as many effects as the model's own search tests.
    assert_eq!(random["connections"]["tested"], saved["connections"]["patched"]);
    assert_eq!(random["neurons"]["tested"], saved["neurons_tested"]);
    assert_eq!(random["components"], saved["ablated_alone"]);
    let sentences = saved["sentences"].as_array().unwrap().iter().filter_map(Value::as_str);
    let pairs = format!(" in {} pairs changes the logit difference by at most", saved["patching"]["pairs"]);
    assert!(
        sentences.clone().any(|it| it.starts_with("With random weights, restoring") && it.contains(&pairs))
    );
    let heads = saved["components"].as_array().unwrap().iter().filter(|it| it["head"].is_number());
    for head in heads {
        let kinds = head["kinds"].as_array().unwrap().iter().filter(|kind| *kind != "copying");
        let scores = head["kind_scores"].as_array().cloned().unwrap_or_default();
        assert!(kinds.eq(scores.iter().map(|it| &it["kind"])), "{head}");
        for score in scores {
            let [low, high] = [0, 1].map(|at| score["interval"][at].as_f64().unwrap());
            let value = score["score"].as_f64().unwrap();
            assert!(low <= value && value <= high && score["queries"].as_u64() > Some(30), "{score}");
            assert!((0.0..0.5).contains(&score["chance"].as_f64().unwrap()), "{score}");
            let kind = score["kind"].as_str().unwrap();
            let is_listed = random["kinds"].as_array().into_iter().flatten().any(|it| it[0] == kind);
            assert!(is_listed || kind == "separator", "{random}");
        }
    }
    let paths = sentences.filter(|it| it.contains(" reads the output of "));
    let names =
        paths.map(|it| it.contains("; mean-ablating this path at all positions ") && it.contains(" over "));
    assert!(names.clone().count() > 0 && names.into_iter().all(|is_named| is_named), "{saved}");
    let has_interval = |it: &Value| it["interval"].as_array().is_some_and(|it| it.len() == 2);
    for list in ["components", "edges", "neurons"] {
        let list = saved[list].as_array().unwrap();
        assert!(!list.is_empty() && list.iter().all(has_interval), "{saved}");
    }
}

/// Checks the contents of a stored explanation of counting, and its printed sentences.
fn check_explanation(saved: &Value, sentences: &str) {
    assert!((saved["faithfulness"].as_f64().unwrap() - 1.0).abs() <= 0.05, "{saved}");
    let losses = |lens: &str| saved[lens]["loss"].as_array().unwrap().iter().map(|it| it.as_f64().unwrap());
    let (plain, tuned): (Vec<_>, Vec<_>) = (losses("lens").collect(), losses("tuned_lens").collect());
    assert!(
        tuned[0] < plain[0] - 0.1 && tuned[1] < plain[1] + 0.05,
        "the tuned lens has a lower loss: {plain:?} {tuned:?}"
    );
    assert_eq!(tuned[2], plain[2], "both lenses agree after the last layer");
    let patching = &saved["patching"];
    assert!(patching["clean"].as_f64() > patching["corrupted"].as_f64(), "{patching}");
    let answers = &patching["pair"]["answers"];
    assert_ne!(answers[0], answers[1], "different steps have different answers");
    for part in saved["components"].as_array().unwrap() {
        assert_ne!(part["head"].is_u64(), part["feed_forward"] == true, "{part}");
        assert!(part["layer"].is_u64() && part["kinds"].is_array() && part["ablated"].is_f64());
    }
    let neurons = saved["neurons"].as_array().unwrap();
    let tested = format!("of the {} that were ablated, of ", saved["neurons_tested"]);
    assert!(saved["neurons_tested"].as_u64() >= Some(64) && sentences.contains(&tested), "{sentences}");
    assert!(
        neurons.len() == 8 && sentences.contains("it is most active in the validation set"),
        "{neurons:?}"
    );
    let change =
        |neuron: &Value| (neuron["ablated"].as_f64().unwrap() - saved["model"].as_f64().unwrap()).abs();
    assert!(neurons.is_sorted_by(|a, b| change(a) >= change(b)) && change(&neurons[0]) > 0.0, "{neurons:?}");
    assert!(neurons.iter().all(|it| (1..=5).contains(&it["contexts"].as_array().unwrap().len())));
}

/// Compares `given.json` with TransformerLens on the model in `exported`, if TransformerLens is installed.
fn compare_with_transformer_lens(dir: &Path) {
    let python = std::env::var("PEER_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/circuit.py");
    let peer = Command::new(&python).current_dir(dir).arg(script).args(["exported", "given.json"]).output();
    match peer {
        Ok(output) if output.status.code() != Some(77) => {
            assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
        }
        _ => eprintln!("notice: circuits are not compared, because `{python}` lacks TransformerLens"),
    }
}

#[test]
fn explain_finds_cross_attention_heads() {
    let dir = TempDir::new().unwrap();
    let sets = ["model.architecture=encoder_decoder", "data.task=reverse", "data.vocab=5", "data.length=8"];
    let more = [
        "training.steps=300",
        "training.learning_rate=0.01",
        "data.train_samples=4096",
        "analysis.circuit=true",
    ];
    small_run(dir.path(), &[&sets[..], &more].concat(), "run");
    let found = fs::read(dir.path().join("run/circuit.json")).expect("train writes the circuit");
    let found: Value = serde_json::from_slice(&found).unwrap();
    assert_eq!(found["cross_heads"], 4, "two layers of two heads");
    let components = found["components"].as_array().unwrap();
    assert!(components.iter().any(|part| part["cross"] == true), "{}", found["sentences"]);
    let parts: Vec<&str> =
        found["attribution"].as_array().unwrap().iter().map(|it| it["part"].as_str().unwrap()).collect();
    assert!(parts.contains(&"layer 1 cross-attention head 0"), "{parts:?}");
    assert!(dir.path().join("run/plots/circuit.png").is_file());
}

#[test]
fn unexplainable_inputs_are_refused_in_one_line() {
    let dir = TempDir::new().unwrap();
    small_run(dir.path(), &["training.steps=2"], "run");
    small_run(dir.path(), &["training.steps=2", "model.norm=post"], "post");
    small_run(dir.path(), &["training.steps=2", "model.architecture=one_layer"], "one");
    small_run(dir.path(), &["training.steps=2", "model.differential=true"], "differential");
    let reverse = ["training.steps=2", "model.architecture=encoder_decoder", "data.task=reverse"];
    small_run(dir.path(), &reverse, "reverse");
    let long = "1 ".repeat(40);
    for (arguments, expected) in [
        (&["explain", "post"][..], "`model.norm` = \"post\""),
        (&["explain", "one"], "one-layer decoder"),
        (&["explain", "differential"], "`model.differential` = true"),
        (&["inspect", "differential", "--tokens", "3 1", "--why", "0.0:1:0"], "`model.differential` = true"),
        (&["export", "differential", "--format", "llama"], "`model.differential` = true"),
        (&["explain", "reverse", "--tokens", "3 1"], "explained only on its validation set"),
        (&["explain", "run", "--tokens", "3"], "at least two"),
        (&["explain", "run", "--tokens", &long], "39 tokens is longer"),
        (&["explain", "run", "--tokens", "3 99"], "vocabulary"),
        (&["explain", "nowhere"], "no such run folder"),
    ] {
        let output = program(dir.path()).args(arguments).output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.lines().count() == 1 && stderr.contains(expected), "{arguments:?}: {stderr}");
    }
}

#[test]
fn an_ended_search_reports_what_is_known() {
    let dir = TempDir::new().unwrap();
    // 16 components, so that evaluating all smaller circuits takes long.
    let sets = [
        "data.task=arithmetic",
        "training.steps=120",
        "training.learning_rate=1e-2",
        "model.heads=7",
        "model.d_model=56",
    ];
    let run = small_run(dir.path(), &sets, "run");
    let cut = |options: &[&str]| {
        let printed = stdout_of(dir.path(), &[&["explain", "run", "--json"], options].concat());
        let found: Explanation = serde_json::from_str(&printed).unwrap();
        (found.components.len(), found.cut.map(|cut| cut.stages))
    };
    let (none, stages) = cut(&["--budget", "1e-6"]);
    assert!(none == 0 && stages.unwrap().contains(&ExplanationStage::Components));
    let (some, stages) = cut(&["--budget", "1e6"]);
    assert!(some > 0 && stages.is_none());

    let mut command = program(dir.path());
    command.args(["explain", "run", "--certify"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("sets of components evaluated")), "there is progress");
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let notice = lines.find(|line| line.contains("notice")).unwrap();
    assert_eq!(notice, "notice: interrupted; printing what is known; a second signal exits immediately");
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130));
    let printed = text(&ended.stdout);
    assert!(
        printed.contains("The search ended early, so the proof that no smaller circuit exists is unfinished"),
        "{printed}"
    );
    assert!(!run.join("circuit.json").exists(), "an interrupted search writes no files");
}
