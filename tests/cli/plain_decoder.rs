//! The numbers of `explain` and `inspect --why`, compared with a decoder in plain PyTorch, if it is installed.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::generate::json;
use crate::questions::COUNTING;
use crate::weights::peers::{Expected, peer};
use crate::{small_run, stdout_of};

/// Returns numbers as typed on the command line.
fn typed(tokens: &[u32]) -> String {
    tokens.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
}

/// A question of the command line about the token after `tokens`.
fn question(tokens: &[u32], answer: u32, more: Value) -> Value {
    let mut prompt = json!({"tokens": tokens, "answer": answer});
    prompt.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    prompt
}

/// Explains the run `name` with the given questions, or the loss on `tokens` if there are none.
fn explained(dir: &Path, name: &str, tokens: &[u32], prompts: &[Value]) -> Value {
    let ids = |value: &Value| typed(&serde_json::from_value::<Vec<u32>>(value.clone()).unwrap());
    let found = match prompts {
        [] => json(dir, &["explain", name, "--tokens", &typed(tokens), "--json"]),
        prompts => {
            let line = |prompt: &Value| {
                let mut line =
                    json!({"text": ids(&prompt["tokens"]), "answer": prompt["answer"].to_string()});
                if prompt["against"].is_u64() {
                    line["against"] = prompt["against"].to_string().into();
                }
                if prompt["corrupt"].is_array() {
                    line["corrupt"] = ids(&prompt["corrupt"]).into();
                }
                line.to_string()
            };
            fs::write(dir.join("prompts.jsonl"), prompts.iter().map(line).collect::<Vec<_>>().join("\n"))
                .unwrap();
            json(dir, &["explain", name, "--prompts", "prompts.jsonl", "--json"])
        }
    };
    json!([found, prompts])
}

/// Returns everything to compare about the run `name`: the loss on `tokens`, questions, and two attention scores.
fn case(dir: &Path, name: &str, tokens: &[u32], questions: &[&[Value]]) -> Value {
    stdout_of(dir, &["export", name, "--format", "transformers"]);
    let mut all = vec![explained(dir, name, tokens, &[])];
    all.extend(questions.iter().map(|prompts| explained(dir, name, &[], prompts)));
    let why = ["0.1:4:2", "1.0:5:1"].map(|why| {
        json!([json(dir, &["inspect", name, "--tokens", &typed(tokens), "--why", why, "--json"]), tokens])
    });
    json!({"export": dir.join(name).join("export/transformers"), "explained": all, "why": why})
}

/// The keys of a model in the shape of Llama.
const LLAMA: [&str; 6] = [
    "model.position=rotary",
    "model.norm_kind=rms",
    "model.activation=swiglu",
    "model.bias=false",
    "model.heads=4",
    "model.key_value_heads=2",
];

#[test]
#[ignore = "needs PyTorch and transformers: `.ci/run peers`"]
fn circuits_agree_with_a_plain_decoder() {
    let dir = TempDir::new().unwrap();
    let dir = dir.path();
    let random = ["gpt2", "llama-biased", "qwen2", "gpt2-large", "qwen3-stacked"];
    let models = dir.join("models");
    if !peer("families.py", &[&["make", models.to_str().unwrap()], &random[..]].concat()) {
        return;
    }
    let mut cases = Vec::new();
    for name in random {
        let folder = models.join(name);
        stdout_of(dir, &["import", folder.to_str().unwrap(), "--run", name]);
        // A model with random weights predicts its own greedy continuation.
        let tokens: Vec<u32> =
            Expected::read(&folder).numbers("greedy").1.into_iter().map(|id| id as u32).collect();
        let scores = json(dir, &["score", name, "--tokens", &typed(&tokens), "--json"]);
        let scores: Vec<f64> = serde_json::from_value(scores["log_probabilities"].clone()).unwrap();
        let surest = (8..scores.len()).max_by(|&a, &b| scores[a].total_cmp(&scores[b])).unwrap();
        let (prompt, answer) = (&tokens[..=surest], tokens[surest + 1]);
        let corrupt: Vec<u32> = prompt.iter().map(|token| (token + 5) % 29).collect();
        let against = json!({"against": (answer + 1) % 29, "corrupt": &corrupt});
        let questions = [against, json!({"corrupt": corrupt})].map(|more| [question(prompt, answer, more)]);
        cases.push(case(dir, name, &tokens, &[&questions[0], &questions[1]]));
    }
    for (name, sets) in [("trained-gpt2", &[][..]), ("trained-llama", &LLAMA)] {
        small_run(dir, &[&COUNTING[..], sets].concat(), name);
        let corrupted = json!({"against": 13, "corrupt": [1, 3, 5, 7, 9, 11]});
        let several = [
            question(&[2, 4, 6, 8], 10, json!({"against": 9})),
            question(&[1, 2, 3, 4, 5], 6, json!({"against": 7})),
            question(&[1, 3, 5, 7, 9, 11], 13, json!({"against": 12})),
        ];
        let single = [question(&[2, 4, 6, 8, 10, 12], 14, corrupted)];
        cases.push(case(dir, name, &[1, 3, 5, 7, 9, 11, 13, 15, 1, 3, 5], &[&single, &several]));
    }
    let explained: Vec<&Value> =
        cases.iter().flat_map(|case| case["explained"].as_array().unwrap()).map(|it| &it[0]).collect();
    let found = |list: &str| explained.iter().flat_map(|it| it[list].as_array().unwrap()).collect::<Vec<_>>();
    let counts = ["components", "edges"].map(|list| {
        let found = found(list);
        [found.len(), found.iter().filter(|it| it["estimated"].is_number()).count()]
    });
    assert!(counts[0][0] > 50 && counts[1][0] > 20 && counts[0][1] > 20 && counts[1][1] > 20, "{counts:?}");
    let mut files = Vec::new();
    for (at, explained) in explained.iter().enumerate() {
        files.push(dir.join(format!("{at}.json")).to_str().unwrap().to_string());
        fs::write(&files[at], explained.to_string()).unwrap();
    }
    assert!(peer("sentences.py", &files.iter().map(String::as_str).collect::<Vec<_>>()));
    let file = dir.join("cases.json");
    fs::write(&file, Value::Array(cases).to_string()).unwrap();
    assert!(peer("ablation.py", &[file.to_str().unwrap()]));
}
