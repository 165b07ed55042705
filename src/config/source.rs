//! A config as it is written: a file, and what `--set` puts in the place of its values. Of each key is known how
//! and where its value was written, so that whatever is wrong is answered with that place and the remedy.

use std::path::Path;

use serde::Deserialize;
use toml::de::{DeTable, DeValue, ValueDeserializer};
use toml::{Spanned, Table, Value};

use super::keys::{Entries, Entry, SEARCH, check_keys, present_name, present_value};
use super::{Config, DEFAULT_FILE, DEFAULT_TEXT};
use crate::data::Source;
use crate::error::{Error, Origin, Place, Result, ensure, expected};
use crate::files::Text;

/// A config before it is typed and checked.
#[derive(Debug)]
pub(super) struct Written {
    entries: Entries,
    /// Where the data of the file comes from.
    source: String,
}

impl Written {
    /// What the file at `path` says, the current folder's or the shipped default where none is named, and what
    /// overrides say in its place.
    pub fn open(path: Option<&Path>, overrides: &[String]) -> Result<Self> {
        let here = Some(Path::new(DEFAULT_FILE)).filter(|path| path.exists());
        let written = match path.or(here) {
            Some(path) => Self::parse(&read(path)?, Some(path)),
            // The place in a file that is not there would mislead.
            None => Self::parse(DEFAULT_TEXT, None),
        };
        written?.with(overrides)
    }

    /// The text of the file `path`; of none where its lines would mislead.
    pub fn parse(text: &str, path: Option<&Path>) -> Result<Self> {
        let table = DeTable::parse(text).map_err(|error| syntax(text, path, &error))?;
        let mut written = Self { entries: Entries::new(), source: String::new() };
        written.add("", table.get_ref(), text, path)?;
        written.source = written.data_source();
        Ok(written)
    }

    /// Adds the keys of a table of the file, whose name is `within`. Keys that had another name in earlier versions get
    /// the present one.
    fn add(&mut self, within: &str, table: &DeTable<'_>, text: &str, path: Option<&Path>) -> Result<()> {
        for (name, written) in table {
            let present = present_name(within, name.get_ref());
            let key = if within.is_empty() { present.to_string() } else { format!("{within}.{present}") };
            let line = Some(line_and_column(text, name.span().start).0);
            let place = path.map(|path| Place { path: path.to_path_buf(), line, column: None });
            let origin = place.map(Origin::File);
            let shown_text = text.get(written.span()).unwrap_or_default();
            let refused = |key: &str, problem: &str| Error::key(key, shown_text, problem).at(origin.clone());
            if present != name.get_ref() && table.contains_key(present) {
                let problem = format!("was renamed `{present}`, which stands there too: remove the old name");
                return Err(refused(&format!("{within}.{name}"), &problem));
            }
            // In the space of a search `"training.batch_size" = [..]` and `training.batch_size = [..]` mean the same.
            let is_section =
                within.is_empty() || key == SEARCH || within == SEARCH && !name.get_ref().contains('.');
            if let DeValue::Table(inner) = written.get_ref()
                && is_section
                && !inner.is_empty()
            {
                self.add(&key, inner, text, path)?;
                continue;
            }
            if self.entries.contains_key(&key) {
                let problem = "stands there twice, once with quotes and once without: keep one of them";
                return Err(refused(&key, problem));
            }
            let value = value(written).map_err(|problem| refused(&key, problem))?;
            let value = present_value(within, name.get_ref(), value);
            self.entries.insert(key, Entry::new(value, shown_text, origin));
        }
        Ok(())
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
        let key = match name.strip_prefix("search.").filter(|_| section == "tune") {
            // In quotes or without.
            Some(searched) => format!("{SEARCH}.{}", searched.trim_matches('"')),
            None => format!("{section}.{}", present_name(section, name)),
        };
        let value = present_value(section, name, value);
        if let (SEARCH, Value::Table(space)) = (key.as_str(), &value) {
            self.entries.retain(|key, _| !key.starts_with(SEARCH));
            for (searched, values) in space {
                let (key, shown) = (format!("{SEARCH}.{searched}"), values.to_string());
                self.set(&key, values.clone(), &shown, origin.clone());
            }
            return;
        }
        let is_other = self.entries.get(&key).is_some_and(|before| before.value != value);
        // The two say the same thing, so the later word holds; and a device is one of its backend.
        match key.as_str() {
            "training.steps" => drop(self.entries.remove("training.epochs")),
            "training.epochs" => drop(self.entries.remove("training.steps")),
            "training.backend" if is_other && !self.is_set("training.device") => {
                self.entries.remove("training.device");
            }
            _ => {}
        }
        self.entries.insert(key, Entry { is_set: true, ..Entry::new(value, text, origin) });
    }

    fn is_set(&self, key: &str) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.is_set)
    }

    /// The config, typed and checked, also by `check`.
    pub fn read(mut self, check: impl Fn(&Config) -> Result<()>) -> Result<Config> {
        self.settle();
        let config = self.typed().and_then(|config| {
            config.check()?;
            check(&config)?;
            Ok(config)
        });
        config.map_err(|error| {
            let origin = if let Error::Key { key, .. } = &error { self.origin(key) } else { None };
            error.at(origin)
        })
    }

    /// Where a key is written, if it is.
    fn origin(&self, key: &str) -> Option<Origin> {
        self.entries.get(key)?.origin.clone()
    }

    /// Where a key is written, if it is and has this value there.
    pub fn origin_of_value(&self, key: &str, value: &str) -> Option<Origin> {
        let [written, value] =
            [self.entries.get(key)?.text.as_str(), value].map(|text| text.trim_matches('"'));
        let numbers = written.parse::<f64>().ok().zip(value.parse::<f64>().ok());
        let is_same = written == value || numbers.is_some_and(|(written, value)| written == value);
        self.origin(key).filter(|_| is_same)
    }

    /// Applies what follows from overrides: a file or a task that is set decides `data.source`, and where that
    /// changes, `data.vocab` and the numbers of samples return to their defaults.
    fn settle(&mut self) {
        let source = match (self.is_set("data.source"), self.is_set("data.path"), self.is_set("data.task")) {
            (false, true, _) if self.source == Source::Sequences.to_string() => self.source_of_path(),
            (false, false, true) => Source::Sequences.to_string(),
            _ => self.data_source(),
        };
        for size in ["data.vocab", "data.train_samples", "data.valid_samples"] {
            if source != self.source && !self.is_set(size) {
                self.entries.remove(size);
            }
        }
        let entry = self.entries.entry("data.source".to_string());
        let entry = entry.or_insert_with(|| Entry::new(Value::from(""), "", None));
        // What is no word is answered as such, at its place.
        if entry.value.is_str() {
            entry.value = source.into();
        }
    }

    /// Where the data comes from: as `data.source` says, or else what `data.path` names.
    fn data_source(&self) -> String {
        self.word("data.source").map_or_else(|| self.source_of_path(), str::to_string)
    }

    fn source_of_path(&self) -> String {
        Source::of(Path::new(self.word("data.path").unwrap_or_default())).to_string()
    }

    fn word(&self, key: &str) -> Option<&str> {
        self.entries.get(key)?.value.as_str()
    }

    /// The config, typed.
    fn typed(&mut self) -> Result<Config> {
        check_keys(&self.entries)?;
        loop {
            let error = match serde_path_to_error::deserialize(self.values()) {
                Ok(config) => return Ok(config),
                Err(error) => error,
            };
            let path = error.path().to_string();
            // As training.validate_at[1].
            let mut parts = path.split(['.', '[']);
            let key = format!("{}.{}", parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            let expected = expected(error.inner().message());
            match self.entries.get_mut(&key) {
                // `--set run.name=7` means the text "7"; and a choice is a word: as one, serde answers with those that
                // there are.
                Some(Entry { value, text, is_set, .. })
                    if !value.is_str()
                        && (*is_set && expected.contains("text in quotes")
                            || expected.contains("string only")) =>
                {
                    *value = text.clone().into();
                }
                entry => {
                    let text = entry.map(|entry| entry.text.clone()).unwrap_or_default();
                    return Err(Error::key(&key, text, format!("cannot be used: {expected}")));
                }
            }
        }
    }

    /// All values, each in its section.
    fn values(&self) -> Table {
        let mut values = Table::new();
        for (key, Entry { value, .. }) in &self.entries {
            let sections = if key.starts_with(SEARCH) { 3 } else { 2 };
            let mut table = &mut values;
            let mut parts = key.splitn(sections, '.').peekable();
            while let Some(part) = parts.next() {
                let of_part = if parts.peek().is_some() { Value::from(Table::new()) } else { value.clone() };
                match table.entry(part).or_insert(of_part) {
                    Value::Table(inner) => table = inner,
                    _ => break,
                }
            }
        }
        values
    }
}

fn read(path: &Path) -> Result<String> {
    let shown = path.display();
    ensure(!path.is_dir(), Error::Input, || format!("`{shown}` is a folder: name the config file in it"))?;
    ensure(path.try_exists().unwrap_or(true), Error::Input, || {
        format!(
            "there is no config file `{shown}`: name one that exists, or leave it out for the default experiment"
        )
    })?;
    Text::open(path)?.whole()
}

/// What is no TOML in a text.
fn syntax(text: &str, path: Option<&Path>, error: &toml::de::Error) -> Error {
    let problem = match (error.message(), error.span()) {
        ("duplicate key", Some(span)) => {
            let key = text.get(span).unwrap_or_default();
            format!("`{key}` stands here a second time: remove one of the two")
        }
        (message, Some(span)) if is_path_with_backslashes(text, span.start) => format!(
            "{}: in double quotes a backslash begins an escape; write a path in single quotes, as 'C:\\data.txt', or \
             with forward slashes",
            message.replace('\n', ", ")
        ),
        (message, _) => message.replace('\n', ", "),
    };
    let (line, column) = error.span().map(|span| line_and_column(text, span.start)).unzip();
    Error::in_file(path.unwrap_or(Path::new("")), line, column, problem)
}

/// Whether an error lies right behind a backslash of a text in double quotes that has no line break.
fn is_path_with_backslashes(text: &str, offset: usize) -> bool {
    let before = text.get(..offset).and_then(|before| before.rsplit('\n').next()).unwrap_or_default();
    let last =
        before.trim_end_matches(|character: char| character.is_ascii_hexdigit() || "uUx".contains(character));
    last.contains('"') && (last.ends_with('\\') || text[offset..].starts_with('\\'))
}

fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.rsplit('\n').next().unwrap_or_default();
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}

/// The value that was written; refuses numbers that no key takes and that a config could not say again.
fn value(written: &Spanned<DeValue<'_>>) -> Result<Value, &'static str> {
    match Value::deserialize(ValueDeserializer::from(written.clone())) {
        Ok(Value::Float(number)) if !number.is_finite() => Err("must be a finite number"),
        Ok(value) => Ok(value),
        Err(_) => Err("is too large: the most is 9223372036854775807, and the least its opposite"),
    }
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
                "a.toml:2: `run.seed` = 18446744073709551615 is too large: the most is 9223372036854775807",
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
    fn the_place_of_a_key_is_that_of_the_value_that_was_written() {
        let text = "[training]\nprecision = \"f16\"\nwarmup = 8\nlearning_rate = 1e-3\n";
        let written = Written::parse(text, Some(Path::new("a.toml"))).unwrap();
        let line = |key: &str, value: &str| match written.origin_of_value(key, value) {
            Some(Origin::File(place)) => place.line,
            _ => None,
        };
        assert_eq!(line("training.precision", "f16"), Some(2));
        assert_eq!(line("training.warmup", "8.0"), Some(3));
        assert_eq!(line("training.learning_rate", "0.001"), Some(4));
        // Of a search, or a default.
        assert_eq!((line("training.learning_rate", "0.003"), line("training.steps", "7")), (None, None));
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
        for key in Config::default().values().into_keys() {
            for value in ["{ a = 1 }", "[[1]]", "1979-05-27"] {
                let said = said(&format!("{key} = {value}"), &[]);
                assert!(!said.contains("invalid type") && !said.contains("struct "), "{said}");
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
        let activation = |text: &str, set: &str| {
            Config::parse(text, Path::new("a.toml"), &[set.to_string()]).unwrap().model.activation
        };
        use crate::ops::Activation::{Gelu, GeluTanh};
        assert_eq!(activation("[model]\ngelu = \"tanh\"", "model.heads=2"), GeluTanh);
        assert_eq!(activation("[model]\ngelu = \"tanh\"", "model.gelu=erf"), Gelu);
        let wrong = said("[training]\nwatch = \"riddle\"", &[]);
        assert!(wrong.starts_with("a.toml:2: `training.monitor` = \"riddle\""), "{wrong}");
    }
}
