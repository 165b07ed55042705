//! Tests that data is read right or refused where a wrong reading would go unnoticed.

use super::*;
use crate::data::config::{Quotes, Tokens};

/// Sets keys of a config.
type Change = fn(DataConfig) -> DataConfig;

pub(super) fn column(name: &str) -> Column {
    Column::Name(name.into())
}

/// Returns all sequences of a dataset as text, those for validation last.
pub(super) fn sequences(dataset: &Dataset) -> Vec<String> {
    let of = |set: &Sequences| {
        (0..set.len()).map(|row| dataset.vocabulary.decode(&set.sample(row).1)).collect::<Vec<_>>()
    };
    [of(&dataset.train), of(&dataset.valid)].concat()
}

pub(super) fn guesses(dataset: &Dataset) -> String {
    dataset.table.as_ref().unwrap().guesses.join("\n")
}

#[test]
fn quotations_in_tabbed_texts_keep_their_quotes() {
    let pairs = |file: &File| DataConfig {
        source_column: column("en"),
        target_column: column("de"),
        ..file.config()
    };
    let texts = |dataset: &Dataset| sequences(dataset).concat().replace("<sep>", "|").replace("<end>", " ");
    let quoted = File::new("a.tsv", "en\tde\n\"Hi,\" he said.\t\"Hallo\", sagt er.\nNo.\tNein.\n");
    let dataset = load(&pairs(&quoted), 0).unwrap();
    assert_eq!(texts(&dataset), " \"Hi,\" he said.|\"Hallo\", sagt er.  No.|Nein. ");
    assert!(guesses(&dataset).contains("line 2 has text after a closing quote"), "{}", guesses(&dataset));
    // The lines have the same number of values without the quotes, which would enclose a tab and line breaks.
    let spanning = File::new("a.tsv", "en\tde\n\"Hi\tHallo\nI go.\tIch gehe.\nBye\"\tAde\n");
    let dataset = load(&pairs(&spanning), 0).unwrap();
    assert_eq!(texts(&dataset), " \"Hi|Hallo  I go.|Ich gehe.  Bye\"|Ade ");
    assert!(guesses(&dataset).contains("set `data.quotes` = true"), "{}", guesses(&dataset));
    let enclosed = DataConfig { quotes: Quotes::Given(true), ..pairs(&spanning) };
    assert!(load(&enclosed, 0).unwrap_err().to_string().contains("has 1 sequence"));
    // Quotes that enclose values, as in CSV.
    let regular = File::new("a.csv", "en,de\n\"Hi, you\",\"say \"\"Hallo\"\"\"\n\"two\nlines\",zwei\n");
    let dataset = load(&pairs(&regular), 0).unwrap();
    assert_eq!(texts(&dataset), " Hi, you|say \"Hallo\"  two\nlines|zwei ");
    let misplaced = File::new("a.csv", "en,de\n\"Hi,\" he said.,Hallo\nx,y,z\n");
    assert_eq!(
        misplaced.problem(pairs(&misplaced)),
        "FILE:2: has text after a closing quote, or a quote that is never closed; set `data.delimiter` if another character \
         than comma separates the values, write two quotes for each quote within a value, or set `data.quotes` = false if \
         quotes are part of the values"
    );
}

#[test]
fn lines_of_texts_are_read_whole() {
    let lines = File::new("names.txt", "emma\nzoe van dyk\nC1=C, O|N\n");
    let config = DataConfig { tokens: Tokens::Characters, ..lines.config() };
    let dataset = load(&config, 0).unwrap();
    assert_eq!(sequences(&dataset).concat().replace("<end>", "/"), "/emma//zoe van dyk//C1=C, O|N/");
    assert_eq!(dataset.table.unwrap().format.to_string(), "lines");
    let table = File::new("names.csv", "emma\nZoe, Jr.\nava\nmia\nliam\n");
    let config = DataConfig { path: table.config().path, ..config };
    let problem = table.problem(config);
    assert!(problem.starts_with("FILE:2: has 2 values, but each line must be one text"), "{problem}");
}

#[test]
fn numbers_are_read_again_as_in_training() {
    let numbers = |text: &dyn Fn(usize) -> String| (0..60).map(text).collect::<String>();
    let decimal = numbers(&|row| format!("{},{}\n", row * row % 19, row % 7));
    for (text, difference) in
        [(decimal.as_str(), false), (&decimal, true), ("1\n5\n2\n8\n3\n9\n4\n7\n", true)]
    {
        let file = File::new("a.tsv", text);
        let config = DataConfig { column: Column::Number(1), bins: 4, difference, ..file.config() };
        let dataset = load(&config, 0).unwrap();
        let again = load_with(&config, 0, &dataset.vocabulary).unwrap();
        assert_eq!(again.fingerprint(), dataset.fingerprint(), "{text}");
        // The vocabulary records how the numbers were read.
        let other = DataConfig { bins: 0, difference: false, ..config };
        assert_eq!(load_with(&other, 0, &dataset.vocabulary).unwrap().fingerprint(), dataset.fingerprint());
    }
    let plain = File::new("a.csv", "1\n5\n2\n8\n3\n9\n4\n7\n");
    let config = DataConfig { column: Column::Number(1), bins: 3, ..plain.config() };
    let vocabulary = load(&config, 0).unwrap().vocabulary;
    let celsius: String = (0..40).map(|row| format!("{}\n", row % 9)).collect();
    let fahrenheit: String = (0..40).map(|row| format!("{}\n", 32 + row % 9 * 2)).collect();
    let [celsius, fahrenheit] = [celsius, fahrenheit].map(|text| File::new("t.csv", text));
    let series = |file: &File| DataConfig { column: Column::Number(1), bins: 4, ..file.config() };
    let run = load(&series(&celsius), 0).unwrap();
    let other = load_with(&series(&fahrenheit), 0, &run.vocabulary).unwrap();
    assert!(guesses(&other).contains("40 of 40 numbers are far outside"), "{}", guesses(&other));
    assert!(!guesses(&load_with(&series(&celsius), 0, &run.vocabulary).unwrap()).contains("far outside"));
    let changes = DataConfig { difference: true, ..config };
    let error = load_with(&changes, 0, &vocabulary).unwrap_err().to_string();
    assert!(error.starts_with("`data.difference` = true reads changes, but the weights"), "{error}");
    // Groups of a single number have no change, and are no part of any count.
    let groups = File::new("g.csv", "c,v\n1,5\n2,1\n2,4\n2,9\n3,2\n3,7\n4,1\n4,3\n");
    let config = DataConfig {
        column: column("v"),
        group_by: column("c"),
        bins: 2,
        difference: true,
        ..groups.config()
    };
    let dataset = load(&config, 0).unwrap();
    assert_eq!(dataset.train.targets() + dataset.valid.targets(), 4);
    assert!(guesses(&dataset).contains("line 2 has a single number, so it has no change and is left out"));
}

#[test]
fn zero_padded_integers_are_read_again_as_symbols() {
    let file = File::new("a.csv", "0274330,0796635\n0807550,0274330\n+0084483,0796635\n0807550,0084483\n");
    let dataset = load(&file.config(), 0).unwrap();
    assert_eq!(dataset.vocabulary.size(), 4);
    let again = load_with(&file.config(), 0, &dataset.vocabulary).unwrap();
    assert_eq!(again.fingerprint(), dataset.fingerprint());
    assert_eq!(
        dataset.vocabulary.encode("0796635 84483").unwrap(),
        dataset.vocabulary.encode("796635 +84483").unwrap()
    );
}

#[test]
fn columns_of_other_files_follow_their_names() {
    let file = File::new("a.csv", "t,a,b,c\n9,x,1,p\n8,y,2,q\n7,x,2,p\n6,y,1,q\n");
    let other = File::new("b.csv", "c,b,t,a\np,1,9,x\nq,2,8,y\np,2,7,x\nq,1,6,y\n");
    let change: [Change; 3] = [
        |config| DataConfig { ignore_columns: vec![column("t")], ..config },
        |config| DataConfig { columns: vec![Column::Number(2), Column::Number(4)], ..config },
        |config| DataConfig { group_by: Column::Number(2), column: Column::Number(3), ..config },
    ];
    for change in change {
        let dataset = load(&change(file.config()), 0).unwrap();
        let again = load_with(&change(other.config()), 0, &dataset.vocabulary).unwrap();
        assert_eq!(again.fingerprint(), dataset.fingerprint(), "{:?}", sequences(&again));
    }
    let folder = File::new("a.csv", "t,a,b\n9,x,1\n8,y,2\n");
    std::fs::write(folder.0.path().join("b.csv"), "b,a,t\n1,y,7\n2,x,6\n").unwrap();
    let config = DataConfig { ignore_columns: vec![column("t")], ..folder.config() };
    let dataset = load(&DataConfig { path: folder.0.path().into(), ..config }, 0).unwrap();
    assert_eq!(sequences(&dataset), ["x 1", "y 2", "y 1", "x 2"]);
    assert_eq!(dataset.table.unwrap().header.clone().unwrap(), ["t", "a", "b"]);
}

#[test]
fn weights_next_to_any_kind_of_record_are_refused() {
    let line = |record: &str| format!("{record}\n").repeat(4);
    let texts = |config| DataConfig { tokens: Tokens::Characters, column: column("text"), ..config };
    let groups = |config| DataConfig { group_by: column("c"), column: column("x"), ..config };
    let several = |config| DataConfig { columns: vec![column("a"), column("b")], ..config };
    let cases: [(&str, &str, Change, &str); 6] = [
        (
            "a.jsonl",
            "{\"prompt\": \"a\", \"completion\": \"xy\", \"loss_mask\": [0, 0]}",
            |config| config,
            "loss_mask",
        ),
        (
            "a.jsonl",
            "{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"weight\": 0}]}",
            |config| config,
            "weight",
        ),
        ("a.jsonl", "{\"text\": \"ab\", \"loss_mask\": [0, 1]}", texts, "loss_mask"),
        ("a.jsonl", "{\"c\": 1, \"x\": 2, \"weight\": 0.5}", groups, "weight"),
        ("a.jsonl", "{\"a\": 1, \"b\": 2, \"weights\": [0, 1]}", several, "weights"),
        ("a.csv", "a,b,loss_mask\n1,2,0\n2,1,0\n1,1,0\n2,2,0", several, "loss_mask"),
    ];
    for (name, record, change, field) in cases {
        let file = File::new(name, if name == "a.csv" { record.to_string() } else { line(record) });
        let problem = file.problem(change(file.config()));
        assert!(problem.contains(&format!("has a field `{field}`")), "{record}: {problem}");
    }
}

#[test]
fn special_tokens_within_texts_are_text() {
    let text = "{\"prompt\": \"tag a\", \"completion\": \"<sep> and <end> of a\"}\n".repeat(8);
    for tokens in [Tokens::Words, Tokens::Bpe, Tokens::Characters] {
        let file = File::new("a.jsonl", &text);
        // The objects are pairs with any tokens, and messages next to them are conversations.
        let dataset = load(&DataConfig { tokens: tokens.clone(), ..file.config() }, 0).unwrap();
        let (_, ids) = dataset.train.sample(0);
        let count = |name| ids.iter().filter(|&&id| dataset.vocabulary.token(id) == name).count();
        assert_eq!((count("<sep>"), count("<end>")), (1, 2), "{tokens}: {:?}", sequences(&dataset));
        let stored = serde_json::to_string(&dataset.vocabulary).unwrap();
        let read: Vocabulary = serde_json::from_str(&stored).unwrap();
        assert_eq!(read.encode("<end> of").unwrap(), dataset.vocabulary.encode("<end> of").unwrap());
    }
    let both = "{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}], \"prompt\": \"P\", \"completion\": \"C\"}\n";
    let file = File::new("a.jsonl", both.repeat(4));
    let dataset = load(&file.config(), 0).unwrap();
    assert!(!guesses(&dataset).contains("are read as pairs"), "{}", guesses(&dataset));
}

#[test]
fn sequences_without_targets_are_left_out() {
    let asked = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n";
    let answered = asked.replace("user", "assistant");
    let file = File::new("a.jsonl", format!("{asked}{}", answered.repeat(4)));
    let dataset = load(&file.config(), 0).unwrap();
    assert_eq!((dataset.train.len(), dataset.valid.len()), (2, 2));
    assert!(
        guesses(&dataset).contains("line 1 has no target that counts in the loss"),
        "{}",
        guesses(&dataset)
    );
    let none = File::new("a.jsonl", asked.repeat(4));
    assert!(none.problem(none.config()).contains("has no target that counts in the loss in one of the sets"));
}

#[test]
fn arrays_in_one_of_several_fields_are_refused() {
    let file = File::new("a.jsonl", "{\"c\": 1, \"x\": [\"B\", \"Q\"]}\n{\"c\": 1, \"x\": [\"B Q\"]}\n");
    let config = DataConfig { group_by: column("c"), column: column("x"), ..file.config() };
    assert!(
        file.problem(config).starts_with("FILE:1: has an array in `x`, but each field is one value here")
    );
    let zero = DataConfig { columns: vec![Column::Number(0)], ..file.config() };
    assert!(file.problem(zero).ends_with("is not the number of a column; columns are numbered from 1"));
}

#[test]
fn row_names_of_r_precede_any_columns() {
    let rows: String =
        (1..=60).map(|row| format!("\"{row}\",\"cat{}\",\"TAC{}\"\n", row % 7, row % 7)).collect();
    let file = File::new("a.csv", format!("\"en\",\"de\"\n{rows}"));
    let config = DataConfig { source_column: column("en"), target_column: column("de"), ..file.config() };
    let dataset = load(&config, 0).unwrap();
    assert_eq!(sequences(&dataset)[0], "<end>cat1<sep>TAC1<end>");
    assert!(guesses(&dataset).contains("as R writes it"), "{}", guesses(&dataset));
}

#[test]
fn equal_changes_share_a_bin() {
    let mut value = 2_000;
    let numbers: String = (0..400)
        .map(|row: i32| {
            value += [-1, 0, 1][(row * row % 7 % 3) as usize];
            format!("{}.{}\n", value / 10, value % 10)
        })
        .collect();
    let file = File::new("a.csv", numbers);
    let config = DataConfig { column: Column::Number(1), bins: 8, difference: true, ..file.config() };
    let dataset = load(&config, 0).unwrap();
    let labels: Vec<String> = (0..3).map(|id| dataset.vocabulary.token(id)).collect();
    assert_eq!((labels.join(" "), dataset.vocabulary.size()), ("<-0.05 -0.05–0.05 ≥0.05".into(), 3));
}

#[test]
fn rows_with_surplus_values_are_refused() {
    let rows = "what is 1,one\n".repeat(8);
    let file = File::new("a.csv", format!("question,answer\n{rows}what is 3, 5,no 8\n"));
    let pairs =
        DataConfig { source_column: column("question"), target_column: column("answer"), ..file.config() };
    for config in [pairs, DataConfig { column: column("answer"), ..file.config() }] {
        let problem = file.problem(config);
        assert!(problem.starts_with("FILE:10: has 3 values, but the header has 2 names"), "{problem}");
    }
}

#[test]
fn kinds_that_the_loss_ignores_are_refused() {
    let line = |record: &str| format!("{record}\n").repeat(4);
    for (record, field) in [
        ("{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"train\": false}]}", "train"),
        ("{\"prompt\": \"ab\", \"completion\": \"c\", \"labels\": [-100]}", "labels"),
    ] {
        let file = File::new("a.jsonl", line(record));
        assert!(file.problem(file.config()).contains(&format!("has a field `{field}`")), "{record}");
    }
    let rows: String = (0..40).map(|row| format!("{},\"[{}, {}]\"\n", row, row % 5, row % 3)).collect();
    let file = File::new("a.csv", format!("id,steps\n{rows}"));
    let single = File::new("b.csv", "id,steps\n1,3\n2,4\n");
    let config = DataConfig { column: column("steps"), valid_path: single.config().path, ..file.config() };
    assert!(
        file.problem(config).contains("is read as one long sequence, but `data.path` as several sequences")
    );
}

#[test]
fn values_that_json_distinguishes_stay_different_in_objects() {
    let rows = |group: &str, value: &str| {
        let rows = [(group, "\"a\""), ("\"7\"", value), ("\"7\"", "\"1\"")];
        rows.map(|(case, step)| format!("{{\"case\": {case}, \"step\": {step}}}\n")).concat()
    };
    let config =
        |file: &File| DataConfig { column: column("step"), group_by: column("case"), ..file.config() };
    for (group, value, problem) in [
        (
            "7",
            "\"a\"",
            "FILE:2: `7` occurs both with and without quotes, but a table would read both as one group",
        ),
        (
            "\"c\"",
            "1",
            "FILE:3: `1` occurs both with and without quotes, but a table would read both as one symbol",
        ),
        ("\"c\"", "0.12345678901234567890", "FILE:2: has a number with too many digits"),
    ] {
        let file = File::new("rows.jsonl", rows(group, value));
        let found = file.problem(config(&file));
        assert!(found.starts_with(problem), "{found}");
    }
    // Integers are the same token with and without quotes.
    let numbers = "{\"case\": 1, \"step\": 1}\n{\"case\": 1, \"step\": \"2\"}\n{\"case\": 2, \"step\": 2}\n{\"case\": 2, \"step\": 1}\n";
    let file = File::new("rows.jsonl", numbers);
    assert_eq!(sequences(&load(&config(&file), 0).unwrap()), ["1 2", "2 1"]);
}

#[test]
fn prepared_ids_without_keys_name_the_keys() {
    let file = File::new("rows.jsonl", "{\"input_ids\": [1, 2, 3], \"labels\": [-100, 2, 3]}\n".repeat(8));
    let problem = file.problem(file.config());
    assert!(problem.contains("`data.column` = \"input_ids\" with `data.values` = \"integers\""), "{problem}");
    let followed =
        DataConfig { column: column("input_ids"), values: crate::data::Values::Integers, ..file.config() };
    assert_eq!(sequences(&load(&followed, 0).unwrap())[0], "1 2 3");
}

#[test]
fn a_numbered_column_is_that_of_the_first_file() {
    let folder = tempfile::tempdir().unwrap();
    let day = |at: usize| ["sun", "rain", "sun", "rain"][at % 4];
    let first = |start: usize| {
        (0..9).map(|at| format!("{},{},{}\n", start + at, day(at), at % 2)).collect::<String>()
    };
    let second: String = (0..9).map(|at| format!("{},{},{}\n", at % 2, 20 + at, day(at))).collect();
    let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).unwrap();
    write("a.csv", format!("day,state,wind\n{}", first(0)));
    write("b.csv", format!("wind,day,state\n{second}"));
    write("c.csv", format!("day,state,wind\n{}", first(40)));
    let config = |column| DataConfig {
        source: Some(crate::data::Source::Table),
        path: folder.path().into(),
        column,
        length: 3,
        ..DataConfig::default()
    };
    let named = load(&config(column("state")), 0).unwrap();
    let numbered = load(&config(Column::Number(2)), 0).unwrap();
    assert_eq!(sequences(&numbered), sequences(&named));
    assert_eq!(numbered.table.as_ref().unwrap().header.as_ref().unwrap(), &["day", "state", "wind"]);
    assert_eq!(named.table.as_ref().unwrap().header.as_ref().unwrap(), &["day", "state", "wind"]);
    // The vocabulary remembers the order, in which other files are read.
    let again = load_with(&config(Column::Number(2)), 0, &numbered.vocabulary).unwrap();
    assert_eq!(again.fingerprint(), numbered.fingerprint());
}

#[test]
fn line_breaks_next_to_doubled_quotes_are_enclosed() {
    // Each line has one comma.
    let review = |row: usize| format!("{row},\"it was \"\"great\"\"\nreally, if you like it\"\n");
    let file = File::new("reviews.csv", (0..40).map(review).collect::<String>());
    let text = Column::Number(2);
    let config = DataConfig { column: text, tokens: Tokens::Characters, ..file.config() };
    let found = load(&config, 0).unwrap();
    assert_eq!(found.train.len() + found.valid.len(), 40);
}
