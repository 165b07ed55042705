//! `generate` and `score`.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::{program, small_run, text};

pub fn run(folder: &Path, arguments: &[&str]) -> Output {
    program(folder).args(arguments).output().unwrap()
}

/// Returns the JSON that the program prints.
pub fn json(folder: &Path, arguments: &[&str]) -> Value {
    let output = run(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the only sample of `generate --json`.
fn sample(folder: &Path, arguments: &[&str]) -> Value {
    json(folder, arguments)["samples"][0].take()
}

fn numbers(values: &Value) -> Vec<f64> {
    values.as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
}

/// Counts the keys that contain `word`, anywhere in a value.
fn keys_with(value: &Value, word: &str) -> usize {
    match value {
        Value::Object(map) => {
            map.iter().map(|(key, value)| usize::from(key.contains(word)) + keys_with(value, word)).sum()
        }
        Value::Array(values) => values.iter().map(|value| keys_with(value, word)).sum(),
        _ => 0,
    }
}

#[test]
fn generated_probabilities_match_their_scores() {
    let dir = TempDir::new().unwrap();
    small_run(dir.path(), &["training.steps=30"], "run");
    let arguments = ["generate", "run", "--prompt", "3 1 4", "--max-new", "7", "--json"];
    let written = sample(dir.path(), &[&arguments[..], &["--greedy", "--alternatives", "3"]].concat());
    assert_eq!(keys_with(&written, "tokens"), 1, "{written}");
    let tokens = numbers(&written["tokens"]);
    assert_eq!(tokens.len(), 7);
    for (step, alternatives) in written["alternatives"].as_array().unwrap().iter().enumerate() {
        assert_eq!(alternatives.as_array().unwrap().len(), 3);
        assert_eq!(alternatives[0]["id"].as_f64(), Some(tokens[step]), "greedy takes the most likely token");
        assert_eq!(alternatives[0]["probability"], written["probabilities"][step]);
    }
    let with_commas = ["generate", "run", "--prompt", "3, 1,4", "--max-new", "7", "--json", "--greedy"];
    assert_eq!(sample(dir.path(), &with_commas)["tokens"], written["tokens"]);
    let sequence = format!("3 1 4 {}", tokens.iter().map(f64::to_string).collect::<Vec<_>>().join(" "));
    for option in ["--tokens", "--text"] {
        let scored = json(dir.path(), &["score", "run", option, &sequence, "--json"]);
        let scores = numbers(&scored["log_probabilities"]);
        assert_eq!(scores.len(), 9, "a score for each of ten tokens except the first");
        for (score, probability) in scores[2..].iter().zip(numbers(&written["probabilities"])) {
            assert!((score.exp() - probability).abs() < 1e-5, "{score} {probability}");
        }
        let mean = -scores.iter().sum::<f64>() / 9.0;
        assert!((scored["perplexity"].as_f64().unwrap() - mean.exp()).abs() < 1e-9);
    }

    let uncached = sample(dir.path(), &[&arguments[..], &["--greedy", "--no-cache"]].concat());
    assert_eq!(uncached["tokens"], written["tokens"]);
    let several = json(dir.path(), &[&arguments[..], &["--samples", "3", "--seed", "5"]].concat());
    let samples = several["samples"].as_array().unwrap();
    assert_eq!(samples.len(), 3);
    assert_ne!(samples[0]["tokens"], samples[1]["tokens"]);
    let single = sample(dir.path(), &[&arguments[..], &["--seed", "5"]].concat());
    assert_eq!(single["tokens"], samples[0]["tokens"]);
}

#[test]
fn generate_continues_prompts_and_honours_stop_strings() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("words.txt"), "to be or not to be, that is the question. ".repeat(40)).unwrap();
    let sets = ["data.source=text", "data.path=words.txt", "training.steps=60"];
    small_run(dir.path(), &sets, "run");
    let arguments = ["generate", "run", "--max-new", "40", "--temperature", "0"];
    let output = run(dir.path(), &[&arguments[..], &["--prompt", "to be"]].concat());
    let stdout = text(&output.stdout);
    assert!(
        stdout.starts_with("to be") && stdout.ends_with('\n') && stdout.chars().count() == 46,
        "{stdout:?}"
    );
    assert!(text(&output.stderr).starts_with("notice: the context of 12 tokens was full"));

    let mut child = program(dir.path())
        .args([&arguments[..], &["--prompt-file", "-"]].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"to be\n").unwrap();
    assert_eq!(
        text(&child.wait_with_output().unwrap().stdout),
        stdout,
        "a prompt from a pipe gives the same output"
    );

    let unstopped = sample(dir.path(), &[&arguments[..], &["--prompt", "to be", "--json"]].concat());
    let unstopped = unstopped["text"].as_str().unwrap();
    let (at, stop) = (3, &unstopped[3..5]);
    let arguments = [&arguments[..], &["--prompt", "to be", "--json", "--stop", stop]].concat();
    let stopped = sample(dir.path(), &arguments);
    assert_eq!(stopped["text"].as_str(), unstopped.find(stop).map(|first| &unstopped[..first]));
    assert!(stopped["text"].as_str().unwrap().len() <= at);
    assert_eq!(stopped["ended"], "stop_string");
}

#[test]
fn generated_text_reaches_a_pipe_unescaped() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("marks.txt"), "ab\u{200e}ba \u{202e}b\n".repeat(60)).unwrap();
    small_run(dir.path(), &["data.path=marks.txt", "data.vocab=auto", "training.steps=2"], "run");
    let arguments = ["generate", "run", "--prompt", "a\u{200e}b", "--max-new", "20"];
    let written = sample(dir.path(), &[&arguments[..], &["--json"]].concat());
    let stdout = text(&run(dir.path(), &arguments).stdout);
    assert_eq!(stdout, format!("a\u{200e}b{}\n", written["text"].as_str().unwrap()));
}

#[test]
fn an_encoder_decoder_answers_its_prompt() {
    let dir = TempDir::new().unwrap();
    let sets = ["model.architecture=encoder_decoder", "data.task=reverse", "training.steps=20"];
    small_run(dir.path(), &sets, "run");
    let answer = sample(dir.path(), &["generate", "run", "--prompt", "3 1 4", "--greedy", "--json"]);
    assert!(numbers(&answer["tokens"]).iter().all(|&token| token < 17.0));
    let endless = ["generate", "run", "--prompt", "3 1 4", "--ignore-end", "--max-new", "20", "--json"];
    assert_eq!(numbers(&sample(dir.path(), &endless)["tokens"]).len(), 20);
    let scored = json(dir.path(), &["score", "run", "--source", "3 1 4", "--text", "4 1 3 <end>", "--json"]);
    assert_eq!(numbers(&scored["log_probabilities"]).len(), 4, "every token of an answer has a score");
    let output = run(dir.path(), &["score", "run", "--text", "4 1 3"]);
    assert!(output.status.code() == Some(2) && text(&output.stderr).contains("--source"));
}

#[test]
fn commands_treat_inputs_beyond_the_context_alike() {
    let dir = TempDir::new().unwrap();
    for position in ["learned", "alibi"] {
        small_run(dir.path(), &["training.steps=2", &format!("model.position={position}")], position);
    }
    let long = "1 ".repeat(20);
    for arguments in [
        &["inspect", "--tokens", &long, "--json"][..],
        &["generate", "--tokens", &long, "--max-new", "3"],
        &["evaluate", "--set", "data.length=20"],
    ] {
        let output = |name| run(dir.path(), &[&arguments[..1], &[name], &arguments[1..]].concat());
        let expected = "the input of 20 tokens is longer than the training context of 12 tokens";
        let learned = output("learned");
        let stderr = text(&learned.stderr);
        if arguments[0] == "generate" {
            // The context slides over a long prompt, as over generated text.
            assert!(learned.status.success() && stderr.contains("only the last 12 are read"), "{stderr}");
        } else {
            assert_eq!(learned.status.code(), Some(2), "{arguments:?}: {stderr}");
            assert!(stderr.contains(expected) && stderr.lines().count() == 1, "{arguments:?}: {stderr}");
        }
        let read = output("alibi");
        let stderr = text(&read.stderr);
        assert!(read.status.success(), "{arguments:?}: {stderr}");
        let expected = match arguments[0] {
            "generate" => {
                "the prompt of 20 tokens is longer than the context of 12 tokens; the first new token depends on all \
                 of it, later ones on the last 6 to 20 tokens\n"
            }
            _ => expected,
        };
        assert!(stderr.contains(&format!("notice: {expected}")), "{arguments:?}: {stderr}");
        assert!(arguments[0] != "generate" || stderr.lines().count() == 1, "exactly one notice: {stderr}");
    }
    // An input that does not fit into memory is refused before it is computed.
    fs::write(dir.path().join("long.txt"), "1 ".repeat(300_000)).unwrap();
    let output = run(dir.path(), &["inspect", "alibi", "--text-file", "long.txt"]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("over 300,000 tokens need about") && stderr.contains("shorten the input"),
        "{stderr}"
    );
    // A longer text is scored in windows that fit the context.
    assert!(run(dir.path(), &["score", "learned", "--tokens", &long]).status.success());
}

/// Asserts that these arguments are refused in one line containing `part`, with no other output.
fn refuses(dir: &Path, arguments: &[&str], part: &str) {
    let output = run(dir, arguments);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
    assert!(
        stderr.lines().count() == 1 && stderr.contains(part),
        "{arguments:?}: expected {part:?} in {stderr}"
    );
    assert!(output.stdout.is_empty());
}

#[test]
fn unusable_options_are_refused_in_one_line() {
    let dir = TempDir::new().unwrap();
    small_run(dir.path(), &["training.steps=2"], "run");
    let endless = "9000000000000000000";
    let cases: [(&[&str], &str); 15] = [
        (
            &["generate", "run", "--prompt", "3", "--json", "--alternatives", "99999999999999"],
            "--alternatives 99999999999999: the vocabulary has only 16 tokens",
        ),
        (
            &["generate", "run", "--prompt", "3", "--json", "--alternatives", "16", "--max-new", "1000000"],
            "new tokens, each with 16 alternatives, fit into memory; lower either number",
        ),
        (
            &["generate", "run", "--prompt", "3", "--greedy", "--seed", "3"],
            "--seed has no effect with greedy decoding",
        ),
        (
            &["generate", "run", "--prompt", "3", "--greedy", "--samples", "3"],
            "--samples has no effect with greedy decoding",
        ),
        (
            &["generate", "run", "--prompt", "3", "--temperature", "0", "--top-p", "0.5"],
            "--top-p has no effect with greedy decoding",
        ),
        (
            &["generate", "run", "--prompt", "3", "--max-new", endless, "--json"],
            "fit into memory; lower either number",
        ),
        (
            &["generate", "run", "--prompt", "3", "--samples", endless, "--json"],
            "fit into memory; lower either number",
        ),
        (
            &["generate", "run", "--prompt", "3", "--samples", "2", "--max-new", endless],
            "16,777,216 new tokens",
        ),
        (
            &["generate", "run", "--prompt", "3", "--seed", "-1"],
            "'--seed <SEED>': must be a non-negative integer",
        ),
        (
            &["generate", "run", "--prompt", "3", "--top-p", "much"],
            "'--top-p <P>': must be a number, such as 0.5",
        ),
        (&["generate", "run", "--prompt", "3", "--alternatives", "3"], "--json"),
        (&["generate", "run", "--prompt", "3", "--samples", "0"], "--samples 0"),
        (&["generate", "run", "--prompt", "3", "--temperature", "-1"], "--temperature -1"),
        (&["generate", "run", "--prompt", "3", "--top-p", "1.01"], "--top-p 1.01"),
        (&["generate", "run", "--prompt", "3", "--greedy", "--top-k", "3"], "--top-k"),
    ];
    for (arguments, part) in cases {
        refuses(dir.path(), arguments, part);
    }
}

#[test]
fn row_ends_are_not_starts() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("rows.csv"), "a,b\nb,c,a\na,b,c\nc,a\n".repeat(30)).unwrap();
    small_run(dir.path(), &["data.path=rows.csv", "data.vocab=auto", "training.steps=2"], "run");
    let output = run(dir.path(), &["generate", "run"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("the prompt is empty"), "{}", text(&output.stderr));
}

#[test]
fn unusable_prompts_and_runs_are_refused() {
    let dir = TempDir::new().unwrap();
    small_run(dir.path(), &["training.steps=2"], "run");
    fs::write(dir.path().join("bytes"), [0x33, 0xff]).unwrap();
    let weights = fs::read(dir.path().join("run/model.safetensors")).unwrap();
    fs::create_dir(dir.path().join("damaged")).unwrap();
    for file in ["config.toml", "vocabulary.json"] {
        fs::copy(dir.path().join("run").join(file), dir.path().join("damaged").join(file)).unwrap();
    }
    fs::write(dir.path().join("damaged/model.safetensors"), &weights[..weights.len() - 9]).unwrap();
    let cases: [(&[&str], &str); 16] = [
        (&["generate", "run", "--prompt-file", "/dev/zero"], "/dev/zero: is a device"),
        (&["score", "run", "--text-file", "run"], "run: is a folder"),
        (&["generate", "run"], "the prompt is empty"),
        (&["generate", "run", "--prompt", ""], "the prompt is empty"),
        (&["generate", "run", "--prompt", "3 x"], "`x` (token 2)"),
        (&["generate", "run", "--tokens", "3 16"], "`16` (token 2) is outside the vocabulary"),
        (&["generate", "run", "--tokens", "3 x"], "`x` (token 2) is not a token id"),
        (&["generate", "run", "--tokens", "1,000 3"], "`1,000` is ambiguous"),
        (&["generate", "run", "--tokens", "1,,3"], "empty value before a comma"),
        (&["score", "run", "--text", "1, ,3"], "empty value before a comma"),
        (&["generate", "run", "--prompt", "3 1,050"], "`1,050` is ambiguous"),
        (
            &["generate", "run", "--prompt-file", "bytes"],
            "bytes:1: is not UTF-8 at byte 1; its encoding is unknown",
        ),
        (&["generate", "nowhere", "--prompt", "3"], "`nowhere`: no such run folder"),
        (&["generate", "damaged", "--prompt", "3"], "damaged/model.safetensors: is not a valid safetensors"),
        (&["score", "run"], "--text"),
        (&["score", "run", "--text", "3"], "at least two tokens"),
    ];
    for (arguments, part) in cases {
        refuses(dir.path(), arguments, part);
    }
}

#[test]
fn symbols_with_spaces_are_printed_and_read_back() {
    let dir = TempDir::new().unwrap();
    let symbols = ["place order", "pay", "send invoice", "send", "invoice"];
    let rows =
        (0..60).map(|at| serde_json::json!([symbols[at % 5], symbols[at * 7 % 5], "pay"]).to_string() + "\n");
    fs::write(dir.path().join("orders.jsonl"), rows.collect::<String>()).unwrap();
    let sets = ["data.path=orders.jsonl", "data.vocab=auto", "training.steps=3", "analysis.samples=1"];
    small_run(dir.path(), &sets, "run");
    let written = |prompt: &str| {
        sample(dir.path(), &["generate", "run", "--prompt", prompt, "--json", "--max-new", "2"])
    };
    // In ascending order: invoice, pay, place order, send, send invoice.
    assert_eq!(numbers(&written("\"place order\" pay")["prompt"]), [2.0, 1.0]);
    assert_eq!(numbers(&written("pay, place order")["prompt"]), [1.0, 2.0]);
    assert_eq!(numbers(&written("\"send\" invoice")["prompt"]), [3.0, 0.0]);
    let first = written("pay");
    let again = written(first["text"].as_str().unwrap());
    assert_eq!(again["prompt"], first["tokens"]);
    for (prompt, part) in [
        ("send invoice", "`send invoice` (word 1) is one symbol or the beginning of several"),
        ("pay place odr", "`place` (word 2) is not in the vocabulary of 5 symbols"),
    ] {
        for arguments in [["generate", "run", "--prompt", prompt], ["score", "run", "--text", prompt]] {
            let output = run(dir.path(), &arguments);
            let stderr = text(&output.stderr);
            assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
            assert!(
                stderr.contains(part)
                    && stderr.contains("in double quotes, as `\"")
                    && stderr.contains("--tokens"),
                "{stderr}"
            );
        }
    }
}

#[test]
fn non_finite_logits_are_refused() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    small_run(folder, &["training.steps=2"], "run");
    let exported = run(folder, &["export", "run", "--format", "safetensors", "--out", "out"]);
    assert!(exported.status.success(), "{}", text(&exported.stderr));
    let path = folder.join("out/model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    // All weights become huge but finite.
    let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    bytes[header..].chunks_exact_mut(4).for_each(|weight| weight.copy_from_slice(&3e38f32.to_le_bytes()));
    fs::write(&path, bytes).unwrap();
    let imported = run(folder, &["import", "out", "--run", "huge"]);
    assert!(imported.status.success(), "{}", text(&imported.stderr));
    let data = ["--set", "data.task=repeat", "--set", "data.vocab=16", "--set", "data.valid_samples=4"];
    let commands: [&[&str]; 4] = [
        &["generate", "huge", "--prompt", "1 2"],
        &["score", "huge", "--text", "1 2 3"],
        &["inspect", "huge", "--text", "1 2 3"],
        &[&["evaluate", "huge"], &data[..]].concat(),
    ];
    for command in commands {
        let output = run(folder, command);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{command:?}: {stderr}");
        assert!(stderr.contains("logits are not finite"), "{command:?}: {stderr}");
    }
}
