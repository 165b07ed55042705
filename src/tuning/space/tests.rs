//! Tests of search spaces: their combinations, draws and errors.

use super::*;

fn space(search: &str) -> Result<Space> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("study.toml");
    std::fs::write(&file, format!("[tune.search]\n{search}")).unwrap();
    let check = |config: &Config| Space::new(config).map(drop);
    Space::new(&Config::load_checked(Some(&file), &[], check)?)
}

fn refused(search: &str) -> String {
    space(search).unwrap_err().to_string()
}

fn values(settings: &[Setting], key: &str) -> Vec<toml::Value> {
    settings.iter().map(|setting| setting[key].clone()).collect()
}

#[test]
fn grid_holds_every_valid_combination() {
    let space = space("\"model.heads\" = [2, 3, 5]\n\"model.d_model\" = [15, 24]").unwrap();
    let grid = space.grid().unwrap();
    let pairs = grid.settings.iter().map(|setting| {
        (setting["model.d_model"].as_integer().unwrap(), setting["model.heads"].as_integer().unwrap())
    });
    assert_eq!(pairs.collect::<Vec<_>>(), [(15, 3), (15, 5), (24, 2), (24, 3)]);
    assert_eq!(grid.refused.len(), 2);
    assert!(grid.refused[0].contains("must divide"));
}

#[test]
fn log_range_points_are_geometric_including_ends() {
    let space = space(
        "\"training.learning_rate\" = { min = 1e-4, max = 1e-2, scale = \"log\", points = 3 }\n\
         \"model.layers\" = { min = 1, max = 3 }",
    )
    .unwrap();
    let grid = space.grid().unwrap().settings;
    let mut rates = values(&grid, "training.learning_rate");
    rates.dedup();
    let floats = [1e-4, 1e-3, 1e-2].map(toml::Value::Float);
    assert!(floats.iter().all(|rate| rates.contains(rate)), "{rates:?}");
    assert_eq!(grid.len(), 9, "three rates and three distinct integers from 1 to 3");
}

#[test]
fn draws_are_in_range_and_depend_on_seed() {
    let space = space(
        "\"training.learning_rate\" = { min = 1e-4, max = 1e-2, scale = \"log\" }\n\
         \"model.heads\" = [2, 3]\n\"model.d_model\" = { min = 5, max = 13 }",
    )
    .unwrap();
    let drawn = space.draw(64, 7).unwrap();
    assert_eq!(drawn.settings.len(), 64);
    assert_eq!(space.draw(64, 7).unwrap(), drawn);
    assert_eq!(
        space.draw(5, 7).unwrap().settings,
        drawn.settings[..5],
        "a longer study starts with the same settings"
    );
    assert_ne!(space.draw(64, 8).unwrap().settings, drawn.settings);
    let rates = values(&drawn.settings, "training.learning_rate");
    let rates = rates.iter().map(|rate| rate.as_float().unwrap()).collect::<Vec<_>>();
    assert!(rates.iter().all(|rate| (1e-4..=1e-2).contains(rate)));
    let below = rates.iter().filter(|&&rate| rate < 1e-3).count();
    assert!((20..44).contains(&below), "half of a logarithmic range is below its middle: {below}");
    for setting in &drawn.settings {
        let integer = |key: &str| setting[key].as_integer().unwrap();
        assert_eq!(integer("model.d_model") % integer("model.heads"), 0);
    }
}

#[test]
fn finite_spaces_are_drawn_completely_without_repetition() {
    let space = space("\"model.heads\" = [2, 4, 8]\n\"training.batch_size\" = [3, 5]").unwrap();
    let drawn = space.draw(100, 0).unwrap().settings;
    assert_eq!(drawn.len(), 6);
    assert!(space.grid().unwrap().settings.iter().all(|setting| drawn.contains(setting)));
    assert_ne!(drawn, space.grid().unwrap().settings, "shuffled");
}

#[test]
fn a_rate_below_the_minimum_is_skipped() {
    let search = "\"training.learning_rate\" = [1e-5, 1e-3]";
    for (set, tried) in [("", vec![1e-3]), ("\n[training]\nmin_learning_rate = 1e-6", vec![1e-5, 1e-3])] {
        let space = space(&format!("{search}{set}")).unwrap();
        let grid = space.grid().unwrap();
        assert_eq!(
            values(&grid.settings, "training.learning_rate"),
            tried.into_iter().map(toml::Value::Float).collect::<Vec<_>>()
        );
        let min_rate = |setting| space.base.with(setting).unwrap().training.min_learning_rate;
        assert!(
            grid.settings.iter().all(|setting| min_rate(setting) == space.base.training.min_learning_rate)
        );
        assert!(
            grid.refused.iter().all(|why| why.contains("must not exceed `training.learning_rate` = 0.00001"))
        );
        assert_eq!(grid.settings.len() + grid.refused.len(), 2);
    }
}

#[test]
fn invalid_searches_are_refused_in_one_line() {
    let cases = [
        (
            "\"model.hed\" = [2]",
            "study.toml:2: `tune.search.model.hed` = [2] is an unknown key; did you mean `model.heads`?",
        ),
        ("\"modell.heads\" = [2]", "did you mean `model.heads`?"),
        ("\"model.heads\" = []", "study.toml:2: `tune.search.model.heads` = [] is empty"),
        ("\"model.heads\" = 4", "must be a list"),
        ("\"model.heads\" = [\"four\"]", "must be a positive integer"),
        ("\"training.batch_size\" = [16, 0]", "`tune.search.training.batch_size` = 0 must be in [1, "),
        ("\"model.dropout\" = { min = 0, max = 2 }", "[0, 1)"),
        ("\"model.dropout\" = { min = 0.3, max = 0.1 }", "is empty: `max` = 0.1 must be above `min` = 0.3"),
        ("\"model.dropout\" = { min = 0.3 }", "missing field `max`"),
        ("\"model.dropout\" = { min = 0, max = 0.5, scale = \"log\" }", "logarithmic scale, but `min` = 0"),
        ("\"model.dropout\" = { min = 0, max = 0.5, sacle = \"log\" }", "unknown field `sacle`"),
        ("\"training.steps\" = [10, 20]", "`tune.steps`"),
        ("\"run.seed\" = [1, 2]", "`tune.seeds`"),
        ("\"data.length\" = [8, 16]", "validation set"),
        ("\"tune.trials\" = [8, 16]", "cannot be searched"),
    ];
    for (search, part) in cases {
        let message = refused(search);
        assert!(message.contains(part) && message.lines().count() == 1, "{search}: {message}");
    }
    let message = space("\"model.heads\" = [3, 5, 7]").unwrap().grid().unwrap_err().to_string();
    assert!(
        message.contains("no combination") && message.contains("must divide `model.d_model` = 64"),
        "{message}"
    );
}
