//! Config keys as options: `--steps 500` is `--set training.steps=500`, for each key with a unique name.
//!
//! The command line is rewritten before clap parses it, so the options follow from the declared keys.

use std::ffi::{OsStr, OsString};
use std::iter::Peekable;

use clap::{Arg, Command};

use crate::config::{DURATIONS, is_boolean, keys_named, nearest_key, normalised};
use crate::error::{Error, Origin, Result, excerpt};

/// Options that differ from the name of their key, or that stand for one of several keys with the same name.
const SHORTHANDS: [(&str, &str); 3] =
    [("data", "data.path"), ("lr", "training.learning_rate"), ("seed", "run.seed")];

/// The keys that a command line sets.
#[derive(Debug, Default)]
pub struct KeyOptions {
    /// The key options, as pairs of key and option.
    options: Vec<(String, String)>,
    /// The keys that `--set` names.
    assigned: Vec<String>,
}

impl KeyOptions {
    /// Replaces the origin of a key's error by the option that set the key.
    pub fn with_option(&self, mut error: Error) -> Error {
        if let Error::Key { origin: Some(origin @ Origin::CommandLine), key, .. } = &mut error
            && let Some((_, option)) = self.options.iter().rfind(|(set, _)| set == key)
        {
            *origin = Origin::KeyOption(option.clone());
        }
        error
    }

    /// Returns an error for an option whose key another option has already set.
    fn check_unset(&self, name: &str, key: &str) -> Result<()> {
        let conflicts = |other: &str| other == key || [other, key].iter().all(|it| DURATIONS.contains(it));
        let Some((_, other)) = self.options.iter().find(|(other, _)| conflicts(other)) else { return Ok(()) };
        let problem = match *other == format!("--{name}") {
            true => "is passed twice; keep one".to_string(),
            false => format!("conflicts with {other}; keep one of them"),
        };
        Err(Error::Input(format!("--{name} {problem}")))
    }

    /// Returns an error for an option whose key is also set by `--set`.
    fn check_unassigned(&self) -> Result<()> {
        match self.options.iter().find(|(key, _)| self.assigned.contains(key)) {
            Some((key, option)) => {
                Err(Error::Input(format!("{option} and --set {key} set the same key; keep one")))
            }
            None => Ok(()),
        }
    }

    /// Records the key of a `--set` assignment.
    fn assign(&mut self, assignment: &OsStr) {
        let assignment = assignment.to_string_lossy();
        self.assigned.extend(assignment.split_once('=').map(|(key, _)| key.trim().to_string()));
    }
}

/// Rewrites the key options of the command line `typed` to `--set`, and returns those options too.
///
/// # Errors
/// Returns an error if an option lacks its value, is ambiguous, or sets a key that is already set, or if an unknown
/// option is similar to a key.
pub fn rewrite(
    program: &Command,
    typed: impl Iterator<Item = OsString>,
) -> Result<(Vec<OsString>, KeyOptions)> {
    let mut typed = typed.peekable();
    let (mut rewritten, mut options) = (Vec::new(), KeyOptions::default());
    let mut command = None;
    while let Some(word) = typed.next() {
        let Some(subcommand) = command else {
            let named = word.to_str().and_then(|name| program.find_subcommand(name));
            command = named.filter(|_| !rewritten.is_empty());
            rewritten.push(word);
            continue;
        };
        if word == "--" {
            rewritten.push(word);
            break;
        }
        rewritten.extend(option(program, subcommand, word, &mut typed, &mut options)?);
    }
    rewritten.extend(typed);
    options.check_unassigned()?;
    Ok((rewritten, options))
}

/// Rewrites one word of the command line, with the value that follows it.
fn option(
    program: &Command,
    command: &Command,
    word: OsString,
    rest: &mut Peekable<impl Iterator<Item = OsString>>,
    options: &mut KeyOptions,
) -> Result<Vec<OsString>> {
    let own =
        |name: &str| program.get_arguments().chain(command.get_arguments()).find(|arg| is_named(arg, name));
    let takes_keys = command.get_arguments().any(|arg| arg.get_id() == "set");
    let Some((name, value)) = split(&word).filter(|_| takes_keys) else { return Ok(vec![word]) };
    if let Some(own) = own(&name) {
        let has_next = own.get_action().takes_values() && value.is_none();
        let next = has_next.then(|| rest.next()).flatten();
        match name.as_str() {
            // `evaluate` defines --data itself, for its help text.
            "data" => options.options.push(("data.path".into(), "--data".into())),
            "set" => value.iter().chain(&next).for_each(|assignment| options.assign(assignment)),
            _ => {}
        }
        return Ok(std::iter::once(word).chain(next).collect());
    }
    let mut next = |is_value: fn(&str) -> bool| rest.next_if(|next| is_value(&next.to_string_lossy()));
    let Some(key) = key(&name, command)? else {
        let given = value.or_else(|| next(|text| !text.starts_with("--")));
        if let Some(option) = other_name(&name).filter(|option| own(option).is_some()) {
            return Err(Error::Input(format!("unknown option `--{name}`; use --{option} (see --help)")));
        }
        check_not_like_key(&name, given.as_deref(), command)?;
        return Ok(std::iter::once(word).chain(given).collect());
    };
    let value = match value {
        Some(value) => value,
        None if is_boolean(&key) => next(is_boolean_word).unwrap_or_else(|| "true".into()),
        None => next(|text| !text.starts_with("--")).ok_or_else(|| {
            Error::Input(format!(
                "--{name} lacks its value; use --{name} VALUE, the same as --set {key}=VALUE"
            ))
        })?,
    };
    let (Some(_), Some(value)) = (word.to_str(), value.to_str()) else {
        let problem = "is not UTF-8, which a config requires; rename the file or its folder";
        return Err(Error::Input(format!("--{name}: the value {problem}")));
    };
    check_value(&name, &key, value)?;
    options.check_unset(&name, &key)?;
    let set = format!("--set={key}={value}").into();
    options.options.push((key, format!("--{name}")));
    Ok(vec![set])
}

/// Returns an error for an unknown option that is similar to a key and not to the command's own options.
fn check_not_like_key(name: &str, given: Option<&OsStr>, command: &Command) -> Result<()> {
    if let Some(key) = negated_key(name) {
        return Err(unknown_option(name, &key, "false", command));
    }
    let nearest = nearest(name).and_then(|key| with_effect(key, command));
    let Some(key) = nearest.filter(|_| !is_like_own(name, command)) else { return Ok(()) };
    let value = given.map_or("VALUE".into(), OsStr::to_string_lossy);
    if name == "checkpoint" && value.parse::<usize>().is_ok() {
        return Err(Error::Input(format!(
            "unknown option `--checkpoint`; `{}` uses the best weights of a run (see --help)",
            command.get_name()
        )));
    }
    Err(unknown_option(name, &key, &excerpt(&value, 60), command))
}

/// Returns an error for an empty value, such as an unset shell variable, and for a delimiter that is a space.
fn check_value(name: &str, key: &str, value: &str) -> Result<()> {
    if key == "data.delimiter" && value == " " {
        return Err(Error::Input(format!(
            "--{name}: the value is a space, which must be spelled out; use --{name} space"
        )));
    }
    if value.trim().is_empty() {
        let problem = "the value is empty, perhaps because of an unset shell variable; pass a value";
        return Err(Error::Input(format!("--{name}, which sets {key}: {problem}")));
    }
    Ok(())
}

/// Creates the error for an unknown option, which suggests a key.
fn unknown_option(name: &str, key: &str, value: &str, command: &Command) -> Error {
    let option = key.split_once('.').map_or(key, |(_, option)| option);
    let is_option = self::key(option, command).is_ok_and(|named| named.as_deref() == Some(key));
    let own = if is_option { format!(" or --{} {value}", option.replace('_', "-")) } else { String::new() };
    Error::Input(format!("unknown option `--{name}`; use --set {key}={value}{own} (see --help)"))
}

/// Returns true for a word that is a boolean value.
fn is_boolean_word(word: &str) -> bool {
    matches!(word.to_lowercase().as_str(), "true" | "false" | "yes" | "no" | "on" | "off" | "1" | "0")
}

/// Returns the key that an option such as `--no-bias` sets to false.
fn negated_key(name: &str) -> Option<String> {
    let key = nearest_key(normalised(name).strip_prefix("no_")?)?;
    is_boolean(&key).then_some(key)
}

/// Returns the option for a name that other programs use.
fn other_name(name: &str) -> Option<&'static str> {
    match normalised(name).as_str() {
        "out" | "out_dir" | "output" | "output_dir" | "save_dir" | "log_dir" | "logdir" => Some("run"),
        "gpu" | "cuda" | "accelerator" => Some("backend"),
        "from_pretrained" | "init_from" | "pretrained" => Some("from"),
        "resume_from" | "resume_from_checkpoint" => Some("resume"),
        _ => None,
    }
}

/// Returns the key most similar to a name.
fn nearest(name: &str) -> Option<String> {
    let name = normalised(name);
    let is_near = |(shorthand, _): &&(&str, &str)| strsim::damerau_levenshtein(shorthand, &name) <= 1;
    let shorthand = SHORTHANDS.iter().find(is_near).map(|(_, key)| key.to_string());
    nearest_key(&name).or(shorthand)
}

/// Returns the key itself or, for a key of `[tune]`, which only `tune` reads, the key of the same name that the command reads.
fn with_effect(nearest: String, command: &Command) -> Option<String> {
    match nearest.strip_prefix("tune.") {
        Some(name) if command.get_name() != "tune" => key(name, command).ok().flatten(),
        _ => Some(nearest),
    }
}

/// Splits a long option into its name and its value.
fn split(word: &OsStr) -> Option<(String, Option<OsString>)> {
    // Only the name must be UTF-8.
    let option = word.to_string_lossy();
    let (name, value) = option
        .strip_prefix("--")?
        .split_once('=')
        .map_or((option.strip_prefix("--")?, None), |(name, value)| (name, Some(value.into())));
    Some((name.to_string(), value))
}

fn is_named(arg: &Arg, name: &str) -> bool {
    matches!(name, "help" | "version")
        || arg.get_long_and_visible_aliases().is_some_and(|names| names.contains(&name))
}

/// Returns the key that an option sets.
fn key(name: &str, command: &Command) -> Result<Option<String>> {
    let name = normalised(name);
    if let Some((_, key)) = SHORTHANDS.iter().find(|(shorthand, _)| *shorthand == name) {
        return Ok(Some(key.to_string()));
    }
    if let Some((_, last)) = name.split_once('.') {
        return Ok(keys_named(last).into_iter().find(|key| *key == name));
    }
    let mut keys = keys_named(&name);
    // Only `tune` reads the section [tune].
    keys.retain(|key| command.get_name() == "tune" || !key.starts_with("tune."));
    match &keys[..] {
        [] => Ok(None),
        [key] => Ok(Some(key.clone())),
        several => {
            let sets =
                several.iter().map(|key| format!("--set {key}=VALUE")).collect::<Vec<_>>().join(" or ");
            Err(Error::Input(format!("--{name} is ambiguous; use {sets}")))
        }
    }
}

/// Returns true if a name is more similar to an option of the command than to a key.
fn is_like_own(name: &str, command: &Command) -> bool {
    let likeness = |known: &str| strsim::jaro_winkler(name, known);
    let key = nearest_key(name).unwrap_or_default();
    let key_likeness = key.split_once('.').map_or(0.0, |(_, last)| likeness(&last.replace('_', "-")));
    let own = command.get_arguments().filter_map(Arg::get_long).map(likeness).fold(0.0, f64::max);
    own > 0.85 && own > key_likeness
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::command;

    fn words(typed: &str) -> Result<String> {
        let (words, _) = rewrite(&command(), typed.split(' ').map(OsString::from))?;
        Ok(words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn options_conflict_with_set_of_same_key() {
        for typed in [
            "p train --steps 5 --set training.steps=6",
            "p train --set=training.steps=6 --steps=5",
            "p train --data a.csv --set data.path=b.csv",
            "p evaluate run --data=a.csv --set data.path=b.csv",
        ] {
            let message = words(typed).unwrap_err().to_string();
            assert!(message.contains("set the same key; keep one"), "{typed}: {message}");
        }
        assert!(words("p train --steps 5 --set model.heads=2 --set model.layers=1").is_ok());
    }

    #[test]
    fn config_keys_work_as_command_options() {
        for (typed, expected) in [
            ("p train --steps 500", "p train --set=training.steps=500"),
            ("p train --steps=500", "p train --set=training.steps=500"),
            ("p train --learning-rate 1e-3 a.toml", "p train --set=training.learning_rate=1e-3 a.toml"),
            ("p train --learning_rate=1e-3", "p train --set=training.learning_rate=1e-3"),
            ("p -q train --layers 4 --json", "p -q train --set=model.layers=4 --json"),
            ("p train --data my.txt --seed 3", "p train --set=data.path=my.txt --set=run.seed=3"),
            ("p train --lr 1 --name x", "p train --set=training.learning_rate=1 --set=run.name=x"),
            ("p train --qk-norm a.toml", "p train --set=model.qk_norm=true a.toml"),
            ("p train --qk-norm false", "p train --set=model.qk_norm=false"),
            ("p train --qk-norm yes", "p train --set=model.qk_norm=yes"),
            ("p train --model.heads=2", "p train --set=model.heads=2"),
            ("p train --length -1", "p train --set=data.length=-1"),
            ("p tune --trials 3", "p tune --set=tune.trials=3"),
            ("p data --data=a.csv --column x", "p data --set=data.path=a.csv --set=data.column=x"),
            ("p evaluate run --data b.txt", "p evaluate run --data b.txt"),
            // The command's own options, and their values.
            ("p train --run --steps", "p train --run --steps"),
            ("p train --backend ndarray --from x", "p train --backend ndarray --from x"),
            ("p evaluate run --length 3", "p evaluate run --length 3"),
            ("p generate run --steps 3", "p generate run --steps 3"),
            ("p train -- --steps 3", "p train -- --steps 3"),
            ("p train --colour red", "p train --colour red"),
            ("p train --dry-rum", "p train --dry-rum"),
        ] {
            assert_eq!(words(typed).unwrap(), expected, "{typed}");
        }
    }

    #[test]
    fn help_examples_work_for_every_command() {
        let mut commands = 0;
        for subcommand in command().get_subcommands() {
            let set = subcommand.get_arguments().find(|arg| arg.get_id() == "set");
            let help = set.and_then(Arg::get_help).map(ToString::to_string).unwrap_or_default();
            let Some((_, examples)) = help.split_once("is also an option: ") else { continue };
            let examples = examples.split(". ").next().unwrap_or_default().replace(',', "");
            let rewritten = words(&format!("p {} {examples}", subcommand.get_name())).unwrap();
            assert_eq!(rewritten.matches("--set=").count(), 3, "{rewritten}");
            commands += 1;
        }
        assert_eq!(commands, 4);
    }

    #[test]
    fn options_of_other_programs_suggest_the_key() {
        let checkpoint = words("p train --from a --checkpoint 40").unwrap_err().to_string();
        assert!(checkpoint.contains("best weights") && !checkpoint.contains("run.from"), "{checkpoint}");
        for (typed, expected) in [
            (
                "p train --max-iters 500",
                "unknown option `--max-iters`; use --set training.steps=500 or --steps 500 (see --help)",
            ),
            ("p train --max_steps=5", "use --set training.steps=5"),
            ("p train --batch 8", "use --set training.batch_size=8 or --batch-size 8 (see --help)"),
            ("p train --n_layer 3", "use --set model.layers=3 or --layers 3"),
            ("p train --hidden-size 9", "use --set model.d_model=9 or --d-model 9"),
            ("p train --file a.txt", "use --set data.path=a.txt"),
            ("p train --vocab-size 9", "use --set data.vocab=9"),
            ("p train --block-size 9", "use --set data.length=9"),
            ("p train --learning-rat 1", "use --set training.learning_rate=1"),
            ("p train --no-bias", "use --set model.bias=false or --bias false"),
            (
                "p train --step 9",
                "unknown option `--step`; use --set training.steps=9 or --steps 9 (see --help)",
            ),
            ("p train --out-dir x", "unknown option `--out-dir`; use --run (see --help)"),
            ("p train --dat x", "use --set data.path=x"),
            ("p train --data-length 64", "use --set data.length=64 or --length 64 (see --help)"),
            (
                "p train --steps",
                "--steps lacks its value; use --steps VALUE, the same as --set training.steps=VALUE",
            ),
            ("p tune --steps 5", "use --set training.steps=VALUE or --set tune.steps=VALUE"),
        ] {
            let message = words(typed).unwrap_err().to_string();
            assert!(message.contains(expected), "{typed}: {message}");
        }
    }
}
