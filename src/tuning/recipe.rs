//! The recipe of the textbooks as stages: batch size, learning rate with linear warm-up, heads and
//! width, dropout. Each stage changes its keys alone, around the best of the stages before, whose own
//! values are among those it compares.

use super::space::{Setting, configured};
use crate::config::Config;

const BATCH_SIZES: [i64; 3] = [16, 32, 64];
/// The textbooks' three and one above them, which small decoders bear.
const RATES: [f64; 4] = [1e-4, 5e-4, 1e-3, 3e-3];
const HEADS: [i64; 3] = [2, 4, 8];
const DROPOUT: [f64; 3] = [0.1, 0.2, 0.3];
/// Validations without improvement that end a trial, where the config names none.
const PATIENCE: usize = 5;
/// Share of a run over which the rate rises, where the config has no warm-up.
const WARMUP: f64 = 0.05;

/// What one stage compares.
#[derive(Debug, Clone, PartialEq)]
pub struct Stage {
    /// What it looks for, in words; none where it is the only one.
    pub name: Option<&'static str>,
    /// The keys it changes, with their values.
    pub choices: Vec<Setting>,
}

impl Stage {
    /// The settings that the stage compares: the best so far, where there is one, and it with each choice.
    pub fn settings(&self, best: &Setting) -> Vec<Setting> {
        let with = |choice: &Setting| best.clone().into_iter().chain(choice.clone()).collect::<Setting>();
        let others = self.choices.iter().map(with).filter(|setting| setting != best);
        Some(best.clone()).filter(|best| !best.is_empty()).into_iter().chain(others).collect()
    }
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

/// The stages in their order, with the choices that the config lets pass. Weights of another run fit one shape of
/// the model alone.
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
        choices.retain(|choice| configured(base, choice).is_ok());
        Stage { name: Some(name), choices }
    };
    stages.into_iter().map(stage).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_holds_the_best_so_far_and_changes_its_own_keys_alone() {
        let config = base(&Config::default());
        let best = start(&config);
        let counts = stages(&config).into_iter().map(|stage| {
            let settings = stage.settings(&best);
            assert_eq!(settings[0], best);
            for (index, setting) in settings.iter().enumerate() {
                assert!(configured(&config, setting).is_ok());
                assert!(!settings[..index].contains(setting), "{setting:?} comes twice");
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
    fn a_model_that_starts_from_weights_keeps_its_shape() {
        let mut config = Config::default();
        config.run.from = "somewhere".into();
        let names = stages(&config).into_iter().map(|stage| stage.name.unwrap());
        assert_eq!(names.collect::<Vec<_>>(), ["batch size", "learning rate", "dropout"]);
        assert!(!start(&config).contains_key("model.d_model"));
    }

    #[test]
    fn a_width_that_heads_do_not_divide_is_left_out() {
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
