//! Parsers for the options of pictures.

use causal_attention_report::PictureFormat;
use causal_attention_report::comparison::XAxisQuantity;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// Parses the file format of a picture.
pub fn picture_format() -> impl TypedValueParser<Value = PictureFormat> {
    one_of([
        ("png", "Raster image", PictureFormat::Png),
        ("svg", "Vector image, sharp at every size, with searchable text", PictureFormat::Svg),
    ])
}

/// Parses the x-axis of loss curves.
pub fn along() -> impl TypedValueParser<Value = XAxisQuantity> {
    one_of([
        ("steps", "Training steps", XAxisQuantity::Steps),
        ("tokens", "Tokens trained on", XAxisQuantity::Tokens),
        ("seconds", "Training time in seconds", XAxisQuantity::Seconds),
    ])
}

/// Parses one of these names, each with its help.
fn one_of<T: Copy + Send + Sync + 'static, const N: usize>(
    values: [(&'static str, &'static str, T); N],
) -> impl TypedValueParser<Value = T> {
    let names = values.map(|(name, help, _)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(names).map(move |given| {
        let found = values.iter().find(|(name, ..)| *name == given);
        found.expect("clap refuses other names").2
    })
}
