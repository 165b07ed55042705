//! Tests of selected columns, groups, texts and numbers.

use super::*;
use crate::data::config::{Binning, LongRows, Tokens};

pub(super) fn column(name: &str) -> Column {
    Column::Name(name.into())
}

/// Returns the samples of both splits in the order of the file, each with its counted targets in brackets.
pub(super) fn all(config: &DataConfig) -> Vec<String> {
    let dataset = load(config, 0).unwrap();
    let shown = |split: &Sequences| {
        let batch = split.batches(split.len()).next().unwrap();
        let row = |row: usize| {
            let at = row * batch.time..(row + 1) * batch.time;
            let last = batch.roles[at.clone()].iter().rposition(|&role| role != Role::Padding).unwrap();
            let mut shown = dataset.vocabulary.token(batch.inputs[at.start]);
            for index in at.start..=at.start + last {
                let token = dataset.vocabulary.token(batch.targets[index]);
                let is_counted = batch.roles[index] != Role::Padding;
                shown += &if is_counted { format!(" [{token}]") } else { format!(" {token}") };
            }
            shown
        };
        (0..batch.rows).map(row).collect::<Vec<_>>()
    };
    [shown(&dataset.train), shown(&dataset.valid)].concat()
}

const EVENTS: &str = "case,time,activity,cost\n\
    b,2024-01-02 09:00,start,5\n\
    a,2024-01-01 10:00,check it,7\n\
    a,2024-01-01 09:00,start,5\n\
    b,2024-01-10 09:00,pay,9\n\
    b,2024-01-02 10:00,check it,7\n\
    c,2024-02-01 09:00,start,5\n\
    c,2024-02-01 09:00,pay,9\n";

#[test]
fn rows_of_a_group_form_one_sequence() {
    let file = File::new("events.csv", EVENTS);
    let config = DataConfig { group_by: column("case"), column: column("activity"), ..file.config() };
    let in_file_order = DataConfig { valid_fraction: 0.4, ..config.clone() };
    assert_eq!(
        all(&in_file_order),
        ["start [pay] [check it] [<end>]", "check it [start] [<end>]", "start [pay] [<end>]"]
    );
    let drawn = |split| load(&DataConfig { split, ..config.clone() }, 0).unwrap().fingerprint();
    assert_eq!(drawn(RowSplit::Group), drawn(RowSplit::Auto));
    let without = DataConfig { split: RowSplit::Group, column: column("activity"), ..file.config() };
    assert!(load(&without, 0).unwrap_err().to_string().contains("set `data.group_by` to the column"));
    let config = DataConfig { order_by: column("time"), ..config };
    let ordered = ["start [check it] [pay] [<end>]", "start [check it] [<end>]", "start [pay] [<end>]"];
    assert_eq!(all(&config), ordered);
    // The columns can be selected by their numbers, and JSON objects have the same groups.
    let numbered = DataConfig {
        group_by: Column::Number(1),
        order_by: Column::Number(2),
        column: Column::Number(3),
        ..file.config()
    };
    assert_eq!(all(&numbered), ordered);
    let json: String = EVENTS
        .lines()
        .skip(1)
        .map(|line| {
            let values: Vec<&str> = line.split(',').collect();
            format!(
                "{{\"time\": \"{}\", \"activity\": \"{}\", \"case\": \"{}\"}}\n",
                values[1], values[2], values[0]
            )
        })
        .collect();
    let file = File::new("events.jsonl", json);
    assert_eq!(all(&DataConfig { path: file.config().path, ..config.clone() }), ordered);
    let dataset = load(&config, 0).unwrap();
    assert_eq!(dataset.table.unwrap().groups.as_ref().map(|it| it.len()), Some(3));
}

#[test]
fn several_columns_follow_one_another() {
    let file = File::new("events.csv", EVENTS);
    let grouped = DataConfig {
        group_by: column("case"),
        columns: vec![column("cost"), column("activity")],
        values: Values::Symbols,
        ..file.config()
    };
    assert_eq!(all(&grouped)[1], "7 [check it] [5] [start] [<end>]");
    let rows = DataConfig { columns: vec![column("activity"), column("cost")], ..file.config() };
    assert_eq!(all(&rows)[0], "start [5]");
    let ignoring = DataConfig { ignore_columns: vec![column("time"), Column::Number(1)], ..file.config() };
    assert_eq!(all(&ignoring), all(&rows));
    // One column is ordered by another.
    let stream =
        DataConfig { column: column("activity"), order_by: column("time"), length: 1, ..file.config() };
    let dataset = load(&stream, 0).unwrap();
    let first: Vec<u32> = dataset.train.ids().collect();
    assert_eq!(dataset.vocabulary.decode(&first), "start \"check it\" start \"check it\"");
}

#[test]
fn unusable_selections_name_the_key() {
    let file = File::new("events.csv", EVENTS);
    let problem = |change: &dyn Fn(&mut DataConfig)| {
        let mut config = file.config();
        change(&mut config);
        file.problem(config)
    };
    for (expected, change) in [
        (
            "`data.group_by` = cases is not a column of FILE; the columns are case, time, activity, cost",
            (&|config: &mut DataConfig| config.group_by = column("cases")) as &dyn Fn(&mut DataConfig),
        ),
        ("must name the column whose values form the sequence of a group", &|config| {
            config.group_by = column("case");
        }),
        ("`data.order_by` = time orders the rows of a group", &|config| config.order_by = column("time")),
        ("`data.order_by` = the column `activity` has values that are neither all numbers", &|config| {
            (config.group_by, config.order_by) = (column("case"), column("activity"));
            config.column = column("cost");
        }),
        ("`data.columns` = 9 is not a column of FILE, which has 4 columns", &|config| {
            config.columns = vec![Column::Number(1), Column::Number(9)];
        }),
        ("needs the other column of the pairs; set `data.target_column`", &|config| {
            config.source_column = column("case");
        }),
        ("must name the column with the texts", &|config| config.tokens = Tokens::Words),
        ("selects one column, but", &|config| {
            (config.column, config.columns) = (column("case"), vec![column("time")]);
        }),
        ("`data.difference` = true needs bins", &|config| config.difference = true),
        ("is not a number, but `data.bins` reads numbers", &|config| {
            (config.bins, config.column) = (4, column("activity"));
        }),
    ] {
        let problem = problem(change);
        assert!(problem.contains(expected), "{problem}");
    }
    let gap = File::new("events.csv", "case,activity\na,start\n,pay\nb,start\n");
    let config = DataConfig { group_by: column("case"), column: column("activity"), ..gap.config() };
    assert_eq!(gap.problem(config), "FILE:3: lacks a value in the column `case`; add it, or remove the row");
}

#[test]
fn texts_in_cells_are_sequences_of_characters() {
    let file = File::new("names.csv", "name,year\nemma,1\nava,2\n\"o, k\",3\n");
    let config = DataConfig { column: column("name"), tokens: Tokens::Characters, ..file.config() };
    assert_eq!(
        all(&config),
        ["<end> [e] [m] [m] [a] [<end>]", "<end> [a] [v] [a] [<end>]", "<end> [o] [,] [␣] [k] [<end>]"]
    );
    let dataset = load(&config, 0).unwrap();
    let again = load_with(&config, 0, &dataset.vocabulary).unwrap();
    assert_eq!(again.fingerprint(), dataset.fingerprint());
    let unknown = File::new("names.csv", "name,year\nzoe,1\n");
    let config = DataConfig { path: unknown.config().path, ..config };
    let error = crate::data::load_whole(&config, 0, &dataset.vocabulary).unwrap_err().to_string();
    assert!(
        error
            .ends_with("names.csv:2: `z` (character 1) is not in the vocabulary of 8 characters and `<end>`"),
        "{error}"
    );
    // A file of lines has one column without a name.
    let lines = File::new("names.txt", "emma\nava\nok\n");
    let config = DataConfig { tokens: Tokens::Characters, ..lines.config() };
    assert_eq!(all(&config)[0], "<end> [e] [m] [m] [a] [<end>]");
    let words = File::new("texts.jsonl", "{\"text\": \"to be\"}\n{\"text\": \"to be or not\"}\n");
    let config = DataConfig { column: column("text"), tokens: Tokens::Words, ..words.config() };
    assert_eq!(
        all(&DataConfig { valid_fraction: 0.5, ..config.clone() }),
        ["<end> [to] [be] [<end>]", "<end> [to] [be] [<unk>] [<unk>] [<end>]"]
    );
    let bpe = DataConfig { tokens: Tokens::Bpe, vocab: Count::Of(258), ..config };
    assert_eq!(load(&bpe, 0).unwrap().vocabulary.end(), Some(0));
}

#[test]
fn numbers_are_read_in_bins() {
    let text: String = (0..20).map(|day| format!("2024-01-{:02},{}.5\n", day + 1, day)).collect();
    let file = File::new("series.csv", format!("day,price\n{text}"));
    let config = DataConfig { column: column("price"), bins: 4, valid_fraction: 0.2, ..file.config() };
    let dataset = load(&config, 0).unwrap();
    assert_eq!(dataset.vocabulary.to_string(), "4 bins");
    // 16 training numbers; the later ones are in the last bin.
    let ids: Vec<u32> = dataset.train.ids().chain(dataset.valid.ids()).collect();
    assert_eq!(ids, [[0; 4], [1; 4], [2; 4], [3; 4], [3; 4]].concat());
    assert_eq!(dataset.vocabulary.token(1), "4–8");
    let again = load_with(&config, 0, &dataset.vocabulary).unwrap();
    assert_eq!(again.fingerprint(), dataset.fingerprint());
    let uniform = DataConfig { binning: Binning::Uniform, bins: 3, ..config.clone() };
    assert_eq!(load(&uniform, 0).unwrap().vocabulary.token(0), "<5.5");
    let commas = File::new("series.csv", format!("day;price\n{}", text.replace(',', ";").replace('.', ",")));
    let config = DataConfig { path: commas.config().path, ..config };
    let dataset = load(&config, 0).unwrap();
    assert_eq!(dataset.vocabulary.token(1), "4–8");
    assert!(dataset.guesses().any(|guess| guess.contains("numbers with a decimal comma")));
    // Each row has its own differences.
    let rows = File::new("rows.csv", "1,3,7\n5,5,6\n0,9,9\n1,1,1\n4,4,5\n");
    let config = DataConfig { bins: 2, difference: true, ..rows.config() };
    let dataset = load(&config, 0).unwrap();
    assert_eq!(dataset.train.time(), 1, "two differences are one input and one target");
}

#[test]
fn lists_in_cells_are_sequences_of_integers() {
    for text in ["id,steps\n1,\"[1, 7, 5]\"\n2,\"[3]\"\n3,\"[2, 2]\"\n", "id,steps\n1,1 7 5\n2,3\n3,2 2\n"] {
        let file = File::new("lists.csv", text);
        let config = DataConfig { column: column("steps"), ..file.config() };
        assert_eq!(all(&config), ["1 [7] [5] [<end>]", "3 [<end>]", "2 [2] [<end>]"], "{text}");
        let dataset = load(&config, 0).unwrap();
        assert!(dataset.guesses().any(|guess| guess.contains("is read as a sequence of integers")));
    }
}

#[test]
fn integers_with_large_gaps_become_symbols() {
    let file = File::new("sparse.csv", "1000001,20,1000001\n20,3000,20\n3000,20,1000001\n");
    let dataset = load(&file.config(), 0).unwrap();
    let tokens: Vec<String> = (0..3).map(|id| dataset.vocabulary.token(id)).collect();
    assert_eq!(tokens, ["20", "3000", "1000001"]);
    assert!(dataset.guesses().any(|guess| guess.contains("3 different integers reach up to 1,000,001")));
    let integers = DataConfig { values: Values::Integers, ..file.config() };
    assert_eq!(load(&integers, 0).unwrap().vocabulary.size(), 1_000_002);
    let dense = load(&File::new("dense.csv", "0,1,3\n1,0,2\n").config(), 0).unwrap();
    assert!(dense.vocabulary.is_integers() && dense.vocabulary.size() == 4);
}

#[test]
fn long_rows_are_cut_left_out_or_refused() {
    let file = File::new("rows.csv", "1,2,3,4,5\n1,2\n3,4\n5,1,2\n2,1\n");
    let of = |long_rows| DataConfig { long_rows, length: 2, ..file.config() };
    assert_eq!(all(&of(LongRows::Keep))[0], "1 [2] [3] [4] [5] [<end>]");
    assert_eq!(all(&of(LongRows::Cut))[0], "1 [2] [3]");
    assert_eq!(all(&of(LongRows::Drop)), ["1 [2] [<end>]", "3 [4] [<end>]", "2 [1] [<end>]"]);
    assert_eq!(load(&of(LongRows::Drop), 0).unwrap().table.unwrap().left_out, 2);
    assert!(
        file.problem(of(LongRows::Error)).starts_with("FILE:1: has 5 targets, more than `data.length` = 2")
    );
}

#[test]
fn tables_of_a_folder_are_joined_by_their_names() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.csv"), "x,y\n1,2\n3,4\n").unwrap();
    std::fs::write(folder.path().join("b.csv"), "y,x\n6,5\n8,7\n").unwrap();
    let config = DataConfig {
        path: folder.path().into(),
        split: RowSplit::Tail,
        valid_fraction: 0.5,
        ..DataConfig::default()
    };
    assert_eq!(config.source(), Source::Table);
    assert_eq!(all(&config), ["1 [2]", "3 [4]", "5 [6]", "7 [8]"]);
    std::fs::write(folder.path().join("b.csv"), "y,z\n6,5\n8,7\n").unwrap();
    let error = load(&config, 0).unwrap_err().to_string();
    assert!(error.contains("b.csv"), "{error}");
}

#[test]
fn errors_name_the_file_of_the_line() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let base = DataConfig { path: folder.path().into(), length: 2, ..DataConfig::default() };
    let problem = |config: &DataConfig| load(config, 0).unwrap_err().to_string();
    write("a.csv", "1,2\n1,2,3,4\n");
    write("b.csv", "3,4\n");
    let long = DataConfig { long_rows: LongRows::Error, ..base.clone() };
    assert!(problem(&long).contains("a.csv:2: has 4 targets"), "{}", problem(&long));
    write("a.csv", "id,x,t\n1,2,yesterday\n1,3,5\n");
    write("b.csv", "id,x,t\n1,4,6\n2,4,6\n");
    let ordered =
        DataConfig { column: column("x"), group_by: column("id"), order_by: column("t"), ..base.clone() };
    let error = problem(&ordered);
    assert!(error.contains("such as `yesterday` in line 2 of ") && error.contains("a.csv; write"), "{error}");
    write("a.csv", "id,x,t\n1,-2,1\n1,3,5\n");
    let integers = DataConfig { values: Values::Integers, ..ordered };
    assert!(problem(&integers).contains("a.csv:2: "), "{}", problem(&integers));
}

#[test]
fn validation_can_have_a_file_of_its_own() {
    let train = File::new("train.csv", "a,b\nb,a\na,a\n");
    let valid = File::new("valid.csv", "b,b\n");
    let config = DataConfig { valid_path: valid.config().path, ..train.config() };
    let [train, held_out] = both_splits(&config);
    assert_eq!((train.len(), held_out), (3, vec!["b b".to_string()]));
    // What is guessed about that file is reported too.
    let named = File::new("train.csv", "q,s\n1,a\n2,b\n1,b\n2,a\n");
    let nameless = File::new("valid.csv", "a,1\nb,2\n");
    let own = DataConfig { valid_path: nameless.config().path, values: Values::Symbols, ..named.config() };
    assert!(
        warnings(&own).contains(
            "valid.csv does not have a header, so its columns are read in the order of the run: q, s"
        )
    );
    let unknown = File::new("valid.csv", "b,c\n");
    let config = DataConfig { valid_path: unknown.config().path, ..config };
    let error = load(&config, 0).unwrap_err().to_string();
    assert!(error.contains("valid.csv:1: value 2: `c` is not in the vocabulary"), "{error}");
}
