//! The textbook recipe as stages: batch size, learning rate with linear warm-up, heads and width, dropout. Each stage
//! changes only its own keys, and compares the best setting so far with variants of it.

use super::space::Setting;
use crate::config::Config;

const BATCH_SIZES: [i64; 3] = [16, 32, 64];
/// The three textbook values, and a higher one that works for small decoders.
const RATES: [f64; 4] = [1e-4, 5e-4, 1e-3, 3e-3];
const HEADS: [i64; 3] = [2, 4, 8];
const DROPOUT: [f64; 3] = [0.1, 0.2, 0.3];
/// The default patience: the number of validations without improvement that ends a trial.
const PATIENCE: usize = 5;
/// The default warm-up, as a fraction of a run.
const WARMUP: f64 = 0.05;

/// The settings that a stage compares.
#[derive(Debug, Clone, PartialEq)]
pub struct Stage {
    /// The name of the stage; `None` if it is the only one.
    pub name: Option<&'static str>,
    /// The values of the keys that the stage changes.
    pub choices: Vec<Setting>,
    /// The reasons why other choices are invalid.
    pub refused: Vec<String>,
}

impl Stage {
    /// Returns the settings that the stage compares: the current best, if there is one, and the current best with each
    /// choice.
    pub fn settings(&self, best: &Setting) -> Vec<Setting> {
        let with = |choice: &Setting| best.clone().into_iter().chain(choice.clone()).collect::<Setting>();
        let others = self.choices.iter().map(with).filter(|setting| setting != best);
        Some(best.clone()).filter(|best| !best.is_empty()).into_iter().chain(others).collect()
    }
}

/// Returns the config on which the recipe is based: with warm-up and early stopping.
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

/// Returns the setting from which the recipe starts: the config's own values of all keys that it changes.
pub fn start(base: &Config) -> Setting {
    let (model, training) = (&base.model, &base.training);
    let mut start = Setting::from([
        ("training.batch_size".into(), (training.batch_size as i64).into()),
        ("training.learning_rate".into(), training.learning_rate.into()),
        ("model.dropout".into(), model.dropout.into()),
    ]);
    if base.run.start().is_none() {
        start.extend(shape(model.d_model as i64, model.heads as i64));
    }
    start
}

fn shape(d_model: i64, heads: i64) -> Setting {
    [("model.d_model".into(), d_model.into()), ("model.heads".into(), heads.into())].into()
}

/// Returns the stages in order, with the choices that make valid configs. A model that starts from the weights of a run
/// cannot change its shape.
pub fn stages(base: &Config) -> Vec<Stage> {
    let one = |key: &str, values: &[toml::Value]| {
        values.iter().map(|value| [(key.to_string(), value.clone())].into()).collect::<Vec<_>>()
    };
    let (width, own) = (base.model.d_model as i64, base.model.heads as i64);
    let heads = HEADS.into_iter().chain((!HEADS.contains(&own)).then_some(own)).collect::<Vec<_>>();
    let shapes =
        [width / 2, width, 2 * width].map(|width| heads.iter().map(move |&heads| shape(width, heads)));
    let mut stages = vec![
        ("batch size", one("training.batch_size", &BATCH_SIZES.map(toml::Value::from))),
        ("learning rate", one("training.learning_rate", &RATES.map(toml::Value::from))),
        ("heads and width", shapes.into_iter().flatten().collect()),
        ("dropout", one("model.dropout", &DROPOUT.map(toml::Value::from))),
    ];
    if base.run.start().is_some() {
        stages.remove(2);
    }
    let stage = |(name, mut choices): (&'static str, Vec<Setting>)| {
        let mut refused = Vec::new();
        choices.retain(|choice| base.with(choice).map_err(|error| refused.push(error.to_string())).is_ok());
        Stage { name: Some(name), choices, refused }
    };
    stages.into_iter().map(stage).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_change_only_their_own_keys() {
        let config = base(&Config::default());
        let best = start(&config);
        let counts = stages(&config).into_iter().map(|stage| {
            let settings = stage.settings(&best);
            assert_eq!(settings[0], best);
            for (index, setting) in settings.iter().enumerate() {
                assert!(config.with(setting).is_ok());
                assert!(!settings[..index].contains(setting), "{setting:?} occurs twice");
                let changed = setting.iter().filter(|(key, value)| best[*key] != **value);
                let keys = &stage.choices[0];
                assert!(changed.into_iter().all(|(key, _)| keys.contains_key(key)));
            }
            (stage.name.unwrap(), settings.len())
        });
        assert_eq!(
            counts.collect::<Vec<_>>(),
            [("batch size", 3), ("learning rate", 4), ("heads and width", 9), ("dropout", 4)]
        );
    }

    #[test]
    fn recipe_skips_shapes_for_pretrained_weights() {
        let mut config = Config::default();
        config.run.from = "somewhere".into();
        let names = stages(&config).into_iter().map(|stage| stage.name.unwrap());
        assert_eq!(names.collect::<Vec<_>>(), ["batch size", "learning rate", "dropout"]);
        assert!(!start(&config).contains_key("model.d_model"));
    }

    #[test]
    fn skipped_rates_have_a_reason() {
        let mut config = Config::default();
        config.training.min_learning_rate = 2e-4;
        let stage = &stages(&config)[1];
        assert_eq!((stage.choices.len(), stage.refused.len()), (RATES.len() - 1, 1));
        assert!(stage.refused[0].contains("must not exceed `training.learning_rate`"), "{:?}", stage.refused);
    }

    #[test]
    fn widths_not_divisible_by_heads_are_skipped() {
        let mut config = Config::default();
        (config.model.d_model, config.model.heads) = (12, 3);
        let stage = &stages(&config)[2];
        let shapes = stage.settings(&start(&config));
        let shapes = shapes.iter().map(|setting| {
            (setting["model.d_model"].as_integer().unwrap(), setting["model.heads"].as_integer().unwrap())
        });
        let mut shapes = shapes.collect::<Vec<_>>();
        shapes.sort_unstable();
        assert_eq!(shapes, [(6, 2), (6, 3), (12, 2), (12, 3), (12, 4), (24, 2), (24, 3), (24, 4), (24, 8)]);
    }
}
