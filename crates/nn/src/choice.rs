//! Settings with a fixed set of values. Each value lists the other settings that it uses, which determines those without
//! effect.

use std::collections::BTreeMap;
use std::fmt::Display;

/// The value of a key that selects one of several alternatives; declared with [`choices!`](crate::choices).
pub trait Choice: Copy + PartialEq + Display + 'static {
    /// Returns all variants.
    fn all() -> &'static [Self];

    /// Returns the keys of the section that this variant uses, except the keys that every variant uses.
    fn keys(self) -> &'static [&'static str];
}

/// Declares an enum whose variants are the values of a key. A variant lists the keys that it uses, except the keys that
/// every variant uses.
///
/// The enum gets `ALL`, an implementation of [`Choice`], and a `Display` that writes the variant's serde name.
///
/// ```
/// use causal_attention_nn::choice::Choice;
///
/// causal_attention_nn::choices! {
///     /// The schedule of the learning rate.
///     #[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
///     #[serde(rename_all = "snake_case")]
///     pub enum Schedule {
///         /// The learning rate is constant.
///         Constant,
///         /// The learning rate falls linearly to `lowest`.
///         Linear uses ["lowest"],
///     }
/// }
/// assert_eq!(Schedule::ALL.map(|schedule| schedule.to_string()), ["constant", "linear"]);
/// assert_eq!(Schedule::Linear.keys(), ["lowest"]);
/// ```
#[macro_export]
macro_rules! choices {
    ($(#[$meta:meta])* $visibility:vis enum $name:ident {
        $($(#[$variant_meta:meta])* $variant:ident $(uses [$($key:literal),+ $(,)?])?),+ $(,)?
    }) => {
        $(#[$meta])*
        $visibility enum $name {
            $($(#[$variant_meta])* $variant),+
        }

        impl $name {
            /// All variants.
            pub const ALL: [Self; [$(stringify!($variant)),+].len()] = [$(Self::$variant),+];
        }

        impl $crate::choice::Choice for $name {
            fn all() -> &'static [Self] {
                &Self::ALL
            }

            fn keys(self) -> &'static [&'static str] {
                match self {
                    $(Self::$variant => &[$($($key),+)?]),+
                }
            }
        }

        impl std::fmt::Display for $name {
            /// Writes the variant's name in a config.
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                serde::Serialize::serialize(self, f)
            }
        }
    };
}

/// The keys of a section that a config does not use, each with a noun phrase for the configs that use it.
#[derive(Debug, Default)]
pub struct UnusedKeys(BTreeMap<&'static str, String>);

impl UnusedKeys {
    /// Adds the keys that other choices of the key `name` use but the `chosen` one does not.
    pub fn other_choices<C: Choice>(&mut self, name: &str, chosen: C) -> &mut Self {
        for key in C::all().iter().flat_map(|choice| choice.keys()) {
            let readers = C::all().iter().filter(|choice| choice.keys().contains(key));
            let readers: Vec<_> = readers.map(|choice| format!("\"{choice}\"")).collect();
            let readers = match &readers[..] {
                [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
                names => names.concat(),
            };
            self.unless(chosen.keys().contains(key), &[*key], format!("`{name}` = {readers}"));
        }
        self
    }

    /// Adds `keys` unless they are read. A key keeps its earlier entry.
    pub fn unless(&mut self, are_read: bool, keys: &[&'static str], readers: impl Into<String>) -> &mut Self {
        let readers = readers.into();
        for key in keys.iter().filter(|_| !are_read) {
            self.0.entry(*key).or_insert_with(|| readers.clone());
        }
        self
    }

    /// Iterates over the keys.
    pub fn keys(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &str) {
        self.0.remove(key);
    }

    /// Returns a noun phrase for the configs that read `key`, or `None` if this config reads it.
    pub fn readers(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    choices! {
        #[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
        #[serde(rename_all = "snake_case")]
        enum Way {
            Plain,
            Detour uses ["speed", "stops"],
            Round uses ["speed"],
        }
    }

    #[test]
    fn unused_keys_name_the_choice_that_uses_them() {
        let unused = |way| {
            let mut unused = UnusedKeys::default();
            unused.other_choices("way", way).unless(false, &["stops", "end"], "travellers");
            ["speed", "stops", "end", "start"].map(|key| unused.readers(key).unwrap_or_default().to_string())
        };
        let speed = "`way` = \"detour\" or \"round\"";
        assert_eq!(unused(Way::Plain), [speed, "`way` = \"detour\"", "travellers", ""]);
        assert_eq!(unused(Way::Detour), ["", "travellers", "travellers", ""]);
        assert_eq!(unused(Way::Round), ["", "`way` = \"detour\"", "travellers", ""]);
    }
}
