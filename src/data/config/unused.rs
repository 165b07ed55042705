//! The keys of `[data]` that have no effect because of the values of other keys.

use super::{DataConfig, Source, Task, Tokens};
use crate::choice::{Choice, UnusedKeys};
use crate::data::{Dataset, Vocabulary};

impl DataConfig {
    /// Returns the keys without effect. The `dataset` determines whether a table holds integers or symbols, and whether
    /// it holds one sequence per row or a single one.
    pub fn unused_keys(&self, dataset: Option<&Dataset>) -> UnusedKeys {
        let mut unused = UnusedKeys::default();
        // The program that gave in-memory data also wrote its config.
        if self.source() == Source::Memory {
            return unused;
        }
        let is_drawn = self.source() == Source::Sequences;
        let (is_text, is_table) = (self.source() == Source::Text, self.source() == Source::Table);
        let is_sized = match self.source() {
            Source::Sequences => self.task != Task::Addition,
            Source::Text => self.tokens == Tokens::Bpe,
            Source::Memory => true,
            Source::Table => dataset.map(|dataset| &dataset.vocabulary).is_none_or(Vocabulary::is_integers),
        };
        let table = dataset.and_then(|dataset| dataset.table.as_ref());
        let is_csv = is_table && table.map_or(!self.is_json(), |table| table.format == "csv");
        let has_rows = is_table && dataset.is_some_and(|dataset| dataset.train.stream().is_none());
        let keys_of_tasks = Task::ALL.iter().flat_map(|task| task.keys()).copied().collect::<Vec<_>>();
        unused
            .unless(is_drawn, &["task"], "runs without a `data.path`")
            .unless(is_drawn, &["seed", "train_samples", "valid_samples"], "tasks")
            .unless(is_drawn, &keys_of_tasks, "tasks")
            .other_choices("data.task", self.task)
            .unless(is_sized, &["vocab"], "tasks but `addition`, byte pair encoding and tables of integers")
            .unless(!has_rows, &["length"], "texts, tasks and a `data.column` of a table")
            .unless(
                !is_drawn || self.task != Task::Addition,
                &["length"],
                "texts, tables and the other tasks",
            )
            .unless(!is_drawn, &["valid_fraction"], "texts and tables")
            .unless(is_text, &["tokens", "documents"], "texts")
            .unless(is_table, &["values", "column", "split"], "tables")
            .unless(is_csv, &["delimiter", "header"], "tables in CSV");
        unused
    }
}
