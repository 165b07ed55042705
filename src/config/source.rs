//! A config as it is written: a file, and what `--set` puts in the place of its values. Of each key is known how
//! and where its value was written, so that whatever is wrong is answered with that place and the remedy.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::path::Path;

use serde::Deserialize;
use toml::de::{DeTable, DeValue, ValueDeserializer};
use toml::{Spanned, Table, Value};

use super::Config;
use super::keys::{check_keys, present_name};
use crate::data::Source;
use crate::error::{Error, Origin, Place, Result, expected};

/// How the value of each key, named with its section, was written, and where.
type Places = BTreeMap<String, (String, Option<Origin>)>;

/// The values of a config before they are typed and checked.
#[derive(Debug)]
pub(super) struct Written {
    values: Table,
    places: Places,
    /// Keys that were given another value than the file's.
    set: BTreeSet<String>,
    /// Where the data of the file comes from.
    source: String,
}

impl Written {
    /// Values that were written nowhere.
    pub fn new(values: Table) -> Self {
        let source = data_source(&values);
        Self { values, places: Places::new(), set: BTreeSet::new(), source }
    }

    /// The text of the file `path`.
    pub fn parse(text: &str, path: &Path) -> Result<Self> {
        let file = File { text, path };
        let table = DeTable::parse(text).map_err(|error| file.syntax(&error))?;
        let mut places = Places::new();
        let values = file.read("", table.get_ref(), &mut places)?;
        let mut written = Self { places, ..Self::new(values) };
        if let Some(Value::Table(search)) =
            written.values.get_mut("tune").and_then(|tune| tune.get_mut("search"))
        {
            *search = flat(take(search)).map_err(|error| locate(error, &written.places))?;
        }
        Ok(written)
    }

    /// Adds overrides of the command line, `section.key=value`, the value in TOML's notation or a bare word.
    pub fn with(mut self, assignments: &[String]) -> Result<Self> {
        for assignment in assignments {
            let refuse = |problem: &str| {
                let begins: String = assignment.chars().take(60).collect();
                Err(Error::Input(format!("--set {}: {problem}", begins.trim_end())))
            };
            let Some((key, text)) = assignment.split_once('=') else {
                return refuse("write section.key=value, as --set data.task=random");
            };
            let (key, text) = (key.trim(), text.trim());
            if !key.contains('.') {
                return refuse("the key names no section: write it as section.key");
            }
            let document = format!("value = {text}");
            let table = DeTable::parse(&document).map(Spanned::into_inner).unwrap_or_default();
            if table.len() > 1 || table.is_empty() && text.contains('\n') {
                return refuse("holds more than one line: give each key a --set of its own");
            }
            let value = table.get("value").map_or_else(|| Ok(Value::from(text)), value);
            let origin = Some(Origin::CommandLine);
            let value = value.map_err(|problem| Error::key(key, text, problem).at(origin.clone()))?;
            self.set(key, value, text, origin);
        }
        Ok(self)
    }

    /// Gives a key, named with its section, another value, which was written as `text`.
    pub fn set(&mut self, key: &str, value: Value, text: &str, origin: Option<Origin>) {
        let (section, name) = key.split_once('.').unwrap_or((key, ""));
        // The space of a search is a table in its section, whose keys may stand in quotes.
        let (within, name) = match name.strip_prefix("search.") {
            Some(searched) if section == "tune" => ("tune.search", searched.trim_matches('"')),
            _ => (section, present_name(section, name)),
        };
        let key = format!("{within}.{name}");
        self.places.insert(key.clone(), (shown(&value, text), origin));
        let keeps_device = self.set.contains("training.device");
        self.set.insert(key);
        let mut table = Some(&mut self.values);
        for part in within.split('.') {
            table = table.and_then(|table| inner(table, part));
        }
        let Some(table) = table else { return };
        let before = table.insert(name.to_string(), value.clone());
        match (section, name) {
            // The two say the same thing, so the later word holds.
            ("training", "steps") => table.remove("epochs"),
            ("training", "epochs") => table.remove("steps"),
            // A device is one of its backend.
            ("training", "backend") if !keeps_device && before.is_some_and(|before| before != value) => {
                table.remove("device")
            }
            _ => None,
        };
    }

    /// The config, typed and checked, also by `check`.
    pub fn read(mut self, check: impl Fn(&Config) -> Result<()>) -> Result<Config> {
        self.settle();
        let config = self.typed().and_then(|config| {
            config.check()?;
            check(&config)?;
            Ok(config)
        });
        config.map_err(|error| locate(error, &self.places))
    }

    /// Settles what follows from the overrides: to name a file is to read it, to name a task is to draw it, and
    /// `data.vocab` and the numbers of samples were the sizes of what is no longer read.
    fn settle(&mut self) {
        let is_set = |key: &str| self.set.contains(key);
        let source = match (is_set("data.source"), is_set("data.path"), is_set("data.task")) {
            (false, true, _) if self.source == Source::Sequences.to_string() => source_of_path(&self.values),
            (false, false, true) => Source::Sequences.to_string(),
            _ => data_source(&self.values),
        };
        let of_former = ["vocab", "train_samples", "valid_samples"];
        let of_former =
            of_former.into_iter().filter(|name| source != self.source && !is_set(&format!("data.{name}")));
        let Some(data) = inner(&mut self.values, "data") else { return };
        of_former.for_each(|name| drop(data.remove(name)));
        // What is no word is answered as such, at its place.
        if data.get("source").is_none_or(Value::is_str) {
            data.insert("source".to_string(), source.into());
        }
    }

    /// The config, typed.
    fn typed(&mut self) -> Result<Config> {
        let shown = |key: &str| self.places.get(key).map(|(text, _)| text.clone()).unwrap_or_default();
        check_keys(&self.values, shown)?;
        loop {
            let error = match serde_path_to_error::deserialize(self.values.clone()) {
                Ok(config) => return Ok(config),
                Err(error) => error,
            };
            let path = error.path().to_string();
            // As training.validate_at[1].
            let mut parts = path.split(['.', '[']);
            let (section, name) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            let key = format!("{section}.{name}");
            let expected = expected(error.inner().message());
            // `--set run.name=7` means the text "7"; and a choice is a word: as one, serde answers with those that
            // there are.
            let is_word = expected.contains("text in quotes") && self.set.contains(&key)
                || expected.contains("string only");
            match self.values.get_mut(section).and_then(|section| section.get_mut(name)) {
                Some(value) if is_word && !value.is_str() => *value = shown(&key).into(),
                _ => return Err(Error::key(&key, shown(&key), format!("cannot be used: {expected}"))),
            }
        }
    }
}

/// The text of a config file.
struct File<'a> {
    text: &'a str,
    path: &'a Path,
}

impl File<'_> {
    /// The values of a table, whose name is `within`. Keys that had another name in earlier versions get the
    /// present one.
    fn read(&self, within: &str, table: &DeTable<'_>, places: &mut Places) -> Result<Table> {
        let mut values = Table::new();
        for (name, written) in table {
            let present = present_name(within, name.get_ref());
            let key = if within.is_empty() { present.to_string() } else { format!("{within}.{present}") };
            let text = self.text.get(written.span()).unwrap_or_default();
            let line = Some(self.line_and_column(name.span().start).0);
            let origin = Some(Origin::File(Place { path: self.path.to_path_buf(), line, column: None }));
            if present != name.get_ref() && table.contains_key(present) {
                let problem = format!("was renamed `{present}`, which stands there too: remove the old name");
                return Err(Error::key(format!("{within}.{name}"), text, problem).at(origin));
            }
            let value = match written.get_ref() {
                DeValue::Table(inner) => Value::Table(self.read(&key, inner, places)?),
                _ => value(written).map_err(|problem| Error::key(&key, text, problem).at(origin.clone()))?,
            };
            places.insert(key, (shown(&value, text), origin));
            values.insert(present.to_string(), value);
        }
        Ok(values)
    }

    fn syntax(&self, error: &toml::de::Error) -> Error {
        let problem = match (error.message(), error.span()) {
            ("duplicate key", Some(span)) => {
                let key = self.text.get(span).unwrap_or_default();
                format!("`{key}` stands here a second time: remove one of the two")
            }
            (message, _) => message.replace('\n', ", "),
        };
        let (line, column) = error.span().map(|span| self.line_and_column(span.start)).unzip();
        Error::file(self.path, line, column, problem)
    }

    fn line_and_column(&self, offset: usize) -> (usize, usize) {
        let before = self.text.get(..offset).unwrap_or(self.text);
        let line = before.rsplit('\n').next().unwrap_or_default();
        (before.matches('\n').count() + 1, line.chars().count() + 1)
    }
}

/// The value that was written; refuses numbers that no key takes and that a config could not say again.
fn value(written: &Spanned<DeValue<'_>>) -> Result<Value, &'static str> {
    match Value::deserialize(ValueDeserializer::from(written.clone())) {
        Ok(Value::Float(number)) if !number.is_finite() => Err("must be a finite number"),
        Ok(value) => Ok(value),
        Err(_) => Err("is too large"),
    }
}

/// A value as it was written, in one line, text in quotes.
fn shown(value: &Value, text: &str) -> String {
    match value {
        Value::String(word) => format!("\"{word}\""),
        _ => text.split_whitespace().collect::<Vec<_>>().join(" "),
    }
}

/// Adds to an error about a key the place where its value was written.
fn locate(error: Error, places: &Places) -> Error {
    let origin = match &error {
        Error::Key { key, .. } => places.get(key).and_then(|(_, origin)| origin.clone()),
        _ => None,
    };
    error.at(origin)
}

/// The table of that name in `table`, made where there is none; none where it is something else.
fn inner<'t>(table: &'t mut Table, name: &str) -> Option<&'t mut Table> {
    table.entry(name).or_insert_with(|| Table::new().into()).as_table_mut()
}

/// `"training.batch_size" = [..]` and `training.batch_size = [..]` mean the same: the second is a table in a table,
/// which has the name of a section.
fn flat(search: Table) -> Result<Table> {
    let mut keys = Table::new();
    for (name, value) in search {
        let of_name = match value {
            Value::Table(inner) if !name.contains('.') => {
                inner.into_iter().map(|(key, value)| (format!("{name}.{key}"), value)).collect()
            }
            value => vec![(name, value)],
        };
        for (key, value) in of_name {
            if keys.contains_key(&key) {
                let problem = "stands there twice, once with quotes and once without: keep one of them";
                return Err(Error::key(format!("tune.search.{key}"), value, problem));
            }
            keys.insert(key, value);
        }
    }
    Ok(keys)
}

/// Where the data comes from: as `data.source` says, or else what `data.path` names.
fn data_source(values: &Table) -> String {
    word(values, "source").map_or_else(|| source_of_path(values), str::to_string)
}

fn source_of_path(values: &Table) -> String {
    Source::of(Path::new(word(values, "path").unwrap_or_default())).to_string()
}

fn word<'v>(values: &'v Table, name: &str) -> Option<&'v str> {
    values.get("data")?.get(name)?.as_str()
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
    fn a_value_of_another_type_is_answered_in_plain_words() {
        for (name, section) in Config::default().to_table() {
            for key in section.as_table().unwrap().keys() {
                for value in ["{ a = 1 }", "[[1]]", "1979-05-27"] {
                    let said = said(&format!("[{name}]\n{key} = {value}"), &[]);
                    assert!(!said.contains("invalid type") && !said.contains("struct "), "{said}");
                }
            }
        }
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
        assert!(
            said("", &["nothing.zzz=4"])
                .starts_with("--set: `nothing.zzz` = 4 is no known key: the sections are")
        );
        assert!(said("", &["model.heads=4\nlayers=3"]).contains("holds more than one line"));
        let long = format!("run.name={}", "x".repeat(1 << 20));
        assert!(said("", &[&long]).len() < 500 && said("", &[&long[4..]]).len() < 500);
    }

    #[test]
    fn a_key_of_another_section_is_answered_with_that_and_one_like_no_other_with_the_list() {
        let said = |text| said(text, &[]);
        assert!(said("[training]\ndropout = 0.1").ends_with("did you mean `model.dropout`?"));
        // Not `training.threads`.
        assert!(said("[training]\nheads = 4").ends_with("did you mean `model.heads`?"));
        assert!(said("[modle]\nheads = 4").ends_with("did you mean `model`?"));
        assert!(said("[training]\noptimiser = \"adam\"").ends_with("did you mean `training.optimizer`?"));
        let far = said("[run]\ncolour = \"red\"");
        assert!(far.ends_with("[run] has name, seed, from"), "{far}");
    }

    #[test]
    fn a_searched_key_may_be_written_with_quotes_or_without_and_once() {
        let search = |text: &str| {
            let text = format!("[tune.search]\n{text}");
            Config::parse(&text, Path::new("a.toml"), &[]).map(|config| config.tune.unwrap().search)
        };
        let text = "\"training.batch_size\" = [16]\ntraining.learning_rate = { min = 1, max = 2 }\n";
        let keys = search(text).unwrap();
        assert_eq!(keys.keys().collect::<Vec<_>>(), ["training.batch_size", "training.learning_rate"]);
        let twice = search("\"model.heads\" = [2]\nmodel.heads = [4]").unwrap_err().to_string();
        assert!(twice.starts_with("a.toml:") && twice.contains("stands there twice"), "{twice}");
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
