//! Tests of pairs, conversations and labels, which decide the targets that count.

use super::fields::{all, column};
use super::*;
use crate::data::config::{LongRows, LossOn, Tokens};
use crate::data::load_pairs;

#[test]
fn pairs_count_the_targets_of_answers() {
    let file = File::new("sums.tsv", "question\tanswer\n1+1\t2\n2+3\t5\n");
    let config =
        DataConfig { source_column: column("question"), target_column: column("answer"), ..file.config() };
    assert_eq!(all(&config), ["<end> 1 + 1 <sep> [2] [<end>]", "<end> 2 + 3 <sep> [5] [<end>]"]);
    let everywhere = DataConfig { loss_on: LossOn::All, ..config.clone() };
    assert_eq!(all(&everywhere)[1], "<end> [2] [+] [3] [<sep>] [5] [<end>]");
    let pairs = load_pairs(&config, 0).unwrap();
    // An encoder reads the source, which is thus never a target.
    let has_effect = |dataset: &Dataset| everywhere.unused_keys(Some(dataset)).readers("loss_on").is_none();
    assert!(has_effect(&load(&everywhere, 0).unwrap()) && !has_effect(&pairs));
    let (source, answer) = pairs.train.sample(0);
    let decode = |ids: &[u32]| pairs.vocabulary.decode(ids);
    assert_eq!((decode(&source), decode(&answer)), ("1+1".into(), "<end>2<end>".into()));
    let limited = |long_rows| {
        let config = DataConfig { long_rows, length: 2, valid_fraction: 0.25, ..config.clone() };
        let file = File::new("sums.tsv", "question\tanswer\n1\t7\n12\t345\n123\t4\n5\t6\n");
        load_pairs(&DataConfig { path: file.config().path, ..config }, 0).unwrap()
    };
    let shown = |pairs: &Dataset| -> Vec<String> {
        let shown = |ids: &[u32]| pairs.vocabulary.decode(ids).replace("<end>", ".");
        let pair = |(source, answer): (Vec<u32>, Vec<u32>)| format!("{} {}", shown(&source), shown(&answer));
        (0..pairs.train.len()).map(|index| pair(pairs.train.sample(index))).collect()
    };
    assert_eq!(shown(&limited(LongRows::Keep)), ["1 .7.", "12 .345.", "123 .4."]);
    assert_eq!(shown(&limited(LongRows::Cut)), ["1 .7.", "12 .34", "12 .4."]);
    let dropped = limited(LongRows::Drop);
    assert_eq!((shown(&dropped), dropped.table.unwrap().left_out), (vec!["1 .7.".to_string()], 2));
    let json = "{\"prompt\": \"1+1\", \"completion\": \"2\"}\n{\"prompt\": \"2+3\", \"completion\": \"5\"}\n";
    let file = File::new("sums.jsonl", json);
    assert_eq!(all(&file.config()), all(&config));
    let dataset = load(&file.config(), 0).unwrap();
    assert!(dataset.guesses().any(|guess| guess.contains("`prompt` and `completion` are read as pairs")));
}

#[test]
fn conversations_count_the_turns_of_the_assistant() {
    let line = |question: &str, answer: &str| {
        format!(
            "{{\"messages\": [{{\"role\": \"user\", \"content\": \"{question}\"}}, {{\"role\": \"assistant\", \
             \"content\": \"{answer}\"}}]}}\n"
        )
    };
    let file = File::new("chat.jsonl", line("hi", "yo") + &line("u?", "ok"));
    assert_eq!(
        all(&file.config()),
        [
            "<end> <user> h i <end> <assistant> [y] [o] [<end>]",
            "<end> <user> u ? <end> <assistant> [o] [k] [<end>]"
        ]
    );
    let words = DataConfig { tokens: Tokens::Words, ..file.config() };
    assert_eq!(all(&words)[0], "<end> <user> hi <end> <assistant> [yo] [<end>]");
    let lines = File::new("texts.jsonl", "\"to be\"\n\"or not\"\n");
    let config = DataConfig { tokens: Tokens::Words, ..lines.config() };
    assert_eq!(all(&DataConfig { valid_fraction: 0.5, ..config.clone() })[0], "<end> [to] [be] [<end>]");
    let objects = File::new("texts.jsonl", "{\"id\": 1, \"body\": \"to be\"}\n");
    let config = DataConfig { path: objects.config().path, ..config };
    assert!(objects.problem(config).contains("set `data.column` to the field with the texts"));
    let silent = "{\"messages\": [{\"role\": \"user\", \"content\": null}]}\n";
    let silent = File::new("chat.jsonl", silent);
    assert!(silent.problem(silent.config()).contains(":1: has a turn 1 without a text in `content`"));
}

#[test]
fn conversations_do_not_lose_content() {
    let conversation = |turn: &str, other: &str| {
        let turns =
            format!(r#"{{"role": "user", "content": "hi"}}, {{"role": "assistant", "content": "yo"{turn}}}"#);
        File::new("chat.jsonl", format!("{{\"messages\": [{turns}]{other}}}\n").repeat(2))
    };
    for (turn, other, problem) in [
        (r#", "tool_calls": [{"name": "get"}]"#, "", "a field `tool_calls`, which is not read"),
        (r#", "function_call": {"name": "get"}"#, "", "a field `function_call`, which is not read"),
        (r#", "mask": true"#, "", "a field `mask`, which changes the meaning"),
        (r#", "masked": 1"#, "", "a field `masked`, which changes the meaning"),
        ("", r#", "system": "answer yes""#, "a field `system` next to the turns, which is not read"),
    ] {
        let file = conversation(turn, other);
        assert!(file.problem(file.config()).contains(problem), "{turn} {other}");
    }
    let file = conversation(
        r#", "tool_calls": null, "name": "Ann""#,
        r#", "tools": [1], "functions": [], "split": "a""#,
    );
    let notice = "fields of conversations are not read: `name` of turns, `tools`; write";
    assert!(warnings(&file.config()).contains(notice), "{}", warnings(&file.config()));
    let cells = "messages\n\"[{\"\"role\"\": \"\"user\"\", \"\"content\"\": \"\"hi\"\"}]\"\n".to_string();
    let cells = File::new("chat.csv", cells.clone() + &cells[9..]);
    assert!(cells.problem(cells.config()).contains("write the conversations to a .jsonl file"));
}

#[test]
fn unread_context_of_pairs_is_reported() {
    let pair = |other: &str| {
        let text = format!("{{\"prompt\": \"colour?\", \"completion\": \"blue\"{other}}}\n");
        let file = File::new("pairs.jsonl", text.repeat(4));
        warnings(&DataConfig { tokens: Tokens::Characters, ..file.config() })
    };
    let found = pair(r#", "context": "the sky", "id": "7", "system": """#);
    assert!(found.contains(
        "fields of pairs are not read: `context`; write what the model must learn into the source"
    ));
    assert!(!pair(r#", "id": "7""#).contains("not read"));
}

#[test]
fn labels_mask_their_targets() {
    let text = "{\"input_ids\": [5, 6, 7, 8], \"labels\": [-100, -100, 7, 8]}\n\
        {\"input_ids\": [5, 6, 9], \"labels\": [5, 6, 9]}\n";
    let file = File::new("prepared.jsonl", text);
    let config = DataConfig { column: column("input_ids"), values: Values::Integers, ..file.config() };
    assert_eq!(all(&config), ["5 6 [7] [8]", "5 [6] [9]"]);
    let other = File::new("prepared.jsonl", text.replace("-100, 7", "-100, 6"));
    let config = DataConfig { path: other.config().path, ..config };
    assert!(load(&config, 0).unwrap_err().to_string().contains("has a field `labels`"));
    let csv = "input_ids,labels,attention_mask,class\n5 6 7 8,-100 -100 7 8,1 1 1 1,3\n\"[5, 6, 9]\",\"[5, 6, 9]\",1 1 1,4\n";
    let cells = |text: String| File::new("prepared.csv", text);
    let file = cells(csv.into());
    let config = DataConfig { column: column("input_ids"), values: Values::Integers, ..file.config() };
    assert_eq!(all(&config), ["5 6 [7] [8]", "5 [6] [9]"]);
    for (from, to, problem) in
        [("-100 7", "-100 6", "has a field `labels`"), ("1 1 1,4", "1 1 0,4", "has a field `attention_mask`")]
    {
        let file = cells(csv.replace(from, to));
        let config = DataConfig { path: file.config().path, ..config.clone() };
        assert!(load(&config, 0).unwrap_err().to_string().contains(problem), "{problem}");
    }
    let segments =
        File::new("packed.jsonl", "{\"input_ids\": [5, 6, 7], \"segment_ids\": [0, 0, 1]}\n".repeat(2));
    let config = DataConfig { path: segments.config().path, ..config };
    assert!(load(&config, 0).unwrap_err().to_string().contains("has a field `segment_ids`"));
}
