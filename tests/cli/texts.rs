//! Texts, tokenizers and prompts of users, and the advice if they cannot be read.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::generate::{json as printed, run};
use crate::{program, small_run, text, train};

const LINE: &str = "Dès Noël, un zéphyr haï me vêt de glaçons würmiens.\r\n";

fn utf16(text: &str, order: fn(u16) -> [u8; 2]) -> Vec<u8> {
    text.encode_utf16().flat_map(order).collect()
}

/// Returns the error of `data` for a file that it refuses.
fn refused(folder: &Path, file: &str, more: &[&str]) -> String {
    let path = format!("data.path={file}");
    let output = run(folder, &[&["data", "--set", &path], more].concat());
    assert_eq!(output.status.code(), Some(2), "{file}: {}", text(&output.stdout));
    text(&output.stderr)
}

#[cfg(unix)]
#[test]
fn advice_for_unreadable_files_works() {
    let dir = TempDir::new().unwrap();
    let long = LINE.repeat(60);
    let latin1 = long.chars().map(|character| character as u8).collect::<Vec<_>>();
    let mut damaged = long.clone().into_bytes();
    damaged.insert(1000, 0xff);
    let cases = [
        (
            "little.txt",
            utf16(&long, u16::to_le_bytes),
            "UTF-16 (little endian, without a byte order mark)",
            long.as_str(),
        ),
        (
            "wide little.txt",
            long.chars().flat_map(|it| u32::from(it).to_le_bytes()).collect(),
            "UTF-32 (little endian, without a byte order mark)",
            &long,
        ),
        (
            "wide-big.txt",
            long.chars().flat_map(|it| u32::from(it).to_be_bytes()).collect(),
            "UTF-32 (big endian, without a byte order mark)",
            &long,
        ),
        ("big.txt", utf16(&long, u16::to_be_bytes), "UTF-16 (big endian, without a byte order mark)", &long),
        ("marked.txt", utf16(&format!("\u{feff}{long}"), u16::to_le_bytes), "UTF-16 (little endian)", &long),
        ("latin1.txt", latin1, "its encoding may be windows-1252", &long),
        ("it's damaged.txt", damaged, "damaged UTF-8", &long),
        ("nul.txt", format!("{long}\0").into_bytes(), "a NUL byte", &long),
    ];
    for (file, bytes, name, expected) in cases {
        fs::write(dir.path().join(file), bytes).unwrap();
        let stderr = refused(dir.path(), file, &[]);
        assert!(stderr.contains(name) && stderr.lines().count() == 1, "{file}: {stderr}");
        let command = stderr.split('`').nth(1).unwrap();
        let status = Command::new("sh").args(["-c", command]).current_dir(dir.path()).status().unwrap();
        assert!(status.success(), "{command}");
        let new = command.rsplit_once("> ").unwrap().1.trim_matches('\'').replace(r"'\''", "'");
        let read = fs::read_to_string(dir.path().join(&new)).unwrap();
        assert_eq!(read.trim_start_matches('\u{feff}'), expected, "{file}");
        let data = printed(dir.path(), &["data", "--json", "--set", &format!("data.path={new}")]);
        assert!(data["train"]["targets"].as_u64().unwrap() > 1000, "{file}: {data}");
    }
}

/// Returns the JSON of a tokenizer with one token per byte, modified by `change`.
fn tokenizer(change: impl Fn(&mut Value)) -> String {
    let mut tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
        "added_tokens": [
            {"id": 4, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": false},
            {"id": 5, "content": "<eos>", "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true}],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "vocab": {"a": 0, "b": 1, "\u{120}": 2, "\u{10a}": 3, "</s>": 4, "<eos>": 5}, "merges": []},
    });
    change(&mut tokenizer);
    tokenizer.to_string()
}

const TOKENIZED: [&str; 4] = ["--set", "data.path=ab.txt", "--set", "data.tokens=tokenizer.json"];

#[test]
fn gaps_in_token_ids_keep_output_clean() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("ab.txt"), "ab ba\n".repeat(200)).unwrap();
    let holes = tokenizer(|tokenizer| tokenizer["model"]["vocab"]["ab"] = json!(8));
    fs::write(dir.path().join("tokenizer.json"), holes).unwrap();
    let output = run(dir.path(), &[&["data", "--json"], &TOKENIZED[..]].concat());
    assert_eq!(text(&output.stderr), "");
    let data: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&data["vocab"], &data["end_of_text"]["token"]), (&json!(9), &json!("<eos>")));
}

#[test]
fn hostile_tokenizers_are_refused() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("ab.txt"), "ab ba\n".repeat(200)).unwrap();
    let replace = |pattern: &str, content: &str| json!({"type": "Replace", "pattern": {"String": pattern}, "content": content});
    let template = json!({"type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [77], "tokens": ["<s>"]}}});
    let cases = [
        ("normalizer", replace("", "x"), "normalizer has an empty pattern"),
        ("normalizer", replace("a", &"a".repeat(100_000)), "normalizer can make a text more than 64 times"),
        ("post_processor", template, "post_processor adds the token 77 to a text, but ids run from 0 to 5"),
    ];
    for (part, value, expected) in cases {
        let changed = tokenizer(|tokenizer| tokenizer[part] = value.clone());
        fs::write(dir.path().join("tokenizer.json"), changed).unwrap();
        let stderr = refused(dir.path(), "ab.txt", &TOKENIZED[2..]);
        assert!(stderr.contains(expected) && stderr.lines().count() == 1, "{stderr}");
    }
}

#[test]
fn files_without_an_end_token_are_warned_about() {
    let dir = TempDir::new().unwrap();
    fs::create_dir(dir.path().join("texts")).unwrap();
    for name in ["a.txt", "b.txt"] {
        fs::write(dir.path().join("texts").join(name), "ab ba\n".repeat(200)).unwrap();
    }
    let arguments = ["data", "--set", "data.path=texts", "--set", "data.tokens=tokenizer.json"];
    let described = |change: fn(&mut Value)| {
        fs::write(dir.path().join("tokenizer.json"), tokenizer(change)).unwrap();
        text(&run(dir.path(), &arguments).stdout)
    };
    let ordinary = described(|tokenizer| tokenizer["added_tokens"][1]["special"] = json!(false));
    assert!(ordinary.contains("warning: the tokenizer does not declare an end-of-text token"), "{ordinary}");
    let special = described(|_| {});
    assert!(
        special.contains("end of text <eos> (id 5), declared by the tokenizer's special tokens"),
        "{special}"
    );
    assert!(!special.contains("does not declare"), "{special}");
    fs::write(dir.path().join("tokenizer_config.json"), r#"{"eos_token": "</s>"}"#).unwrap();
    assert!(described(|_| {}).contains("end of text </s> (id 4), declared by tokenizer_config.json"));
}

#[test]
fn import_keeps_chat_template_and_end_token() {
    let dir = TempDir::new().unwrap();
    let (model, llama) = (dir.path().join("model"), Path::new("tests/peers/families/llama"));
    fs::create_dir(&model).unwrap();
    for file in ["config.json", "model.safetensors"] {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join(llama).join(file);
        fs::copy(from, model.join(file)).unwrap();
    }
    let template = "{% for message in messages %}\n  {{ message.content }}é{% endfor %}\n";
    fs::write(model.join("chat_template.jinja"), template).unwrap();
    fs::write(model.join("tokenizer.json"), tokenizer(|_| {})).unwrap();
    fs::write(model.join("tokenizer_config.json"), r#"{"eos_token": {"content": "b", "special": true}}"#)
        .unwrap();
    let imported = run(dir.path(), &["import", "model", "--run", "run"]);
    assert!(
        text(&imported.stdout).contains("end of text: b (id 1), declared by tokenizer_config.json"),
        "{imported:?}"
    );
    for (run_name, format, out) in [("run", "safetensors", "native"), ("native-again", "transformers", "out")]
    {
        let output = run(dir.path(), &["export", run_name, "--format", format, "--out", out]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(fs::read_to_string(dir.path().join(out).join("chat_template.jinja")).unwrap(), template);
        if out == "native" {
            assert!(run(dir.path(), &["import", out, "--run", "native-again"]).status.success());
        }
    }
    let config: Value =
        serde_json::from_slice(&fs::read(dir.path().join("out/config.json")).unwrap()).unwrap();
    assert_eq!(config["eos_token_id"], 1);
}

#[test]
fn long_prompts_keep_only_the_last_tokens() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("ab.txt"), "abba ab\n".repeat(60)).unwrap();
    small_run(
        dir.path(),
        &["training.steps=3", "data.path=ab.txt", "data.vocab=auto", "analysis.samples=1"],
        "run",
    );
    fs::write(dir.path().join("line.txt"), "ab\n").unwrap();
    let scored = printed(dir.path(), &["score", "run", "--text-file", "line.txt", "--json"]);
    assert_eq!(scored["tokens"].as_array().unwrap().len(), 3);

    let sample = |arguments: &[&str]| {
        let all = [&["generate", "run", "--greedy", "--max-new", "5", "--json"], arguments].concat();
        let output = run(dir.path(), &all);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        (json["samples"][0].clone(), text(&output.stderr))
    };
    // Without a prompt the text starts after a line break.
    let (written, stderr) = sample(&[]);
    assert_eq!(written["tokens"], sample(&["--prompt", "\n"]).0["tokens"]);
    assert!(stderr.contains("notice: without a prompt, the text starts after a line break"), "{stderr}");
    // For a prompt beyond the context of 12, only its last 12 tokens are read.
    let (written, stderr) = sample(&["--prompt", "abbbbbba ab\nab"]);
    assert!(
        stderr.contains("the prompt of 14 tokens is longer than the context of 12 tokens; only the last 12"),
        "{stderr}"
    );
    assert_eq!(written["prompt"].as_array().unwrap().len(), 14);
    let shortened = sample(&["--prompt", "bbbbba ab\nab"]).0;
    assert_eq!(written["tokens"], shortened["tokens"]);
    let uncached = sample(&["--prompt", "abbbbbba ab\nab", "--no-cache"]).0;
    assert_eq!(written["tokens"], uncached["tokens"]);
}

#[test]
fn oversized_prompts_are_refused() {
    let dir = TempDir::new().unwrap();
    let sets = ["training.steps=3", "data.vocab=16", "data.train_samples=32", "data.valid_samples=16"];
    let output = train(dir.path(), &sets, &["--run", "run"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let mut child = program(dir.path())
        .args(["generate", "run", "--prompt-file", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&b"3 ".repeat(10_000_000)).unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("the prompt of 10,000,000 tokens is longer than the maximum of 1,048,576"),
        "{stderr}"
    );
}

#[test]
fn paths_with_backslashes_suggest_single_quotes() {
    let dir = TempDir::new().unwrap();
    for path in [r"C:\Users\x.txt", r"C:\data\x.txt", r"D:\x\y.txt", r"C:\temp\new.txt"] {
        fs::write(dir.path().join("config.toml"), format!("[data]\npath = \"{path}\"\n")).unwrap();
        let output = run(dir.path(), &["data"]);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr.contains(" path in single quotes") && stderr.contains("forward slashes"), "{stderr}");
        // If the path is valid TOML, the error names the key instead of the line.
        assert!(stderr.contains("config.toml:2:") || stderr.contains("`data.path` = C:"), "{stderr}");
        fs::write(dir.path().join("config.toml"), format!("[data]\npath = '{path}'\n")).unwrap();
        assert!(!text(&run(dir.path(), &["data"]).stderr).contains("quotes"));
    }
}

#[test]
fn byte_order_marks_within_texts_are_refused() {
    let dir = TempDir::new().unwrap();
    let half = "Hello there, world.\n".repeat(50);
    fs::write(dir.path().join("a.txt"), format!("\u{feff}{half}\u{feff}{half}")).unwrap();
    let output = program(dir.path()).args(["data", "--data", "a.txt"]).output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
    assert!(stderr.contains("a.txt:51: has a byte order mark inside the text"), "{stderr}");
}

#[test]
fn invisible_characters_are_printed_as_escapes() {
    let dir = TempDir::new().unwrap();
    let line = "x\u{200b}y\u{a0}z\u{ad}\u{200e}\n";
    fs::write(dir.path().join("a.txt"), line.repeat(200)).unwrap();
    let output = program(dir.path()).args(["data", "--data", "a.txt"]).output().unwrap();
    let stdout = text(&output.stdout);
    assert!(stdout.contains("\\n x y z \\u{a0} \\u{ad} \\u{200b} \\u{200e}\n"), "{stdout}");
}

#[test]
fn a_text_whose_end_differs_is_warned_about() {
    let dir = TempDir::new().unwrap();
    let prose = "to be, or not to be, that is the question. ".repeat(1000);
    fs::write(dir.path().join("prose.txt"), &prose).unwrap();
    fs::write(dir.path().join("tail.txt"), format!("{prose}{}", "zzzz qqqq ".repeat(500))).unwrap();
    for (file, differs) in [("prose.txt", false), ("tail.txt", true)] {
        let output = run(dir.path(), &["data", "--set", &format!("data.path={file}")]);
        let warned = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(
            warned.contains("the end of the data, which is for validation, differs"),
            differs,
            "{warned}"
        );
    }
}
