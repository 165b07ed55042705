//! A config as it is written: a file, and what `--set` puts in the place of its values. The spans of TOML say
//! where each value stands, so that whatever is wrong is answered with that place and the remedy.

use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Config;
use super::keys::{check_keys, present_name};
use crate::data::Source;
use crate::error::{Error, Origin, Place, Result};

/// Where a value stands that nobody wrote.
const NOWHERE: Range<usize> = usize::MAX..usize::MAX;

/// The text of a config: a file, and behind it what was typed on the command line.
pub(super) struct Text<'p> {
    path: &'p Path,
    all: String,
    /// Bytes of the file.
    file: usize,
    assignments: Vec<Assignment>,
}

/// A key, named with its section, that is set on the command line.
struct Assignment {
    key: String,
    /// A document that sets `value`, blank as far as that stands in the whole text: so its spans are those of the
    /// whole.
    document: String,
    value: Range<usize>,
}

impl<'p> Text<'p> {
    /// The text of the file `path`.
    pub fn new(text: &str, path: &'p Path) -> Self {
        Self { path, all: text.to_string(), file: text.len(), assignments: Vec::new() }
    }

    /// Adds an override of the command line, `section.key=value`, the value in TOML's notation or a bare word.
    pub fn assign(&mut self, assignment: &str) -> Result<()> {
        let refuse = |problem: &str| {
            let begins: String = assignment.chars().take(60).collect();
            Err(Error::Input(format!("--set {}: {problem}", begins.trim_end())))
        };
        let Some((key, value)) = assignment.split_once('=') else {
            return refuse("write section.key=value, as --set data.task=random");
        };
        let (key, value) = (key.trim(), value.trim());
        if !key.contains('.') {
            return refuse("the key names no section: write it as section.key");
        }
        let parsed = toml::from_str::<toml::Table>(&format!("value = {value}"));
        if parsed.map_or(value.contains('\n'), |table| table.len() > 1) {
            return refuse("holds more than one line: give each key a --set of its own");
        }
        self.set(key, value);
        Ok(())
    }

    /// Gives a key another value.
    pub fn set(&mut self, key: &str, value: &str) {
        const BEFORE: &str = "\nvalue =";
        self.all += BEFORE;
        let blank = " ".repeat(self.all.len() - BEFORE.len());
        let start = self.all.len();
        self.all += value;
        let (section, name) = key.split_once('.').unwrap_or((key, ""));
        self.assignments.push(Assignment {
            key: format!("{section}.{}", present_name(section, name)),
            document: format!("{blank}{BEFORE}{value}"),
            value: start..self.all.len(),
        });
    }

    /// The config, typed and checked, also by `check`.
    pub fn read(&self, check: impl Fn(&Config) -> Result<()>) -> Result<Config> {
        let mut written = Written { text: self, values: self.parse(&self.all[..self.file])? };
        written.rename()?;
        let source = written.data_source();
        for Assignment { key, document, value } in &self.assignments {
            let parsed = DeTable::parse(document).ok().and_then(|table| table.into_inner().remove("value"));
            let word = || Spanned::new(value.clone(), DeValue::String(self.all[value.clone()].into()));
            written.set(key, parsed.unwrap_or_else(word));
        }
        written.settle(&source);
        written.read(check)
    }

    fn parse<'t>(&self, text: &'t str) -> Result<DeTable<'t>> {
        DeTable::parse(text).map(Spanned::into_inner).map_err(|error| self.syntax(&error))
    }

    fn syntax(&self, error: &toml::de::Error) -> Error {
        let problem = match (error.message(), error.span()) {
            ("duplicate key", Some(span)) => {
                let key = self.all.get(span).unwrap_or_default();
                format!("`{key}` stands here a second time: remove one of the two")
            }
            (message, _) => message.replace('\n', ", "),
        };
        let (line, column) = error.span().map(|span| self.line_and_column(span.start)).unzip();
        Error::file(self.path, line, column, problem)
    }

    fn line_and_column(&self, offset: usize) -> (usize, usize) {
        let before = self.all.get(..offset).unwrap_or(&self.all);
        let line = before.rsplit('\n').next().unwrap_or_default();
        (before.matches('\n').count() + 1, line.chars().count() + 1)
    }

    fn origin(&self, offset: usize) -> Option<Origin> {
        if offset <= self.file {
            let line = Some(self.line_and_column(offset).0);
            return Some(Origin::File(Place { path: self.path.to_path_buf(), line, column: None }));
        }
        (offset <= self.all.len()).then_some(Origin::CommandLine)
    }

    fn is_set(&self, key: &str) -> bool {
        self.assignments.iter().any(|assignment| assignment.key == key)
    }

    /// A value as it was written, text in quotes.
    fn shown(&self, value: &Spanned<DeValue<'_>>) -> String {
        match value.get_ref() {
            DeValue::String(word) => format!("\"{word}\""),
            _ => {
                let written = self.all.get(value.span()).unwrap_or("[…]");
                written.split_whitespace().collect::<Vec<_>>().join(" ")
            }
        }
    }
}

/// The values of a config, each with the place where it was written.
struct Written<'t> {
    text: &'t Text<'t>,
    values: DeTable<'t>,
}

impl<'t> Written<'t> {
    /// Gives keys that had another name in earlier versions the present one.
    fn rename(&mut self) -> Result<()> {
        for (section, table) in &mut self.values {
            let DeValue::Table(table) = table.get_mut() else { continue };
            let names = table.keys().map(|name| name.get_ref().to_string()).collect::<Vec<_>>();
            for old in names {
                let new = present_name(section.get_ref(), &old);
                let Some((key, value)) = (old != new).then(|| table.remove_entry(old.as_str())).flatten()
                else {
                    continue;
                };
                if table.contains_key(new) {
                    let problem = format!("was renamed `{new}`, which stands there too: remove the old name");
                    return Err(Error::key(format!("{section}.{old}"), self.text.shown(&value), problem));
                }
                table.insert(Spanned::new(key.span(), new.to_string().into()), value);
            }
        }
        Ok(())
    }

    /// Gives a key, named with its section, another value.
    fn set(&mut self, key: &str, value: Spanned<DeValue<'t>>) {
        let text = self.text;
        let (section, name) = key.split_once('.').unwrap_or((key, ""));
        let Some(mut table) = inner(&mut self.values, section, value.span()) else { return };
        let mut name = name;
        // The space of a search is a table in its section.
        if let ("tune", Some(searched)) = (section, name.strip_prefix("search.")) {
            let Some(search) = inner(table, "search", value.span()) else { return };
            table = search;
            name = searched.trim_matches('"');
            // In a file the key may stand without quotes, in a table of its section.
            if let Some((section, key)) = name.split_once('.')
                && let Some(DeValue::Table(section)) = table.get_mut(section).map(Spanned::get_mut)
            {
                section.remove(key);
            }
        }
        let now = text.shown(&value);
        let before = table.remove(name);
        table.insert(Spanned::new(value.span(), name.to_string().into()), value);
        match (section, name) {
            // The two say the same thing, so the later word holds.
            ("training", "steps") => table.remove("epochs"),
            ("training", "epochs") => table.remove("steps"),
            // A device is one of its backend.
            ("training", "backend")
                if !text.is_set("training.device")
                    && before.is_some_and(|before| text.shown(&before) != now) =>
            {
                table.remove("device")
            }
            _ => None,
        };
    }

    /// Where the data comes from: as `data.source` says, or else what `data.path` names.
    fn data_source(&self) -> String {
        match (self.word("data", "source"), self.word("data", "path")) {
            (Some(source), _) => source.to_string(),
            (None, path) => Source::of(Path::new(path.unwrap_or_default())).name().to_string(),
        }
    }

    fn word(&self, section: &str, name: &str) -> Option<&str> {
        self.values.get(section)?.get_ref().get(name)?.get_ref().as_str()
    }

    /// Settles what follows from the overrides of a config whose data was `written` to come from elsewhere: to
    /// name a file is to read it, to name a task is to draw it, and `data.vocab` was the size of what is no
    /// longer read.
    fn settle(&mut self, written: &str) {
        let is_set = |key: &str| self.text.is_set(key);
        let source = match (is_set("data.source"), is_set("data.path"), is_set("data.task")) {
            (false, true, _) if written == Source::Sequences.name() => {
                Source::of(Path::new(self.word("data", "path").unwrap_or_default())).name().to_string()
            }
            (false, false, true) => Source::Sequences.name().to_string(),
            _ => self.data_source(),
        };
        let keeps_vocab = is_set("data.vocab") || source == written;
        let source = Spanned::new(NOWHERE, DeValue::String(source.into()));
        let Some(data) = inner(&mut self.values, "data", NOWHERE) else { return };
        if !keeps_vocab {
            data.remove("vocab");
        }
        match data.get_mut("source") {
            None => drop(data.insert(Spanned::new(NOWHERE, "source".into()), source)),
            // What is no word is answered as such, at its place.
            Some(value) if value.get_ref().is_str() => *value.get_mut() = source.into_inner(),
            Some(_) => {}
        }
    }

    /// The config, typed and checked.
    fn read(mut self, check: impl Fn(&Config) -> Result<()>) -> Result<Config> {
        check_keys(&self.values, |value| self.text.shown(value)).map_err(|error| self.locate(error))?;
        self.check_numbers()?;
        // The value as it was written, where it is read as something else.
        let mut given = None;
        loop {
            let whole = toml::Deserializer::from(Spanned::new(0..self.text.file, self.values.clone()));
            let error = match Config::deserialize(whole) {
                Ok(config) => {
                    let checked = config.check().and_then(|()| check(&config));
                    return checked.map_err(|error| self.locate(error)).map(|()| config);
                }
                Err(error) => error,
            };
            let start = error.span().map_or(0, |span| span.start);
            let is_there =
                |value: &Spanned<DeValue<'_>>| value.span().start <= start && start < value.span().end.max(1);
            let text = self.text;
            let sections = self.values.iter_mut().filter_map(|(section, table)| match table.get_mut() {
                DeValue::Table(table) => Some((section, table)),
                _ => None,
            });
            let mut keys = sections.flat_map(|(section, table)| {
                table.iter_mut().map(move |(name, value)| (format!("{section}.{name}"), value))
            });
            let Some((key, value)) = keys.find(|(_, value)| is_there(value)) else {
                return Err(self.text.syntax(&error));
            };
            let expected = expected(error.message());
            // `--set run.name=7` means the text "7"; and a choice is a word: as one, serde answers with those that
            // there are.
            let is_word = expected.contains("text in quotes") && start >= self.text.file
                || error.message().starts_with("wanted");
            if is_word && !value.get_ref().is_str() {
                let word = text.all.get(value.span()).unwrap_or_default().to_string();
                given = Some(word.clone());
                *value.get_mut() = DeValue::String(word.into());
                continue;
            }
            let given = given.unwrap_or_else(|| text.shown(value));
            return Err(self.locate(Error::key(key, given, format!("cannot be used: {expected}"))));
        }
    }

    /// Refuses numbers that no key takes and that a config could not say again.
    fn check_numbers(&self) -> Result<()> {
        for (section, table) in &self.values {
            for (name, value) in table.get_ref().as_table().into_iter().flatten() {
                let problem = match value.get_ref() {
                    DeValue::Integer(number)
                        if i64::from_str_radix(number.as_str(), number.radix()).is_err() =>
                    {
                        "is too large"
                    }
                    DeValue::Float(number) if !number.as_str().parse::<f64>().is_ok_and(f64::is_finite) => {
                        "must be a finite number"
                    }
                    _ => continue,
                };
                let error = Error::key(format!("{section}.{name}"), self.text.shown(value), problem);
                return Err(self.locate(error));
            }
        }
        Ok(())
    }

    /// Adds to an error about a key the place where its value was written.
    fn locate(&self, error: Error) -> Error {
        match error {
            Error::Key { origin: None, key, value, problem } => {
                let origin = self.offset(&key).and_then(|offset| self.text.origin(offset));
                Error::Key { origin, key, value, problem }
            }
            other => other,
        }
    }

    /// Where a key, named with its section, is written.
    fn offset(&self, key: &str) -> Option<usize> {
        let (mut table, mut rest) = (&self.values, key);
        loop {
            if let Some((key, _)) = table.get_key_value(rest) {
                return Some(key.span().start);
            }
            let (name, inner) = rest.split_once('.')?;
            table = table.get(name)?.get_ref().as_table()?;
            rest = inner;
        }
    }
}

/// The table of that name in `table`, made where there is none; none where it is something else.
fn inner<'t, 'v>(table: &'t mut DeTable<'v>, name: &str, span: Range<usize>) -> Option<&'t mut DeTable<'v>> {
    if !table.contains_key(name) {
        let key = Spanned::new(span.clone(), name.to_string().into());
        table.insert(key, Spanned::new(span, DeValue::Table(DeTable::new())));
    }
    match table.get_mut(name)?.get_mut() {
        DeValue::Table(table) => Some(table),
        _ => None,
    }
}

/// What serde expected, in words that do not ask a user to know Rust.
fn expected(message: &str) -> String {
    let message = message.trim().replace('\n', ", ");
    let Some((_, expected)) = message.split_once(", expected ") else { return message };
    let plain = match expected {
        "usize" | "u64" | "u32" => "a whole number from 0",
        "f64" => "a number",
        "a boolean" => "true or false",
        "a string" | "string" | "path string" => "text in quotes",
        "a sequence" => "a list",
        "a map" => "a table",
        expected => expected,
    };
    format!("expected {plain}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str, sets: &[&str]) -> String {
        let sets = sets.iter().map(ToString::to_string).collect::<Vec<_>>();
        match Config::parse(text, Path::new("a.toml"), &sets) {
            Ok(_) => "nothing".to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_value_that_cannot_be_used_is_told_as_it_was_written_with_its_line() {
        let told = [
            (
                "[model]\n\nheads = \"four\"",
                "a.toml:3: `model.heads` = \"four\" cannot be used: expected a whole number from 0",
            ),
            ("[model]\nheads = -4", "a.toml:2: `model.heads` = -4 cannot be used: expected a whole number"),
            (
                "[data]\nperiod = [1,\n  2, 3]",
                "a.toml:2: `data.period` = [1, 2, 3] cannot be used: expected the shortest",
            ),
            (
                "[training]\noptimizer = 3",
                "a.toml:2: `training.optimizer` = 3 cannot be used: expected one of `adamw`",
            ),
            (
                "[training]\nlearning_rate = 1e-3\nwarmup = nan",
                "a.toml:3: `training.warmup` = nan must be a finite number",
            ),
            (
                "[run]\nseed = 18446744073709551615",
                "a.toml:2: `run.seed` = 18446744073709551615 is too large",
            ),
            ("[model]\nheads = 5", "a.toml:2: `model.heads` = 5 must divide"),
            (
                "[tune]\ntrials = \"many\"",
                "a.toml:2: `tune.trials` = \"many\" cannot be used: expected a whole",
            ),
            ("model = 3", "a.toml:1: `model` = 3 must be a section"),
            ("heads = 3", "a.toml:1: `heads` = 3 stands outside its section: write it below [model]"),
        ];
        for (text, expected) in told {
            let said = said(text, &[]);
            assert!(said.starts_with(expected) && said.lines().count() == 1, "{text}: {said}");
        }
    }

    #[test]
    fn an_unknown_key_is_answered_with_one_that_is_near_or_with_all() {
        let said = |text| said(text, &[]);
        assert_eq!(
            said("[model]\nhed = 4"),
            "a.toml:2: `model.hed` = 4 is no known key: did you mean `model.heads`?"
        );
        let far = said("[model]\nzzz = 4");
        assert!(far.contains("is no known key: [model] has architecture, d_model, heads,"), "{far}");
        let far = said("[training]\nzzz = 4");
        assert!(far.contains("accumulate") && far.len() <= 500, "{} bytes: {far}", far.len());
        let section = said("[zzz]\nheads = 4");
        assert!(section.contains("the sections are run, data, model, training, analysis, tune"), "{section}");
        let searched = said("[tune.search]\nzzz = [1]");
        assert!(
            searched.starts_with("a.toml:2: `tune.search.zzz` = [1] is no known key")
                && searched.len() <= 500,
            "{searched}"
        );
    }

    #[test]
    fn what_is_set_is_read_as_toml_or_as_a_word_and_told_as_set() {
        let config = |set: &str| Config::parse("", Path::new("a.toml"), &[set.to_string()]).unwrap();
        assert_eq!(config("run.name=7").run.name, "7");
        assert_eq!(config("data.path=1.5").data.path, Path::new("1.5"));
        assert_eq!(config("model.heads = 2").model.heads, 2);
        assert_eq!(config("data.period=[3, 5]").data, config("data.period = [3,5]").data);
        assert!(
            said("", &["model.heads=four"]).starts_with("--set: `model.heads` = \"four\" cannot be used")
        );
        assert!(said("", &["data.period=[3, \"x\"]"]).starts_with("--set: `data.period` = [3, \"x\"]"));
        assert!(said("", &["model.zzz=4"]).starts_with("--set: `model.zzz` = 4 is no known key"));
        assert!(said("", &["model.heads=4\nlayers=3"]).contains("holds more than one line"));
        let long = format!("run.name={}", "x".repeat(1 << 20));
        assert!(said("", &[&long]).len() < 500 && said("", &[&long[4..]]).len() < 500);
    }

    #[test]
    fn a_key_is_still_read_under_the_name_that_it_had() {
        let monitor = |text: &str, sets: &[&str]| {
            let sets = sets.iter().map(ToString::to_string).collect::<Vec<_>>();
            Config::parse(text, Path::new("a.toml"), &sets).unwrap().training.monitor
        };
        let old = "[training]\nwatch = \"train_loss\"";
        use crate::config::Monitor::{TrainLoss, ValidAccuracy};
        assert_eq!(monitor(old, &[]), TrainLoss);
        assert_eq!(monitor("", &["training.watch=train_loss"]), TrainLoss);
        assert_eq!(monitor(old, &["training.monitor=valid_accuracy"]), ValidAccuracy);
        assert_eq!(
            monitor(&old.replace("watch", "monitor"), &["training.watch=valid_accuracy"]),
            ValidAccuracy
        );
        let both = said(&format!("{old}\nmonitor = \"train_loss\""), &[]);
        assert!(both.contains("was renamed `monitor`, which stands there too"), "{both}");
        let wrong = said("[training]\nwatch = \"riddle\"", &[]);
        assert!(wrong.starts_with("a.toml:2: `training.monitor` = \"riddle\""), "{wrong}");
    }
}
