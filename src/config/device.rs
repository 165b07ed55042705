//! The backends and devices for `training.backend` and `training.device`.

use std::{convert::Infallible, fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::choices;

choices! {
    /// The backends that this program can be built with, compiled in or not; the one that is likely fastest comes first.
    /// Their names are also those of the cargo features.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum BackendName {
        /// An NVIDIA GPU, through CUDA.
        Cuda,
        /// A GPU of any vendor, through Vulkan or Metal.
        Wgpu,
        /// The CPU, with ndarray's tensors.
        Ndarray,
        /// The CPU, with Burn's own tensors.
        Flex,
    }
}

impl BackendName {
    /// Returns true if the backend computes on the CPU, in the memory of the machine.
    pub fn is_cpu(self) -> bool {
        match self {
            Self::Ndarray | Self::Flex => true,
            Self::Cuda | Self::Wgpu => false,
        }
    }
}

impl FromStr for BackendName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let name = text.to_lowercase();
        let named = Self::ALL.into_iter().find(|backend| backend.to_string() == name);
        named.ok_or_else(|| match name.as_str() {
            "vulkan" | "metal" => {
                format!("{name} is a cargo feature of the backend wgpu; use wgpu in a build with --features {name}")
            }
            _ => format!("unknown backend; use one of {}", Self::ALL.map(|backend| backend.to_string()).join(", ")),
        })
    }
}

impl<'de> Deserialize<'de> for BackendName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// The kind of a device. The kinds are ordered, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceKind {
    /// A GPU with its own memory.
    Discrete,
    /// A GPU that shares the machine's memory.
    Integrated,
    /// A GPU passed through to a virtual machine.
    Virtual,
    /// The CPU.
    Processor,
    /// A software GPU on the CPU, such as Mesa's llvmpipe: slow, for tests.
    Software,
}

impl DeviceKind {
    /// Every device kind, best first.
    pub const ALL: [Self; 5] =
        [Self::Discrete, Self::Integrated, Self::Virtual, Self::Processor, Self::Software];

    /// Returns the name in configs and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Discrete => "discrete",
            Self::Integrated => "integrated",
            Self::Virtual => "virtual",
            Self::Processor => "processor",
            Self::Software => "software",
        }
    }
}

/// A choice among the devices of a backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a device is a number or a kind, such as \"discrete\"")]
pub enum DeviceChoice {
    /// The device with this number.
    Index(usize),
    /// The best device of this kind. Text that is not the name of a kind matches no device.
    Kind(String),
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => write!(f, "{index}"),
            Self::Kind(kind) => f.write_str(kind),
        }
    }
}

impl FromStr for DeviceChoice {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(text.parse().map_or_else(|_| Self::Kind(text.to_string()), Self::Index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backend_names_parse_and_others_are_explained() {
        assert_eq!("wgpu".parse(), Ok(BackendName::Wgpu));
        assert_eq!("WGPU".parse(), Ok(BackendName::Wgpu));
        let error = |text: &str| text.parse::<BackendName>().unwrap_err();
        assert!(error("vulkan").contains("feature of the backend wgpu"), "{}", error("vulkan"));
        assert!(error("gpu").contains("cuda, wgpu, ndarray, flex"), "{}", error("gpu"));
    }

    #[test]
    fn device_choices_round_trip() {
        for text in ["3", "software", "second", "-1"] {
            let choice = text.parse::<DeviceChoice>().unwrap();
            assert_eq!(choice.to_string(), text);
            let json = serde_json::to_string(&choice).unwrap();
            assert_eq!(serde_json::from_str::<DeviceChoice>(&json).unwrap(), choice);
        }
        assert_eq!(serde_json::from_str::<DeviceChoice>("3").unwrap(), DeviceChoice::Index(3));
    }
}
