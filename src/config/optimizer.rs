//! The optimizers: their names, their keys, and their update rules.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::choices;
use crate::ops::{Adam, Muon, Rule, Sgd};
use crate::role::ParamRole;

choices! {
    /// The optimizers.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum OptimizerKind {
        /// Adam with decoupled weight decay (Loshchilov and Hutter, 2019).
        Adamw uses ["beta1", "beta2", "epsilon", "weight_decay"],
        /// Adam (Kingma and Ba, 2015), without weight decay.
        Adam uses ["beta1", "beta2", "epsilon"],
        /// Stochastic gradient descent with momentum.
        Sgd uses ["momentum"],
        /// Muon (Jordan et al., 2024) for the matrices of attention and feed-forward layers; AdamW for embeddings,
        /// head, norms and biases. Both have the same learning rate (Liu et al., 2025, arXiv 2502.16982).
        Muon uses ["beta1", "beta2", "epsilon", "weight_decay", "momentum", "momentum_warmup"],
    }
}

/// The keys that optimizers use.
#[derive(Debug, Clone, Copy)]
pub(super) struct OptimizerKeys {
    pub beta1: f64,
    pub beta2: f64,
    pub epsilon: f64,
    pub weight_decay: f64,
    pub momentum: Option<f64>,
    pub momentum_warmup: usize,
}

impl OptimizerKind {
    /// Returns a learning rate that is rarely too high.
    pub(super) fn usual_rate(self) -> f64 {
        match self {
            // The updates of SGD are as large as the gradients.
            Self::Sgd => 0.1,
            Self::Adamw | Self::Adam | Self::Muon => 1e-3,
        }
    }

    /// Returns the rule that updates a parameter of this role, and its weight decay, at an update counted from 1.
    pub(super) fn rule(self, keys: OptimizerKeys, role: &ParamRole, update: usize) -> (Rule, f64) {
        let OptimizerKeys { beta1, beta2, epsilon, weight_decay, .. } = keys;
        let adam = Rule::Adam(Adam { beta1, beta2, epsilon });
        let weight_decay = if role.decays() { weight_decay } else { 0.0 };
        match (self, role) {
            (Self::Muon, ParamRole::Matrix { columns, .. }) => {
                let momentum = keys.muon_momentum(update);
                (Rule::Muon(Muon { momentum, columns: columns.clone() }), weight_decay)
            }
            (Self::Adamw | Self::Muon, _) => (adam, weight_decay),
            (Self::Adam, _) => (adam, 0.0),
            (Self::Sgd, _) => (Rule::Sgd(Sgd { momentum: keys.momentum.unwrap_or(0.9) }), 0.0),
        }
    }
}

impl OptimizerKeys {
    /// Returns Muon's momentum at an update, counted from 1.
    fn muon_momentum(&self, update: usize) -> f64 {
        /// The initial momentum (Jordan et al., 2024, <https://github.com/KellerJordan/modded-nanogpt>).
        const INITIAL_MOMENTUM: f64 = 0.85;
        let (last, warmup) = (self.momentum.unwrap_or(0.95), self.momentum_warmup);
        let first = INITIAL_MOMENTUM.min(last);
        if update > warmup { last } else { first + (update - 1) as f64 / warmup as f64 * (last - first) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::Choice;
    use crate::config::TrainingConfig;

    #[test]
    fn optimizer_keys_are_training_keys() {
        let keys = toml::Table::try_from(TrainingConfig { momentum: Some(0.5), ..TrainingConfig::default() });
        let keys = keys.unwrap();
        for kind in OptimizerKind::ALL {
            assert!(kind.keys().iter().all(|key| keys.contains_key(*key)), "{kind:?}");
        }
    }

    #[test]
    fn muon_and_weight_decay_follow_parameter_roles() {
        let rules = |optimizer: OptimizerKind| {
            let config = TrainingConfig { optimizer, weight_decay: 0.5, ..TrainingConfig::default() };
            let matrix = ParamRole::Matrix { columns: vec![2, 3], writes_to_residual: false };
            let roles = [matrix, ParamRole::Embedding, ParamRole::Head, ParamRole::Gain, ParamRole::Bias];
            roles.map(|role| {
                let (rule, decay) = config.rule(&role, 1);
                (rule.moments(), decay)
            })
        };
        assert_eq!(rules(OptimizerKind::Muon), [(1, 0.5), (2, 0.5), (2, 0.5), (2, 0.0), (2, 0.0)]);
        assert_eq!(rules(OptimizerKind::Adamw), [(2, 0.5), (2, 0.5), (2, 0.5), (2, 0.0), (2, 0.0)]);
        assert_eq!(rules(OptimizerKind::Adam), [(2, 0.0); 5]);
        assert_eq!(rules(OptimizerKind::Sgd), [(1, 0.0); 5]);
    }
}
