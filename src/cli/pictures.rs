//! Parsers for the options of pictures.

use causal_attention_report::comparison::XAxisQuantity;
use causal_attention_report::{Picture, PictureFormat, WeightColors};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// Parses the file format of a picture.
pub fn picture_format() -> impl TypedValueParser<Value = PictureFormat> {
    one_of([
        ("png", "Raster image", PictureFormat::Png),
        ("svg", "Vector image, sharp at every size, with searchable text", PictureFormat::Svg),
        ("pdf", "Vector image with embedded fonts, for papers", PictureFormat::Pdf),
    ])
}

/// The options for the content of pictures.
#[derive(Debug, clap::Args)]
pub struct ContentArgs {
    /// Draws the pictures without title and note, for a document with captions.
    #[arg(long)]
    pub no_title: bool,
    /// The colour scale of attention weights. [default: linear]
    #[arg(long, value_parser = weight_colors())]
    pub color_scale: Option<WeightColors>,
}

impl ContentArgs {
    /// Removes the titles of pictures if the user asked for it.
    pub fn titled(&self, mut pictures: Vec<Picture>) -> Vec<Picture> {
        if self.no_title {
            pictures.iter_mut().for_each(Picture::remove_title);
        }
        pictures
    }
}

/// Parses the colour scale of attention weights.
fn weight_colors() -> impl TypedValueParser<Value = WeightColors> {
    one_of([
        ("linear", "Proportional to the weight", WeightColors::Linear),
        ("sqrt", "Proportional to its square root, which shows small weights", WeightColors::SquareRoot),
        ("head", "Proportional to the weight, on a scale for each head", WeightColors::PerHead),
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
