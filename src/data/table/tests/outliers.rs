//! Tests of values that do not belong to their column: totals, outliers and lists.

use super::first_lines::rows;
use super::*;
use crate::data::config::Binning;

/// Returns the config of a column of numbers in bins.
fn bins(file: &File) -> DataConfig {
    DataConfig { column: Column::Name("sales".into()), bins: 4, ..file.config() }
}

fn sales(last: &str) -> String {
    let rows = (0..60).map(|row| format!("s{},{}\n", row % 5, 10 + row * 7 % 31));
    format!("store,sales\n{}{last}", rows.collect::<String>())
}

#[test]
fn a_total_is_not_a_row() {
    let total: usize = (0..60).map(|row| 10 + row * 7 % 31).sum();
    for last in [format!("Total,{total}\n"), format!(",{total}.00\n")] {
        let file = File::new("a.csv", sales(&last));
        let problem = file.problem(bins(&file));
        assert!(problem.starts_with(&format!("FILE:62: `{total}")), "{problem}");
        assert!(problem.ends_with("is the sum of all other numbers: a total, not a row; remove this line"));
        let groups = DataConfig { group_by: Column::Name("store".into()), ..bins(&file) };
        assert!(!file.problem(groups).is_empty());
    }
    let whole = File::new("a.csv", sales(""));
    assert_eq!(warnings(&bins(&whole)), "");
    // A few numbers may add up by chance.
    let few = File::new("a.csv", "sales\n1\n2\n3\n4\n10\n3\n4\n");
    assert!(load(&bins(&few), 0).is_ok());
}

#[test]
fn a_total_of_integers_is_not_a_row() {
    let numbers = (0..60).map(|row| 10 + row * 7 % 31);
    let rows: String = numbers.clone().map(|number| format!("{number}\n")).collect();
    let total: usize = numbers.sum();
    let file = File::new("a.csv", format!("{rows}{total}\n"));
    let config = DataConfig { column: Column::Number(1), ..file.config() };
    let problem = file.problem(config);
    assert!(problem.starts_with(&format!("FILE:61: `{total}` is the sum of all other numbers")), "{problem}");
}

#[test]
fn summaries_below_a_table_are_reported() {
    let found = |last: &str, symbols: bool| {
        let file = File::new("a.csv", sales(last));
        let values = if symbols { Values::Symbols } else { Values::Auto };
        warnings(&DataConfig { bins: if symbols { 0 } else { 4 }, values, ..bins(&file) })
    };
    for symbols in [false, true] {
        let average = found("Average:,24.75\nMax,40\n", symbols);
        let expected = "line 62 (`Average:`) (and 1 more line) at the end may summarise the lines above, but are read as data";
        assert!(average.contains(expected), "{average}");
        let unlabelled = found(",24.75\n", symbols);
        let expected = "line 62, the last one, has no value in the column `store`, unlike the 60 lines above";
        assert!(unlabelled.contains(expected), "{unlabelled}");
        assert_eq!(found("s1,17\n", symbols), "");
    }
    // A word that also occurs above, or in few lines, is data.
    let names = File::new(
        "b.csv",
        rows("name,sales\n", 60, |row| format!("{},{}", ["max", "ann"][row % 2], row % 7)),
    );
    assert_eq!(warnings(&bins(&names)), "");
}

#[test]
fn numbers_in_another_notation_are_not_compared_with_others() {
    let file = File::new("a.csv", rows("sales\n", 30, |row| format!("{}%", row % 7)));
    let problem = file.problem(bins(&file));
    assert!(problem.contains("`0%` is not a number, but `data.bins` reads numbers"), "{problem}");
}

#[test]
fn outliers_of_bins_are_reported() {
    let last = File::new("a.csv", sales("s1,9000\n"));
    assert!(
        warnings(&bins(&last))
            .contains("1 of 25 numbers are far outside the numbers of training, such as 9000")
    );
    let first = File::new("a.csv", sales("").replacen("s0,10\n", "s0,9000\n", 1));
    let found = warnings(&bins(&first));
    assert!(found.contains("1 of 36 numbers are far outside the others, such as 9000"), "{found}");
    let uniform = DataConfig { binning: Binning::Uniform, ..bins(&first) };
    let found = warnings(&uniform);
    assert!(
        found.contains("35 of 36 numbers are in one bin, because the numbers reach from 10 to 9000"),
        "{found}"
    );
    let whole = File::new("a.csv", sales(""));
    assert_eq!(warnings(&DataConfig { binning: Binning::Uniform, ..bins(&whole) }), "");
}

#[test]
fn lists_in_cells_are_refused() {
    let file = |list: fn(usize) -> String| {
        File::new("a.csv", rows("id,steps\n", 30, |row| format!("{row},\"{}\"", list(row % 3))))
    };
    let steps = |file: &File| DataConfig { column: Column::Name("steps".into()), ..file.config() };
    let lists: [fn(usize) -> String; 3] =
        [|row| format!("['a', 'b{row}']"), |row| format!("(1, {row})"), |row| format!("{{a, {row}}}")];
    for list in lists {
        let file = file(list);
        let problem = file.problem(steps(&file));
        assert!(problem.starts_with("FILE: has lists in brackets, such as `"), "{problem}");
        let symbols = DataConfig { values: Values::Symbols, ..steps(&file) };
        assert_eq!(load(&symbols, 0).unwrap().vocabulary.size(), 3);
    }
    let notes = file(|row| format!("step (a, {row})"));
    assert!(load(&steps(&notes), 0).is_ok());
}

#[test]
fn a_wide_header_is_not_called_split() {
    let file = File::new("a.csv", rows("a,b,c,d\n", 40, |row| format!("{}.0,2.0,,", row % 3)));
    let found = file.problem(DataConfig { bins: 0, ..file.config() });
    assert!(!found.contains("split in two"), "{found}");
}

#[test]
fn bins_ignore_numbers_of_rows_that_are_left_out() {
    let group = |group: usize, count: usize, base: usize| {
        (0..count).map(|row| format!("{group},{}\n", base + (row * 7 + group) % 11)).collect::<String>()
    };
    let groups: String =
        (0..20).map(|at| if at % 2 == 0 { group(at, 5, 0) } else { group(at, 40, 1000) }).collect();
    let file = File::new("a.csv", format!("c,sales\n{groups}"));
    let (group_by, length) = (Column::Name("c".into()), 8);
    for long_rows in [crate::data::LongRows::Drop, crate::data::LongRows::Cut] {
        let config = DataConfig { group_by: group_by.clone(), length, long_rows, ..bins(&file) };
        let edges = load(&config, 0).unwrap().vocabulary.inner_bins().unwrap();
        assert!(edges[0] < 20.0, "{edges:?}");
        assert_eq!(edges[1] > 20.0, long_rows == crate::data::LongRows::Cut, "{edges:?}");
    }
}

#[test]
fn a_single_column_of_numbers_names_the_key_that_works() {
    let file = File::new("one.csv", rows("x\n", 40, |row| format!("{}.5", row * 7 % 13)));
    let config = DataConfig { bins: 4, ..file.config() };
    let problem = file.problem(config.clone());
    assert!(
        problem.contains("has one value per row, so there is nothing to predict; set `data.column` = 1"),
        "{problem}"
    );
    assert!(load(&DataConfig { column: Column::Number(1), ..config }, 0).is_ok());
}

#[test]
fn numbers_that_bins_would_round_are_refused() {
    let config = |file: &File, difference| DataConfig {
        column: Column::Number(1),
        bins: 3,
        difference,
        length: 4,
        ..file.config()
    };
    let column = |number: &dyn Fn(i64) -> String| (0..40).map(number).collect::<Vec<_>>().join("\n");
    let times = File::new("times.csv", column(&|at| (1_732_752_000_000_000_000 + at * at * 40).to_string()));
    for difference in [false, true] {
        let problem = times.problem(config(&times, difference));
        assert!(
            problem.contains("`1732752000000000040` has more digits than bins can tell apart"),
            "{problem}"
        );
    }
    let fractions = File::new("fractions.csv", column(&|at| format!("0.12345678901234567{}", at % 10)));
    assert!(
        fractions.problem(config(&fractions, false)).contains("has more digits than bins can tell apart")
    );
    // Digits that a float holds are read.
    let small = File::new("small.csv", column(&|at| (9_007_199_254_739_000 + at * at).to_string()));
    assert_eq!(load(&config(&small, true), 0).unwrap().vocabulary.size(), 3);
}

#[test]
fn a_quoted_column_of_decimal_commas_is_read_by_its_name() {
    let values: String = (0..30).map(|at| format!("\"{},{}\"\n", at % 7, at % 4)).collect();
    let file = File::new("euro.csv", format!("price\n{values}"));
    let config = DataConfig { column: Column::Name("price".into()), bins: 4, length: 4, ..file.config() };
    assert_eq!(load(&config, 0).unwrap().vocabulary.size(), 4);
    assert!(file.problem(file.config()).contains("is entirely in quotes"));
}

#[test]
fn objects_with_the_columns_of_the_run_are_read_by_name() {
    let rows: Vec<[u32; 3]> = (0..12).map(|at| [at % 3, 3 + at % 2, 5 + at % 4]).collect();
    let csv = rows.iter().map(|[a, b, c]| format!("{a},{b},{c}\n")).collect::<String>();
    let json = rows.iter().map(|[a, b, c]| format!("{{\"wind\":{c},\"day\":{a},\"rain\":{b}}}\n"));
    let table = File::new("table.csv", format!("day,rain,wind\n{csv}"));
    let objects = File::new("objects.jsonl", json.collect::<String>());
    let of_table = load(&table.config(), 0).unwrap();
    let of_objects = load_with(&objects.config(), 0, &of_table.vocabulary).unwrap();
    assert_eq!(of_objects.fingerprint(), of_table.fingerprint());
}
