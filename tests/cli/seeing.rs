//! What a run lets a person see: its page in a browser, its heads, and any input of their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use causal_attention::analysis::circuit::{Explanation, Input, Kind};
use causal_attention::analysis::{Analysis, Score, shown_head};
use serde_json::Value;
use tempfile::TempDir;

use super::{SMALL, program, small_run, summary, text, train};

/// A program of one of these names on the path.
pub(crate) fn installed(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let places = std::env::split_paths(&path).collect::<Vec<_>>();
    names.iter().flat_map(|name| places.iter().map(move |place| place.join(name))).find(|path| path.is_file())
}

/// Runs a command of the program in `folder`, and returns what it printed.
pub(crate) fn said(folder: &Path, arguments: &[&str]) -> String {
    let output = program(folder).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Clicks and points through a page in a real browser, by a script in `tests/page/`.
pub(crate) fn browse(script: &str, arguments: &[PathBuf]) {
    let (Some(node), Some(chromium)) =
        (installed(&["node"]), installed(&["chromium", "chromium-browser", "google-chrome"]))
    else {
        eprintln!("notice: no page is explored, for Node.js or Chromium is not installed");
        return;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page").join(script);
    let explored = Command::new(node).arg(script).arg(chromium).args(arguments).output().unwrap();
    let told = text(&explored.stdout) + &text(&explored.stderr);
    assert!(explored.status.success() && told.contains("checks of"), "{told}");
}

/// Explores the page of `run`, against what `report --json` says.
fn explore(folder: &Path, run: &str) {
    let expected = folder.join("expected.json");
    fs::write(&expected, said(folder, &["report", run, "--json"])).unwrap();
    browse("explore.mjs", &[folder.join(run).join("report.html"), expected]);
}

#[test]
fn the_page_of_a_run_says_what_the_run_did() {
    let place = TempDir::new().unwrap();
    small_run(place.path(), &["training.steps=40", "analysis.every=10", "analysis.samples=3"], "run");
    let size = fs::metadata(place.path().join("run/report.html")).unwrap().len();
    assert!(size < 3_000_000, "{size} bytes");
    explore(place.path(), "run");

    // Rebuilt from the folder alone, byte for byte.
    let before = fs::read(place.path().join("run/report.html")).unwrap();
    fs::remove_file(place.path().join("run/report.html")).unwrap();
    said(place.path(), &["report", "run"]);
    assert!(fs::read(place.path().join("run/report.html")).unwrap() == before);
}

#[test]
fn page_and_pictures_of_a_run_that_diverged_at_once_say_that_they_show_its_start() {
    let place = TempDir::new().unwrap();
    let sets = [
        "training.steps=40",
        "training.learning_rate=1e30",
        "training.min_learning_rate=0",
        "training.optimizer=sgd",
        "training.max_gradient_norm=0",
        "analysis.samples=1",
    ];
    assert_eq!(train(place.path(), &[&SMALL[..], &sets].concat(), &["--run", "run"]).status.code(), Some(1));
    assert!(summary(&place.path().join("run"))["best_step"].is_null(), "before its first validation");
    explore(place.path(), "run");
    let page: Value = serde_json::from_str(&said(place.path(), &["report", "run", "--json"])).unwrap();
    let start = "the untrained weights";
    assert_eq!(page["loss"]["weights"], start);
    said(place.path(), &["plot", "run", "--format", "svg", "--out", "svg"]);
    for picture in
        ["loss", "attention", "attention_over_time", "heads", "head_scores", "prediction", "generated"]
    {
        let svg = fs::read_to_string(place.path().join("svg").join(picture).with_extension("svg")).unwrap();
        assert!(svg.contains(start), "{picture}");
    }
}

#[test]
fn the_page_of_an_encoder_decoder_shows_its_cross_attention_and_its_encoder() {
    let place = TempDir::new().unwrap();
    let sets = ["model.architecture=encoder_decoder", "data.task=reverse", "training.steps=9"];
    // A smoothed objective is a curve of its own.
    let more = ["analysis.samples=2", "training.label_smoothing=0.1", "training.log_every=1"];
    small_run(place.path(), &[&sets[..], &more].concat(), "run");
    let page: Value = serde_json::from_str(&said(place.path(), &["report", "run", "--json"])).unwrap();
    for kind in ["attention", "cross", "encoder"] {
        assert_eq!(page["views"][0][kind].as_array().unwrap().len(), 2, "{kind} of both layers");
    }
    explore(place.path(), "run");
}

#[test]
fn text_of_a_vocabulary_is_never_markup() {
    let place = TempDir::new().unwrap();
    let row = "<script>alert(1)</script>,</script>,\"&\"\"\",<img src=x onerror=alert(2)>\n";
    fs::write(place.path().join("rows.csv"), row.repeat(60)).unwrap();
    let sets = ["data.source=table", "data.path=rows.csv", "training.steps=9", "analysis.samples=2"];
    small_run(place.path(), &sets, "run");
    let page = fs::read_to_string(place.path().join("run/report.html")).unwrap();
    assert!(!page.contains("<img src=x") && !page.contains("<script>alert"));
    explore(place.path(), "run");
}

/// Types into the page of `run`, against what `inspect --json` says of the same input.
fn type_into(
    folder: &Path,
    run: &str,
    source: Option<&str>,
    (ids, texts): (&str, &[&str]),
    unknown: &str,
    has_tour: bool,
) {
    let arguments = ["inspect", run, "--tokens", ids, "--json", "--no-ablation"];
    let source_arguments = source.map(|source| ["--source", source]);
    let arguments = [&arguments[..], source_arguments.as_ref().map_or(&[], |it| &it[..])].concat();
    let inspected: Value = serde_json::from_str(&said(folder, &arguments)).unwrap();
    // The token that an answer follows is no text.
    let text = texts[usize::from(source.is_some())..].join(" ");
    // A page shows control characters by their escapes.
    let texts: Vec<String> = texts.iter().map(|text| text.replace('\u{7}', "\\u{7}")).collect();
    let probabilities = inspected["probabilities"].as_array().unwrap().last().unwrap();
    let input = serde_json::json!({
        "text": text, "source": source, "source_tokens": inspected["source"], "tokens": inspected["tokens"], "texts": texts, "unknown": unknown,
        "probabilities": probabilities, "has_tour": has_tour,
    });
    fs::write(folder.join("input.json"), input.to_string()).unwrap();
    browse("live.mjs", &[folder.join(run).join("report.html"), folder.join("input.json")]);
}

#[test]
fn a_page_answers_what_is_typed_and_changed_in_it() {
    let place = TempDir::new().unwrap();
    // A quarter of a second of training: the token before says much of the next one.
    let sets = ["data.task=arithmetic", "training.steps=120", "training.learning_rate=1e-2"];
    small_run(place.path(), &sets, "run");
    type_into(
        place.path(),
        "run",
        None,
        ("1 3 5 7 9 11 13 15 1 3 5", &["1", "3", "5", "7", "9", "11", "13", "15", "1", "3", "5"]),
        "<b>x",
        true,
    );
}

#[test]
fn what_is_typed_of_a_hostile_vocabulary_is_never_markup() {
    let place = TempDir::new().unwrap();
    let row = "<script>alert(1)</script>,\u{202e}\u{7},\"&\"\"\",<img/src=x/onerror=alert(2)>\n";
    fs::write(place.path().join("rows.csv"), row.repeat(60)).unwrap();
    let sets = ["data.source=table", "data.path=rows.csv", "training.steps=9", "analysis.samples=2"];
    small_run(place.path(), &sets, "run");
    let vocabulary: Value =
        serde_json::from_slice(&fs::read(place.path().join("run/vocabulary.json")).unwrap()).unwrap();
    let symbols: Vec<&str> =
        vocabulary["symbols"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    type_into(place.path(), "run", None, ("1 2 3", &symbols[1..4]), "<img/src=y>", false);
}

#[test]
fn a_page_of_an_encoder_decoder_answers_a_typed_source() {
    let place = TempDir::new().unwrap();
    let sets = ["model.architecture=encoder_decoder", "data.task=reverse", "training.steps=9"];
    small_run(place.path(), &sets, "run");
    type_into(place.path(), "run", Some("7 2 3"), ("3 2 7", &["<end>", "3", "2", "7"]), "zz", false);
}

#[test]
fn inspect_shows_any_input_of_the_users() {
    let place = TempDir::new().unwrap();
    small_run(place.path(), &["training.steps=9"], "run");
    let json: Value =
        serde_json::from_str(&said(place.path(), &["inspect", "run", "--tokens", "3 1 4 1 5", "--json"]))
            .unwrap();
    assert_eq!(json["tokens"], serde_json::json!([3, 1, 4, 1, 5]));
    assert!(!place.path().join("run/inspect").exists(), "JSON alone leaves nothing");
    let weight = |layer: usize, head: usize, query: usize, key: usize| {
        json["weights"][layer][head][query][key].as_f64().unwrap()
    };
    for (layer, head) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        for query in 0..5 {
            let row = (0..5).map(|key| weight(layer, head, query, key)).collect::<Vec<_>>();
            assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-5, "{row:?}");
            assert!(row[query + 1..].iter().all(|&weight| weight == 0.0), "nothing looks ahead: {row:?}");
        }
        // Only the second 1, at place 3, has come before: at place 1, and place 2 followed it.
        let scores = &json["scores"][layer][head];
        let close = |name: &str, expected: f64| {
            assert!((scores[name].as_f64().unwrap() - expected).abs() < 1e-6, "{name}: {scores}");
        };
        close("induction", weight(layer, head, 3, 2));
        close("duplicate", weight(layer, head, 3, 1));
        close("self", (0..5).map(|place| weight(layer, head, place, place)).sum::<f64>() / 5.0);
        assert!(scores["zero_ablation"].is_f64());
    }
    let rows = json["probabilities"].as_array().unwrap();
    let sums =
        rows.iter().map(|row| row.as_array().unwrap().iter().map(|p| p.as_f64().unwrap()).sum::<f64>());
    assert!(rows.len() == 5 && sums.clone().all(|sum| (sum - 1.0).abs() < 1e-5));
    // What is scored and what is inspected come by two paths, the fast one and the one with weights.
    let scored: Value =
        serde_json::from_str(&said(place.path(), &["score", "run", "--tokens", "3 1 4 1 5", "--json"]))
            .unwrap();
    for (place, token) in [1usize, 4, 1, 5].into_iter().enumerate() {
        let by_maps = rows[place][token].as_f64().unwrap().ln();
        let fast = scored["log_probabilities"][place].as_f64().unwrap();
        assert!((by_maps - fast).abs() < 1e-5, "{by_maps} {fast}");
    }

    let arguments = ["inspect", "run", "--tokens", "3 1 4 1 5", "--json", "--no-ablation"];
    let mut without: Value = serde_json::from_str(&said(place.path(), &arguments)).unwrap();
    let mut with = json;
    for (layer, head) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        assert!(without["scores"][layer][head]["zero_ablation"].take().is_null());
        with["scores"][layer][head]["zero_ablation"].take();
    }
    assert_eq!(with, without, "all else is the same");

    said(place.path(), &["inspect", "run", "--text", "3 1 4 1 5", "--out", "seen", "--format", "svg"]);
    for file in ["attention.svg", "heads.svg", "head_scores.svg", "prediction.svg", "report.html"] {
        assert!(place.path().join("seen").join(file).is_file(), "{file}");
    }
}

#[test]
fn what_cannot_be_inspected_is_named_in_one_line() {
    let place = TempDir::new().unwrap();
    small_run(place.path(), &["training.steps=3"], "run");
    fs::write(place.path().join("file"), "").unwrap();
    let long = "1 ".repeat(40);
    let cases: [(&[&str], &[&str]); 11] = [
        (&["inspect", "run", "--tokens", "3 1", "--json", "--head", "1"], &["--head: ", "nothing is drawn"]),
        (&["inspect", "run", "--tokens", "3 1", "--json", "--format", "svg"], &["--format: ", "--out DIR"]),
        (&["plot", "run", "--format", "svg", "--scale", "2"], &["--scale: an SVG has no pixels"]),
        (&["inspect", "run", "--tokens", "3 999"], &["999", "vocabulary"]),
        (&["inspect", "run", "--tokens", "3 x"], &["`x`", "token 2"]),
        (&["inspect", "run", "--text", "3 ? 4"], &["?"]),
        (&["inspect", "run", "--tokens", ""], &["at least one token"]),
        (&["inspect", "run", "--tokens", &long], &["40", "12"]),
        (&["inspect", "run", "--tokens", "3 1", "--head", "7"], &["--head", "`model.heads` = 2"]),
        (&["inspect", "run", "--tokens", "3 1", "--out", "file"], &["`file`"]),
        (&["inspect", "nowhere", "--tokens", "3"], &["no run folder `nowhere`"]),
    ];
    for (arguments, parts) in cases {
        let output = program(place.path()).args(arguments).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{arguments:?} should say {parts:?}: {said}");
    }

    // As a run is that was killed.
    let summary = place.path().join("run/summary.json");
    fs::rename(&summary, place.path().join("summary")).unwrap();
    let output = program(place.path()).args(["plot", "run"]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    assert!(said.contains("not come to an end") && said.contains("`train --resume run`"), "{said}");
    fs::rename(place.path().join("summary"), &summary).unwrap();

    let metrics = place.path().join("run/metrics.csv");
    let own = fs::read(&metrics).unwrap();
    fs::write(&metrics, "step,epoch\n1,x\n").unwrap();
    for command in ["plot", "report"] {
        let output = program(place.path()).args([command, "run"]).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.contains("metrics.csv"), "{said}");
    }
    fs::write(&metrics, own).unwrap();
    fs::remove_file(place.path().join("run/model.safetensors")).unwrap();
    let output = program(place.path()).args(["inspect", "run", "--tokens", "3"]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    assert!(said.contains("model.safetensors") && said.contains("`train --resume run`"), "{said}");
}

#[test]
fn a_decoder_that_repeats_shows_its_induction_head() {
    let place = TempDir::new().unwrap();
    let output = train(place.path(), &["training.steps=2500"], &["--run", "run"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let read = |file: &str| fs::read(place.path().join("run").join(file)).unwrap();
    let summary: Value = serde_json::from_slice(&read("summary.json")).unwrap();
    let gap = summary["best_valid_loss"].as_f64().unwrap() - summary["floor"].as_f64().unwrap();
    assert!(gap < 0.08, "it is solved: {gap}");

    let analysis: Analysis = serde_json::from_slice(&read("analysis.json")).unwrap();
    let layer = &analysis.heads[1];
    // The head that the pictures show.
    let shown = &layer[shown_head(layer)];
    assert!(shown[Score::Ablation].unwrap() > 0.5, "without it the loss rises: {shown:?}");
    assert!(shown[Score::Induction].unwrap() > 0.7, "for it is the induction head: {shown:?}");
    let circuit: Explanation = serde_json::from_slice(&read("circuit.json")).unwrap();
    let induction = circuit.components.iter().find(|part| part.kinds.contains(&Kind::Induction));
    let reader = induction.and_then(|part| Some([part.layer, part.head?]));
    let by_key = circuit.edges.iter().find(|edge| Some(edge.to) == reader && edge.input == Input::Key);
    let from = by_key.unwrap_or_else(|| panic!("{:?}", circuit.sentences)).from;
    assert_eq!((reader.unwrap()[0], from[0]), (1, 0), "{:?}", circuit.sentences);
    let course = String::from_utf8(read("head_scores.csv")).unwrap();
    assert!(course.lines().count() > 8 * 12, "and how it came is kept");
}

#[test]
fn explain_names_a_circuit_of_a_run_and_writes_it_down() {
    let place = TempDir::new().unwrap();
    // A quarter of a second of training: the token before says much of the next one.
    let counting = ["data.task=arithmetic", "training.steps=120", "training.learning_rate=1e-2"];
    small_run(place.path(), &counting, "run");
    let without = small_run(place.path(), &[&counting[..], &["analysis.circuit=false"]].concat(), "without");
    assert!(!without.join("circuit.json").exists(), "nothing is explained where that is not asked for");
    let kept = place.path().join("run/circuit.json");
    let by_train = fs::read(&kept).unwrap();
    let pictures = ["circuit.png", "logit_lens.png", "attribution.png", "patching.png"]
        .map(|it| place.path().join("run/plots").join(it));
    for made in pictures.iter().chain([&kept]) {
        fs::remove_file(made).unwrap_or_else(|error| panic!("train leaves {}: {error}", made.display()));
    }
    let printed: Value = serde_json::from_str(&said(place.path(), &["explain", "run", "--json"])).unwrap();
    assert!(!kept.exists(), "JSON alone leaves nothing");
    let sentences = said(place.path(), &["explain", "run"]);
    assert!(pictures.iter().all(|picture| picture.is_file()));
    assert!(fs::read(&kept).unwrap() == by_train, "the same run is explained alike");
    let kept: Value = serde_json::from_slice(&by_train).unwrap();
    assert_eq!(printed, kept);
    let words: Vec<&str> = kept["sentences"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(sentences.starts_with(&words.join("\n")), "{sentences}");
    assert!((kept["gain_kept"].as_f64().unwrap() - 1.0).abs() <= 0.05, "{kept}");
    let losses = |lens: &str| kept[lens]["loss"].as_array().unwrap().iter().map(|it| it.as_f64().unwrap());
    let (plain, tuned): (Vec<_>, Vec<_>) = (losses("lens").collect(), losses("tuned_lens").collect());
    assert!(tuned[0] < plain[0] - 0.1 && tuned[1] < plain[1] + 0.05, "a map finds more: {plain:?} {tuned:?}");
    assert_eq!(tuned[2], plain[2], "the last stream is read as it is");
    let patching = &kept["patching"];
    assert!(patching["clean"].as_f64() > patching["corrupted"].as_f64(), "{patching}");
    let answers = &patching["pair"]["answers"];
    assert_ne!(answers[0], answers[1], "another step has another answer");
    for part in kept["components"].as_array().unwrap() {
        assert_ne!(part["head"].is_u64(), part["feed_forward"] == true, "{part}");
        assert!(part["layer"].is_u64() && part["kinds"].is_array() && part["mean_ablated_loss"].is_f64());
    }

    let given: Value = serde_json::from_str(&said(
        place.path(),
        &["explain", "run", "--tokens", "1 3 5 7 9 11 13 15 1 3 5", "--json"],
    ))
    .unwrap();
    assert_eq!((&given["sequences"], &given["targets"]), (&1.into(), &10.into()));
    said(place.path(), &["explain", "run", "--tokens", "1 3 5 7 9 11 13 15 1 3 5"]);
    let beside: Value =
        serde_json::from_slice(&fs::read(place.path().join("run/explain/circuit.json")).unwrap()).unwrap();
    assert_eq!(beside, given);
    let own = fs::read(place.path().join("run/circuit.json")).unwrap();
    assert!(own == by_train, "an input leaves the run's own circuit alone");
    let worth = summary(&place.path().join("run"))["heads_worth_most"].clone();
    let analysis: Analysis =
        serde_json::from_slice(&fs::read(place.path().join("run/analysis.json")).unwrap()).unwrap();
    let expected: Vec<usize> = analysis.heads.iter().map(|layer| shown_head(layer)).collect();
    assert_eq!(worth, serde_json::json!(expected));

    said(place.path(), &["export", "run", "--format", "transformers", "--out", "exported"]);
    fs::write(place.path().join("given.json"), given.to_string()).unwrap();
    let python = std::env::var("PEER_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/circuit.py");
    let peer =
        Command::new(&python).current_dir(&place).arg(script).args(["exported", "given.json"]).output();
    match peer {
        Ok(output) if output.status.code() != Some(77) => {
            assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
        }
        _ => eprintln!("notice: not compared with TransformerLens, which `{python}` does not have"),
    }
}

#[test]
fn explain_names_the_heads_of_an_encoder_decoder_that_read_its_source() {
    let place = TempDir::new().unwrap();
    let sets = ["model.architecture=encoder_decoder", "data.task=reverse", "data.vocab=5", "data.length=8"];
    let more = ["training.steps=300", "training.learning_rate=0.01", "data.train_samples=4096"];
    small_run(place.path(), &[&sets[..], &more].concat(), "run");
    let found = fs::read(place.path().join("run/circuit.json")).expect("train explains it");
    let found: Value = serde_json::from_slice(&found).unwrap();
    assert_eq!(found["cross_heads"], 4, "two layers of two heads");
    let components = found["components"].as_array().unwrap();
    assert!(components.iter().any(|part| part["cross"] == true), "{}", found["sentences"]);
    let parts: Vec<&str> =
        found["attribution"].as_array().unwrap().iter().map(|it| it["part"].as_str().unwrap()).collect();
    assert!(parts.contains(&"layer 1 cross-attention head 0"), "{parts:?}");
    assert!(place.path().join("run/plots/circuit.png").is_file());
}

#[test]
fn what_cannot_be_explained_is_named_in_one_line() {
    let place = TempDir::new().unwrap();
    small_run(place.path(), &["training.steps=2"], "run");
    small_run(place.path(), &["training.steps=2", "model.norm=post"], "post");
    small_run(place.path(), &["training.steps=2", "model.architecture=one_layer"], "one");
    let reverse = ["training.steps=2", "model.architecture=encoder_decoder", "data.task=reverse"];
    small_run(place.path(), &reverse, "reverse");
    let long = "1 ".repeat(40);
    for (arguments, named) in [
        (&["explain", "run"][..], "no circuit is named"),
        (&["explain", "post"], "post-norm"),
        (&["explain", "one"], "one-layer decoder"),
        (&["explain", "reverse", "--tokens", "3 1"], "explained on its validation set"),
        (&["explain", "run", "--tokens", "3"], "at least two"),
        (&["explain", "run", "--tokens", &long], "39 tokens is longer"),
        (&["explain", "run", "--tokens", "3 99"], "vocabulary"),
        (&["explain", "nowhere"], "no run folder"),
    ] {
        let output = program(place.path()).args(arguments).output().unwrap();
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
        assert!(told.lines().count() == 1 && told.contains(named), "{arguments:?}: {told}");
    }
}
