//! The options of pictures.

use std::path::PathBuf;

use causal_attention_report::comparison::XAxisQuantity;
use causal_attention_report::{Picture, PictureFormat, Style, WeightColors};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use crate::error::{Error, Result};

/// Parses the file format of a picture.
fn picture_format() -> impl TypedValueParser<Value = PictureFormat> {
    one_of([
        ("png", "Raster image", PictureFormat::Png),
        ("svg", "Vector image, sharp at every size, with searchable text", PictureFormat::Svg),
        ("pdf", "Vector image with embedded fonts, for papers", PictureFormat::Pdf),
    ])
}

/// The format and the size of pictures, and whether they have titles.
#[derive(Debug, clap::Args)]
pub struct PictureArgs {
    /// The file format of the pictures. [default: png]
    #[arg(long, value_parser = picture_format())]
    format: Option<PictureFormat>,
    /// The resolution of a PNG, which is 900 x FACTOR pixels wide. [default: 2]
    #[arg(long, value_name = "FACTOR", value_parser = clap::value_parser!(u32).range(1..=4))]
    resolution: Option<u32>,
    /// The width of a PDF in points, such as LaTeX's \columnwidth; text has at least 6 points. [default: 486]
    #[arg(long, value_name = "POINTS", value_parser = clap::value_parser!(u32).range(i64::from(Style::MIN_WIDTH)..=2_000))]
    width: Option<u32>,
    /// Draws the pictures without title and note, for a document with captions.
    #[arg(long)]
    no_title: bool,
}

impl PictureArgs {
    /// Returns the style of the pictures.
    ///
    /// # Errors
    /// Returns an error if an option belongs to another format.
    pub fn style(&self) -> Result<Style> {
        let format = self.format.unwrap_or(PictureFormat::Png);
        let of_formats = [
            ("--resolution", self.resolution.is_some(), PictureFormat::Png),
            ("--width", self.width.is_some(), PictureFormat::Pdf),
        ];
        if let Some((option, ..)) = of_formats.iter().find(|(_, is_given, of)| *is_given && format != *of) {
            let problem = format!("{option} has no effect with --format {}; omit it", format.extension());
            return Err(Error::Input(problem));
        }
        let default = Style::default();
        let (scale, width) = (self.resolution.unwrap_or(default.scale), self.width.unwrap_or(default.width));
        Ok(Style { format, scale, width })
    }

    /// Returns the style of pictures that are drawn only with `--out`.
    ///
    /// # Errors
    /// Same as [`style`](Self::style), or if an option is given without `--out`.
    pub fn style_in(&self, out: Option<&PathBuf>) -> Result<Style> {
        if let (Some(option), None) = (self.given(), out) {
            let problem = format!("{option} has no effect without pictures; pass --out DIR, or omit it");
            return Err(Error::Input(problem));
        }
        self.style()
    }

    /// Returns the first option that is given.
    pub fn given(&self) -> Option<&'static str> {
        let options = [
            ("--format", self.format.is_some()),
            ("--resolution", self.resolution.is_some()),
            ("--width", self.width.is_some()),
            ("--no-title", self.no_title),
        ];
        options.iter().find(|(_, is_given)| *is_given).map(|(option, _)| *option)
    }

    /// Removes the titles of pictures if the user asked for it.
    pub fn titled(&self, mut pictures: Vec<Picture>) -> Vec<Picture> {
        if self.no_title {
            pictures.iter_mut().for_each(Picture::remove_title);
        }
        pictures
    }
}

/// Parses the colour scale of attention weights.
pub fn weight_colors() -> impl TypedValueParser<Value = WeightColors> {
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
