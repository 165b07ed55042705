//! The recipe of the textbooks as stages: batch size, learning rate with linear warm-up, heads and
//! width, dropout. Each stage changes its keys alone, around the best of the stages before, whose own
//! values are among those it compares.

use super::space::{Setting, configured, keeps_its_shape};
use crate::config::Config;

const BATCH_SIZES: [i64; 3] = [16, 32, 64];
/// The textbooks' three and one above them, which small decoders bear.
const RATES: [f64; 4] = [1e-4, 5e-4, 1e-3, 3e-3];
const HEADS: [i64; 3] = [2, 4, 8];
const DROPOUT: [f64; 3] = [0.1, 0.2, 0.3];
/// The stage that changes the shape of the model, which weights of another run would no longer fit.
const SHAPE: &str = "heads and width";
/// Validations without improvement that end a trial, where the config names none.
const PATIENCE: usize = 5;
/// Share of a run over which the rate rises, where the config has no warm-up.
const WARMUP: f64 = 0.05;

/// What one stage compares.
#[derive(Debug, Clone, PartialEq)]
pub struct Stage {
    /// What it looks for, in words.
    pub name: &'static str,
    /// The keys it changes, with their values.
    pub choices: Vec<Setting>,
}

/// The config as the recipe starts from it: with warm-up, and stopping early.
pub fn base(config: &Config) -> Config {
    let mut base = config.clone();
    if base.training.warmup == 0.0 {
        base.training.warmup = WARMUP;
    }
    if base.training.patience == 0 {
        base.training.patience = PATIENCE;
    }
    base
}

/// What the recipe starts from: the config's own values of all keys that it changes.
pub fn start(base: &Config) -> Setting {
    let (model, training) = (&base.model, &base.training);
    let whole = |number: usize| toml::Value::Integer(number as i64);
    [
        ("training.batch_size", whole(training.batch_size)),
        ("training.learning_rate", training.learning_rate.into()),
        ("model.d_model", whole(model.d_model)),
        ("model.heads", whole(model.heads)),
        ("model.dropout", model.dropout.into()),
    ]
    .into_iter()
    .filter(|(key, _)| !keeps_its_shape(base) || !matches!(*key, "model.d_model" | "model.heads"))
    .map(|(key, value)| (key.to_string(), value))
    .collect()
}

/// The stages in their order.
pub fn stages(base: &Config) -> Vec<Stage> {
    let one = |key: &str, values: Vec<toml::Value>| {
        values.into_iter().map(|value| [(key.to_string(), value)].into()).collect()
    };
    let width = base.model.d_model as i64;
    let mut shapes = Vec::new();
    for d_model in [width / 2, width, 2 * width] {
        for heads in HEADS
            .into_iter()
            .chain((!HEADS.contains(&(base.model.heads as i64))).then_some(base.model.heads as i64))
        {
            shapes.push(
                [("model.d_model", d_model), ("model.heads", heads)]
                    .map(|(key, value)| (key.to_string(), toml::Value::Integer(value)))
                    .into(),
            );
        }
    }
    let mut stages = vec![
        Stage {
            name: "batch size",
            choices: one("training.batch_size", BATCH_SIZES.map(toml::Value::Integer).to_vec()),
        },
        Stage {
            name: "learning rate",
            choices: one("training.learning_rate", RATES.map(toml::Value::Float).to_vec()),
        },
        Stage { name: SHAPE, choices: shapes },
        Stage { name: "dropout", choices: one("model.dropout", DROPOUT.map(toml::Value::Float).to_vec()) },
    ];
    if keeps_its_shape(base) {
        stages.retain(|stage| stage.name != SHAPE);
    }
    stages
}

impl Stage {
    /// The settings that the stage compares: the best so far, and it with each choice that the config
    /// lets pass.
    pub fn settings(&self, base: &Config, best: &Setting) -> Vec<Setting> {
        let mut settings = vec![best.clone()];
        for choice in &self.choices {
            let mut setting = best.clone();
            setting.extend(choice.clone());
            if !settings.contains(&setting) && configured(base, &setting).is_ok() {
                settings.push(setting);
            }
        }
        settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_holds_the_best_so_far_and_changes_its_own_keys_alone() {
        let config = base(&Config::default());
        let best = start(&config);
        let counts = stages(&config).into_iter().map(|stage| {
            let settings = stage.settings(&config, &best);
            assert_eq!(settings[0], best);
            for (index, setting) in settings.iter().enumerate() {
                assert!(configured(&config, setting).is_ok());
                assert!(!settings[..index].contains(setting), "{setting:?} comes twice");
                let changed = setting.iter().filter(|(key, value)| best[*key] != **value);
                let keys = &stage.choices[0];
                assert!(changed.into_iter().all(|(key, _)| keys.contains_key(key)));
            }
            (stage.name, settings.len())
        });
        assert_eq!(
            counts.collect::<Vec<_>>(),
            [("batch size", 3), ("learning rate", 4), ("heads and width", 9), ("dropout", 4)]
        );
    }

    #[test]
    fn a_model_that_starts_from_weights_keeps_its_shape() {
        let mut config = Config::default();
        config.run.from = "somewhere".into();
        let names = stages(&config).into_iter().map(|stage| stage.name);
        assert_eq!(names.collect::<Vec<_>>(), ["batch size", "learning rate", "dropout"]);
        assert!(!start(&config).contains_key("model.d_model"));
    }

    #[test]
    fn a_width_that_heads_do_not_divide_is_left_out() {
        let mut config = Config::default();
        (config.model.d_model, config.model.heads) = (12, 3);
        let stage = &stages(&config)[2];
        let shapes = stage.settings(&config, &start(&config));
        let shapes = shapes.iter().map(|setting| {
            (setting["model.d_model"].as_integer().unwrap(), setting["model.heads"].as_integer().unwrap())
        });
        let mut shapes = shapes.collect::<Vec<_>>();
        shapes.sort_unstable();
        assert_eq!(shapes, [(6, 2), (6, 3), (12, 2), (12, 3), (12, 4), (24, 2), (24, 3), (24, 4), (24, 8)]);
    }
}
