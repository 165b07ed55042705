//! `runs`: a table of the runs in a folder.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::input::{run_path, warn_changed_config};
use crate::comparison::{Listed, list};
use crate::config::{keys_named, nearest_key, normalised};
use crate::error::{Error, Result};
use crate::numbers::{counted, fixed, thousands};
use crate::terminal::{print_json, table, warn};
use crate::training::RUNS;

/// List runs and studies in a table.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Runs, or folders that contain runs. [default: runs]
    #[arg(value_name = "FOLDER", value_parser = run_path())]
    folders: Vec<PathBuf>,
    /// Sorts by a column such as loss, a key of the JSON output, or a config key such as model.heads.
    #[arg(long, value_name = "KEY", default_value = "name", allow_hyphen_values = true)]
    sort: String,
    /// Lists only runs in which a key has this value, e.g. --filter data=sort or --filter model.heads=4; may be
    /// repeated.
    #[arg(long = "filter", value_name = "KEY=VALUE")]
    filters: Vec<String>,
    /// Prints JSON: a list of the runs with all their fields.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: Args) -> Result<()> {
    let filter = |text: &String| match text.split_once('=') {
        Some((key, value)) => Ok((key.trim().to_string(), value.trim().to_string())),
        None => Err(Error::Input(format!(
            "--filter {text}: not of the form KEY=VALUE; use e.g. --filter data=sort"
        ))),
    };
    let filters = args.filters.iter().map(filter).collect::<Result<Vec<_>>>()?;
    if let Some(key) = args.sort.strip_prefix('-') {
        return Err(Error::Input(format!(
            "--sort {}: the order is always ascending; use --sort {key}",
            args.sort
        )));
    }
    let folders = match args.folders.is_empty() {
        true => vec![PathBuf::from(RUNS)],
        false => args.folders,
    };
    let filters = filters.into_iter().map(|(key, value)| Ok((column(&key)?, value)));
    let filters = filters.collect::<Result<Vec<_>>>()?;
    let (runs, damaged) = list(&folders, &filters, &column(&args.sort)?)?;
    for error in &damaged {
        warn(&format!("warning: skipped: {error}"));
    }
    runs.iter().filter(|run| run.state.config_changed).for_each(|run| warn_changed_config(&run.path));
    if args.json {
        print_json(&runs);
    } else if runs.is_empty() {
        let paths: Vec<_> = folders.iter().map(|folder| format!("`{}`", folder.display())).collect();
        let paths = paths.join(", ");
        let problem = match filters.is_empty() {
            true => format!("no runs in {paths}; create one with `train`"),
            false => format!("no runs in {paths} match --filter; change the filter, or omit it"),
        };
        return Err(Error::Input(problem));
    } else {
        let names =
            ["run", "data", "model", "parameters", "loss", "above floor", "tokens/s", "ended", "when"];
        table("lllrrrrlr", &names, &runs.iter().map(cells).collect::<Vec<_>>());
    }
    Ok(())
}

/// Returns the key of a column, given its key, its title, or the name of a config key.
fn column(typed: &str) -> Result<String> {
    let columns = Listed::default().keys();
    let name = normalised(typed).replace(' ', "_");
    let titled =
        TITLES.iter().find(|(titles, _)| titles.contains(&name.as_str())).map(|(_, key)| key.to_string());
    let own = columns.contains(&name).then(|| name.clone());
    let own = own.or_else(|| typed.contains('.').then(|| typed.to_string())).or(titled);
    let key = own.or_else(|| match &keys_named(&name)[..] {
        [key] => Some(key.clone()),
        _ => None,
    });
    key.ok_or_else(|| {
        let nearest = columns.iter().map(|column| (strsim::jaro_winkler(&name, column), column));
        let nearest = nearest.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|&(likeness, _)| likeness > 0.8);
        let nearest = nearest.map(|(_, column)| column.clone()).or_else(|| nearest_key(&name));
        let hint = nearest.map_or("the".to_string(), |key| format!("did you mean `{key}`? The"));
        Error::Input(format!(
            "unknown column `{typed}`; {hint} columns are {}, and config keys such as model.heads",
            columns.join(", ")
        ))
    })
}

/// The titles of columns and their aliases, with the key of the column.
const TITLES: [(&[&str], &str); 7] = [
    (&["run", "folder"], "name"),
    (&["loss", "valid_loss", "val_loss", "best_loss", "best"], "best_valid_loss"),
    (&["gap", "above"], "above_floor"),
    (&["tokens/s", "speed", "tokens_per_s", "throughput"], "tokens_per_second"),
    (&["when", "date", "time", "age"], "changed"),
    (&["params", "size"], "parameters"),
    (&["status", "state"], "ended"),
];

fn cells(run: &Listed) -> [String; 9] {
    let nats = |loss: Option<f64>| loss.map_or_else(String::new, |loss| fixed(loss, 4));
    let count = |count: Option<f64>| count.map_or_else(String::new, thousands);
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let ended = match run.trials {
        Some(trials) => {
            let seeds = run.seeds.filter(|&seeds| seeds > 1);
            let seeds =
                seeds.map_or_else(String::new, |seeds| format!(" with {} each", counted(seeds, "seed")));
            format!("study of {}{seeds}", counted(trials, "trial"))
        }
        None => run.state.ended.replace('_', " "),
    };
    // The file and its folder, which is named after the model.
    let origin = |path: &String| {
        let parts: Vec<_> = Path::new(path).iter().map(|part| part.to_string_lossy()).collect();
        format!("from {}", parts[parts.len().saturating_sub(2)..].join("/"))
    };
    [
        run.name.clone(),
        run.imported_from.as_ref().map_or_else(|| text(&run.data), origin),
        text(&run.model),
        count(run.parameters.map(|count| count as f64)),
        nats(run.losses.best_valid_loss),
        nats(run.losses.above_floor),
        count(run.training.tokens_per_second),
        ended,
        run.state.changed.map_or_else(String::new, ago),
    ]
}

/// Formats the age of a time, in the largest unit that fits.
fn ago(seconds: u64) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let past = now.saturating_sub(seconds) as usize;
    match past {
        0..60 => "just now".to_string(),
        60..3_600 => format!("{} ago", counted(past / 60, "minute")),
        3_600..86_400 => format!("{} ago", counted(past / 3_600, "hour")),
        _ => format!("{} ago", counted(past / 86_400, "day")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_accept_their_common_names() {
        for (typed, expected) in [
            ("loss", "best_valid_loss"),
            ("best_valid_loss", "best_valid_loss"),
            ("above floor", "above_floor"),
            ("tokens/s", "tokens_per_second"),
            ("when", "changed"),
            ("run", "name"),
            ("heads", "model.heads"),
            ("model.heads", "model.heads"),
            ("steps", "steps"),
        ] {
            assert_eq!(column(typed).unwrap(), expected, "{typed}");
        }
        let message = column("paramters").unwrap_err().to_string();
        assert!(message.contains("did you mean `parameters`?"), "{message}");
        let message = column("lr").unwrap_err().to_string();
        assert!(message.contains("did you mean `training.learning_rate`?"), "{message}");
        let message = column("colour").unwrap_err().to_string();
        assert!(message.contains("; the columns are ") && message.contains("best_valid_loss"), "{message}");
    }
}
