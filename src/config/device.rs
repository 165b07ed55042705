//! The backends and devices that `training.backend` and `training.device` can name.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The backends that this program can be built with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BackendName {
    /// An NVIDIA card, through CUDA.
    Cuda,
    /// A graphics card of any maker, through Vulkan or Metal.
    Wgpu,
    /// The CPU, by ndarray's tensors.
    Ndarray,
    /// The CPU, by Burn's own tensors.
    Flex,
}

impl BackendName {
    /// Every backend there is, compiled in or not: what is likely the fastest comes first.
    pub const ALL: [Self; 4] = [Self::Cuda, Self::Wgpu, Self::Ndarray, Self::Flex];

    /// The name in configs, on the command line and of the cargo feature.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Wgpu => "wgpu",
            Self::Ndarray => "ndarray",
            Self::Flex => "flex",
        }
    }

    /// Whether it computes on the processor, in the memory of the machine.
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
        let small = text.to_lowercase();
        let named = |name: &str| Self::ALL.into_iter().find(|backend| backend.name() == name);
        match (named(text), named(&small), small.as_str()) {
            (Some(backend), ..) => Ok(backend),
            (None, Some(backend), _) => Err(format!("backends are in small letters: {}", backend.name())),
            (None, None, "vulkan" | "metal") => Err(format!(
                "{small} is a cargo feature of the backend wgpu: use wgpu, in a build with --features {small}"
            )),
            (None, None, _) => {
                Err(format!("a backend is one of {}", Self::ALL.map(BackendName::name).join(", ")))
            }
        }
    }
}

impl<'de> Deserialize<'de> for BackendName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// What kind of device computes, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceKind {
    /// A card with memory of its own.
    Discrete,
    /// A graphics unit that shares the machine's memory.
    Integrated,
    /// A card lent to a virtual machine.
    Virtual,
    /// The processor.
    Processor,
    /// A program on the processor in place of a card, as Mesa's llvmpipe: slow, for tests.
    Software,
}

impl DeviceKind {
    const ALL: [Self; 5] = [Self::Discrete, Self::Integrated, Self::Virtual, Self::Processor, Self::Software];

    /// The name in configs and on the command line.
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

/// Which of a backend's devices is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The one with this number.
    Index(usize),
    /// The first of a kind.
    Kind(DeviceKind),
    /// What is neither, and so fits no device: whoever looks for it says which there are.
    Unknown(String),
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => write!(f, "{index}"),
            Self::Kind(kind) => f.write_str(kind.name()),
            Self::Unknown(text) => f.write_str(text),
        }
    }
}

impl FromStr for DeviceChoice {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let kind = DeviceKind::ALL.into_iter().find(|kind| kind.name() == text).map(Self::Kind);
        let choice = kind.or_else(|| text.parse().ok().map(Self::Index));
        Ok(choice.unwrap_or_else(|| Self::Unknown(text.to_string())))
    }
}

impl Serialize for DeviceChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Index(index) => serializer.serialize_u64(*index as u64),
            Self::Kind(kind) => serializer.serialize_str(kind.name()),
            Self::Unknown(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for DeviceChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Index(usize),
            Number(f64),
            Name(String),
        }

        match Written::deserialize(deserializer) {
            Ok(Written::Index(index)) => Ok(Self::Index(index)),
            Ok(Written::Number(number)) => Ok(Self::Unknown(number.to_string())),
            Ok(Written::Name(name)) => name.parse().map_err(de::Error::custom),
            Err(_) => Err(de::Error::custom("a device is a number or a kind, as \"discrete\"")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backends_are_known_by_name_and_features_are_explained() {
        assert_eq!("wgpu".parse(), Ok(BackendName::Wgpu));
        let told = |text: &str| text.parse::<BackendName>().unwrap_err();
        assert!(told("vulkan").contains("feature of the backend wgpu"), "{}", told("vulkan"));
        assert!(told("WGPU").ends_with("small letters: wgpu"), "{}", told("WGPU"));
        assert!(told("gpu").contains("cuda, wgpu, ndarray, flex"), "{}", told("gpu"));
    }

    #[test]
    fn a_choice_of_device_is_read_back_as_it_was_written() {
        let unknown = "second".parse::<DeviceChoice>().unwrap();
        assert_eq!(unknown, DeviceChoice::Unknown("second".into()));
        let negative = serde_json::from_str::<DeviceChoice>("-1").unwrap();
        assert_eq!(negative, DeviceChoice::Unknown("-1".into()));
        let written = [DeviceChoice::Index(3), DeviceChoice::Kind(DeviceKind::Software), unknown];
        for choice in written {
            let json = serde_json::to_string(&choice).unwrap();
            assert_eq!(serde_json::from_str::<DeviceChoice>(&json).unwrap(), choice);
        }
    }
}
