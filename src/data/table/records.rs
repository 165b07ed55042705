//! Reads JSON values as rows, texts, pairs or conversations.

use csv::StringRecord;
use serde_json::Value;

use super::columns::first_values;
use super::fields::{FieldForm, FieldSelection, Fields};
use super::header::{self, FirstLine};
use super::texts::TextSample;
use super::values::Encoder;
use super::{Line, Table, TableRow, chat, delimiter, fractions, json, targets};
use crate::data::config::{Column, DataConfig};
use crate::data::excerpt::excerpt;
use crate::data::vocabulary::Vocabulary;
use crate::error::Result;

/// The remedy for sequences that `data.order_by` cannot order.
const SORT_BY_HAND: &str =
    "sort the records of the file and omit `data.order_by`, which orders texts and single values";

impl Table<'_> {
    /// Reads JSON values, and warns if the first one may be a header.
    pub(super) fn read_json<'t>(
        &mut self,
        mut values: impl Iterator<Item = Result<json::Parsed<'t>>>,
    ) -> Result<()> {
        let sample: Vec<_> = values.by_ref().take(delimiter::SAMPLE_LINES).collect();
        self.warn_of_json_header(&sample);
        if let Some(Ok(json::Parsed { value: Value::Object(members), .. })) = sample.first() {
            self.name_numbers(0, |name| members.contains_key(name));
        }
        self.select_pairs(&sample);
        self.select_known_columns(&sample);
        if let Some(Ok(json::Parsed { value: Value::Object(members), .. })) = sample.first() {
            let others = members.keys().map(String::as_str);
            let others = others.filter(|&name| Some(name) != self.chosen.column.name());
            self.reading.guesses.extend(targets::warn_of_split(others, false));
        }
        sample.into_iter().chain(values).try_for_each(|value| self.push_json(value?))
    }

    /// Selects the fields `prompt` and `completion` of objects if the config selects no fields, which is shown as a guess.
    fn select_pairs(&mut self, sample: &[Result<json::Parsed<'_>>]) {
        const FIELDS: [&str; 2] = ["prompt", "completion"];
        let Some(Ok(json::Parsed { value: Value::Object(members), .. })) = sample.first() else { return };
        let are_texts = FIELDS.iter().all(|field| members.get(*field).is_some_and(Value::is_string));
        let selects_fields =
            |selection: &FieldSelection| selection.form != FieldForm::Texts || !selection.values.is_empty();
        let is_selected =
            self.chosen.selection.as_ref().is_some_and(selects_fields) || self.chosen.column.is_set();
        if is_selected || !are_texts || members.contains_key("messages") {
            return;
        }
        let [source, target] = FIELDS.map(|field| Column::Name(field.to_string()));
        let pairs = DataConfig { source_column: source, target_column: target, ..self.config.clone() };
        self.chosen.selection = FieldSelection::of(&pairs);
        self.reading.guesses.push(
            "the fields `prompt` and `completion` are read as pairs; set `data.source_column` and \
             `data.target_column` to read others"
                .to_string(),
        );
    }

    /// Selects the columns of the run's table from objects with these fields, as a header does in CSV.
    fn select_known_columns(&mut self, sample: &[Result<json::Parsed<'_>>]) {
        let Some(Ok(json::Parsed { value: Value::Object(members), .. })) = sample.first() else { return };
        let known = self.given.map_or(&[][..], Vocabulary::columns);
        let is_selected = self.chosen.selection.is_some() || self.chosen.column.is_set();
        if is_selected || known.is_empty() || !known.iter().all(|name| members.contains_key(name)) {
            return;
        }
        let columns = known.iter().cloned().map(Column::Name).collect();
        self.chosen.selection = FieldSelection::of(&DataConfig { columns, ..self.config.clone() });
    }

    /// Warns if the first of several arrays may hold column names. It is read as data, because JSON has no headers.
    fn warn_of_json_header(&mut self, sample: &[Result<json::Parsed<'_>>]) {
        let array = |parsed: &Result<json::Parsed<'_>>| {
            let json::Parsed { line, value, .. } = parsed.as_ref().ok().filter(|it| it.value.is_array())?;
            Some((self.line(*line), json::values(value.clone(), None).ok()?.row))
        };
        let rows: Option<Vec<TableRow>> = sample.iter().map(array).collect();
        let Some((first, below)) = rows.as_deref().and_then(<[TableRow]>::split_first) else { return };
        let judged = header::judge(&first.1, &below.iter().collect::<Vec<_>>(), self.numbered_column());
        if !matches!(judged, FirstLine::Data | FirstLine::Unknown) {
            let values = first_values(&first.1);
            self.reading.guesses.push(format!(
                "the array in {} (`{values}`) is read as data, but its values may be column names, since \
                 they differ from those below; remove this array if it is a header",
                self.shown(first.0)
            ));
        }
    }

    /// Adds a JSON value.
    fn push_json(&mut self, json::Parsed { line: number, value, text }: json::Parsed<'_>) -> Result<()> {
        let line = self.line(number);
        if let Some(turns) = chat::turns(&value, self.chosen.column.name()) {
            if let Value::Object(members) = &value {
                targets::check_others(members, &["messages"])
                    .and_then(|()| targets::check_system(members))
                    .map_err(|problem| self.problem(Some(line), problem))?;
            }
            let turns = turns.map_err(|problem| self.problem(Some(line), problem))?;
            self.seen.unread.extend(chat::unread(&value, self.chosen.column.name()));
            return self.push_turns(line, &turns);
        }
        let selects_texts = |selection: &FieldSelection| selection.form == FieldForm::Texts;
        if self.chosen.selection.as_ref().is_some_and(|it| selects_texts(it) && it.values.is_empty()) {
            let text = json::only_text(&value).map_err(|problem| self.problem(Some(line), problem))?;
            self.chosen.texts.push(TextSample::of_text(line, text));
            return Ok(());
        }
        if self.chosen.selection.is_some() && value.is_array() {
            let problem = "is an array, but columns are selected from objects; write each row as an object with \
                           names, or the table as CSV";
            return Err(self.problem(Some(line), problem));
        }
        if let Some(fields) = self.fields_of_objects()? {
            return self.push_object(&json::Parsed { line: number, value, text }, &fields);
        }
        let mask = targets::mask(&value, self.chosen.column.name());
        let unread = targets::unread_lists(&value, self.chosen.column.name());
        self.seen.unread_lists.extend(unread);
        let values = json::values(value, self.chosen.column.name());
        let json::JsonValues { row, is_one, literals } =
            values.map_err(|problem| self.problem(Some(line), problem))?;
        self.reading.add(&row);
        let column = self.numbered_column().or(is_one.then_some(0));
        let row = (line, row);
        let before = self.ids.len();
        let pushed = self.push(&row, column).map_err(|error| {
            // The error must quote the number as written in the file.
            let written =
                fractions::as_written(&row.1, text).map(|values| self.push(&(line, values), column));
            written.and_then(Result::err).unwrap_or(error)
        });
        pushed?;
        self.count_targets(before, mask);
        match self.encoder {
            Some(Encoder::Symbols(_)) => self.refuse_merged(line, &row.1, literals, text),
            _ => Ok(()),
        }
    }

    /// Warns of lists that may mark tokens in a way that is not known.
    pub(super) fn warn_of_lists(&mut self) {
        if self.seen.unread_lists.is_empty() {
            return;
        }
        let names = Vec::from_iter(std::mem::take(&mut self.seen.unread_lists)).join(", ");
        self.reading.guesses.push(format!(
            "lists with one value for each token are not read: {names}; if they exclude targets, write them as `labels`, \
             with -100 for tokens that do not count"
        ));
    }

    /// Stores which of the ids from `before` on count as targets; without a mask, all do.
    pub(super) fn count_targets(&mut self, before: usize, mask: Option<Vec<bool>>) {
        if let Some(mask) = mask {
            self.counted.resize(before, true);
            self.counted.extend(mask);
        } else if !self.counted.is_empty() {
            self.counted.resize(self.ids.len(), true);
        }
    }

    /// Adds the selected fields of an object.
    fn push_object(&mut self, parsed: &json::Parsed<'_>, fields: &Fields) -> Result<()> {
        let json::Parsed { line, value, text } = parsed;
        let line = self.line(*line);
        let names =
            self.chosen.selection.as_ref().map(FieldSelection::names).transpose()?.unwrap_or_default();
        let is_weighted = |problem| self.problem(Some(line), problem);
        if let Value::Object(members) = value {
            targets::check_others(members, &names).map_err(is_weighted)?;
        }
        if fields.form == FieldForm::Texts
            && let Some(ids) = json::ids(value, names[0]).map_err(is_weighted)?
        {
            if fields.order.is_some() {
                return Err(self.problem(Some(line), format!("has token ids; {SORT_BY_HAND}")));
            }
            let mask = targets::mask(value, Some(names[0]));
            self.seen.unread_lists.extend(targets::unread_lists(value, Some(names[0])));
            return self.push_ids(line, ids, mask);
        }
        let remedy = match (self.config.column.is_set(), fields.group) {
            (true, None) => SORT_BY_HAND,
            (true, Some(_)) => "omit `data.group_by`, which joins single values",
            (false, _) => "write a record for each value, or select only this field with `data.column`",
        };
        let row = json::fields(value, &names, remedy).map_err(|problem| self.problem(Some(line), problem))?;
        let literals = |indices: &[usize]| {
            let values = indices.iter().filter_map(|&index| value.get(names[index]));
            values.filter_map(json::Literal::of).collect::<Vec<_>>()
        };
        let [of_group, of_values] = [literals(fields.group.as_slice()), literals(&fields.values)];
        if let (FieldForm::Pairs, Value::Object(members)) = (fields.form, value) {
            self.seen.unread.extend(chat::unread_context(members, &names));
        }
        self.refuse_mixed_quotes(line, ("one group", of_group))?;
        if matches!(fields.form, FieldForm::Values | FieldForm::Stream) {
            // Whether values are symbols is known when all rows are.
            let values: StringRecord = of_values.iter().map(|literal| literal.text.as_str()).collect();
            if let Err(error) = self.refuse_merged(line, &values, of_values, text) {
                self.seen.merged.get_or_insert(error);
            }
        }
        self.reading.add(&row);
        self.push_fields(&(line, row), fields)
    }

    /// Returns an error if different values of JSON would become one symbol: 1 and "1", or numbers that are rounded.
    fn refuse_merged(
        &mut self,
        line: Line,
        row: &StringRecord,
        literals: Vec<json::Literal>,
        text: &str,
    ) -> Result<()> {
        if let Some(number) = fractions::rounded(row, text) {
            return Err(self.problem(Some(line), format!("{}: {}", json::TOO_LONG, excerpt(number))));
        }
        self.refuse_mixed_quotes(line, ("one symbol", literals))
    }

    /// Returns an error if a value has quotes in one place and none in another, but both would be read as `one` thing.
    fn refuse_mixed_quotes(
        &mut self,
        line: Line,
        (one, literals): (&'static str, Vec<json::Literal>),
    ) -> Result<()> {
        for json::Literal { text, is_quoted } in literals {
            let was_quoted = *self.seen.literals.entry((one, text.clone())).or_insert(is_quoted);
            if was_quoted != is_quoted {
                let problem = format!(
                    "`{}` occurs both with and without quotes, but a table would read both as {one}; write every \
                     occurrence the same way",
                    excerpt(&text)
                );
                return Err(self.problem(Some(line), problem));
            }
        }
        Ok(())
    }

    /// Returns the error about different values of objects that became one symbol.
    pub(super) fn refuse_merged_fields(&mut self) -> Result<()> {
        match (&self.encoder, self.seen.merged.take()) {
            (Some(Encoder::Symbols(_)), Some(error)) => Err(error),
            _ => Ok(()),
        }
    }
}
