//! The keys of `[data]` that have no effect because of the values of other keys.

use super::vocabulary::Notation;
use super::{
    ArrayFormat, DataConfig, Dataset, LongRows, RowSplit, Source, TableFormat, Task, Tokens, Vocabulary,
};
use crate::choice::{Choice, UnusedKeys};

/// The keys that only tables use.
const KEYS_OF_TABLES: [&str; 12] = [
    "values",
    "column",
    "columns",
    "ignore_columns",
    "group_by",
    "order_by",
    "source_column",
    "target_column",
    "long_rows",
    "bins",
    "binning",
    "difference",
];

impl DataConfig {
    /// Returns true if `data.vocab` sets the size of the vocabulary.
    fn has_sized_vocabulary(&self, dataset: Option<&Dataset>) -> bool {
        match self.source() {
            Source::Sequences => self.task != Task::Addition,
            Source::Text => self.tokens == Tokens::Bpe,
            Source::Table if self.reads_texts() => matches!(self.tokens, Tokens::Bpe | Tokens::Words),
            Source::Array => !matches!(self.tokens, Tokens::File(_)),
            Source::Memory => true,
            Source::Table => dataset.map(|dataset| &dataset.vocabulary).is_none_or(Vocabulary::is_integers),
        }
    }

    /// Returns true if a table holds texts, not integers or symbols.
    fn holds_texts(&self, dataset: Option<&Dataset>) -> bool {
        let has_texts = |dataset: &Dataset| dataset.vocabulary.notation() != Notation::Words;
        self.reads_texts() || self.has_pairs() || dataset.is_some_and(has_texts)
    }

    /// Returns the keys without effect. The `dataset` determines whether a table holds integers or symbols, and whether
    /// it holds one sequence per row or a single one.
    pub fn unused_keys(&self, dataset: Option<&Dataset>) -> UnusedKeys {
        let mut unused = UnusedKeys::default();
        // The program that gave in-memory data also wrote its config.
        if self.source() == Source::Memory {
            return unused;
        }
        let [is_drawn, is_text, is_table, is_array] =
            [Source::Sequences, Source::Text, Source::Table, Source::Array].map(|it| self.source() == it);
        let table = dataset.and_then(|dataset| dataset.table.as_ref());
        let is_csv = is_table && table.map_or(!self.is_json(), |table| table.format == TableFormat::Csv);
        let array = dataset.and_then(|dataset| dataset.array.as_ref());
        let is_raw = is_array && array.is_none_or(|array| array.format == ArrayFormat::Raw);
        let are_rows = dataset.map(|dataset| dataset.train.stream().is_none());
        let has_rows = (is_table || is_array) && are_rows == Some(true);
        let may_have_rows = (is_table || is_array) && are_rows != Some(false);
        let draws_rows = may_have_rows && self.split != RowSplit::Tail && self.valid_path.is_empty();
        let of_table_or_array =
            if is_array { "arrays of one dimension" } else { "a `data.column` of a table" };
        let readers_of_length = format!("texts, tasks and {of_table_or_array}");
        let keys_of_tasks = Task::ALL.iter().flat_map(|task| task.keys()).copied().collect::<Vec<_>>();
        unused
            .unless(is_drawn, &["task"], "runs without a `data.path`")
            .unless(is_drawn, &["train_samples", "valid_samples"], "tasks")
            .unless(is_drawn || draws_rows, &["seed"], "tasks, and rows that are drawn for validation")
            .unless(is_drawn, &keys_of_tasks, "tasks")
            .other_choices("data.task", self.task)
            .unless(
                self.has_sized_vocabulary(dataset),
                &["vocab"],
                "tasks but `addition`, byte pair encoding, and tables and arrays of integers",
            )
            .unless(!has_rows || self.long_rows != LongRows::Keep, &["length"], readers_of_length)
            .unless(!is_drawn || !self.task.has_own_length(), &["length"], "files and the other tasks")
            .unless(!is_drawn, &["valid_fraction", "valid_path"], "files")
            .unless(is_text || is_table || is_array, &["tokens"], "files")
            .unless(
                matches!(self.tokens, Tokens::File(_)),
                &["end_of_text"],
                "a tokenizer.json in `data.tokens`",
            )
            .unless(is_text, &["cache", "documents"], "texts")
            .unless(is_raw, &["dtype"], "arrays without a header (.bin)")
            .unless(is_table, &KEYS_OF_TABLES, "tables")
            .unless(!is_table || !self.holds_texts(dataset), &["values"], "tables of integers or symbols")
            .unless(!is_table || may_have_rows, &["long_rows"], "tables with several sequences")
            .unless(
                is_table && table.is_none_or(|table| table.has_sources),
                &["loss_on"],
                "pairs and conversations that a decoder reads",
            )
            .unless(is_table || is_array && has_rows, &["split"], "tables, and arrays of two dimensions")
            .unless(is_csv, &["delimiter", "header", "quotes", "comment"], "tables in CSV")
            .unless(self.bins > 0, &["binning"], "`data.bins`")
            .unless(
                self.valid_path.is_empty(),
                &["valid_fraction", "split"],
                "data without a `data.valid_path`",
            );
        unused
    }
}
