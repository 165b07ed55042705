//! Compares pre-norm and post-norm in a deep decoder, each with and without warm-up.
//!
//!     cargo run --release --example norm_and_warmup [PICTURE.png]
//!
//! A decoder of eight blocks learns to continue a repeated motif, in four runs from the same seed. The example takes
//! about a minute on two cores and plots the four curves of the validation loss.
//!
//! A post-norm stack normalises every residual sum, so the gradients of its last blocks are large at the start. Adam's
//! first steps at the full learning rate then drive the stack to an output that does not depend on its input. The loss
//! stays at ln 16, the loss of uniform guessing; a warm-up avoids this. A pre-norm stack learns either way (Xiong et
//! al., 2020, arXiv 2002.04745).

use std::path::{Path, PathBuf};

use causal_attention::backend;
use causal_attention::config::Config;
use causal_attention::terminal::{say, warn};
use causal_attention::training::{Control, Mode, RunPath, Split, launch, read_metrics};
use causal_attention::{Error, Result};
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

const EXPERIMENT: &str = r#"
[data]
task = "repeat"
vocab = 16
length = 16
period = [3, 5]
train_samples = 4096
valid_samples = 256

[model]
d_model = 48
heads = 4
layers = 8

[training]
steps = 400
batch_size = 16
learning_rate = 2e-3
schedule = "constant"
max_gradient_norm = 0
validate_every = 20
"#;

/// The names of the four runs, and the settings that each changes in the experiment.
const RUNS: [(&str, [&str; 2]); 4] = [
    ("pre-norm, no warm-up", ["model.norm=pre", "training.warmup=0"]),
    ("pre-norm, warm-up", ["model.norm=pre", "training.warmup=100"]),
    ("post-norm, no warm-up", ["model.norm=post", "training.warmup=0"]),
    ("post-norm, warm-up", ["model.norm=post", "training.warmup=100"]),
];

/// The validation loss of one run over its steps.
struct Curve {
    name: &'static str,
    points: Vec<(usize, f64)>,
    floor: Option<f64>,
}

fn main() {
    let picture = std::env::args_os().nth(1).map_or_else(|| "norm_and_warmup.png".into(), PathBuf::from);
    if let Err(error) = compare(&picture) {
        warn(&format!("error: {error}"));
        std::process::exit(error.exit_code().into());
    }
}

fn compare(picture: &Path) -> Result<()> {
    let folder = tempfile::tempdir().map_err(|error| Error::io("create", std::env::temp_dir(), error))?;
    let mut curves = Vec::new();
    say("validation loss in nats per token");
    for (run, (name, changes)) in RUNS.into_iter().enumerate() {
        let overrides = changes.map(String::from);
        let config = Config::parse(EXPERIMENT, Path::new("norm_and_warmup.rs"), &overrides)?;
        let curve = train(name, &config, folder.path().join(run.to_string()))?;
        let last = curve.points.last().map_or(f64::NAN, |&(_, loss)| loss);
        say(&format!("  {name:<22} {last:.4}   (floor {:.4})", curve.floor.unwrap_or(0.0)));
        curves.push(curve);
    }
    draw(&curves, picture).map_err(|error| {
        Error::Input(format!("cannot draw `{}`: {error}; pass another file", picture.display()))
    })?;
    say(&format!("picture: {}", picture.display()));
    Ok(())
}

fn train(name: &'static str, config: &Config, folder: PathBuf) -> Result<Curve> {
    let device = backend::choose(None, None)?;
    let control = Control::unwatched(device);
    let outcome = launch(config, Mode::New(RunPath::Folder(folder)), &control)?;
    let rows = read_metrics(&outcome.folder.metrics())?;
    let valid = rows.iter().filter(|row| row.split == Split::Valid);
    let points = valid.map(|row| (row.step, row.loss)).collect();
    Ok(Curve { name, points, floor: outcome.summary.losses.floor })
}

fn draw(curves: &[Curve], path: &Path) -> std::result::Result<(), Box<dyn std::error::Error>> {
    register_font("sans-serif", FontStyle::Normal, dejavu::sans::regular())
        .map_err(|_| "the embedded font cannot be read")?;
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let steps = points().map(|&(step, _)| step).max().unwrap_or(1);
    let highest = points().map(|&(_, loss)| loss).fold(1.0, f64::max);

    let surface = BitMapBackend::new(path, (1350, 800)).into_drawing_area();
    surface.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&surface)
        .caption("Pre-norm and post-norm in an 8-block decoder, with and without warm-up", ("sans-serif", 30))
        .margin(20)
        .margin_right(45)
        .x_label_area_size(60)
        .y_label_area_size(80)
        .build_cartesian_2d(0..steps, 0.0..highest * 1.35)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc("step")
        .y_desc("validation loss (nats per token)")
        .label_style(("sans-serif", 20))
        .draw()?;
    // These colours are distinguishable for colour-blind readers (Okabe and Ito).
    let colors = [RGBColor(86, 180, 233), RGBColor(0, 114, 178), RGBColor(213, 94, 0), RGBColor(230, 159, 0)];
    for (curve, color) in curves.iter().zip(colors) {
        let style = color.stroke_width(3);
        chart
            .draw_series([PathElement::new(curve.points.clone(), style)])?
            .label(curve.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 30, y)], style));
    }
    if let Some(floor) = curves.iter().find_map(|curve| curve.floor) {
        chart
            .draw_series([PathElement::new([(0, floor), (steps, floor)], BLACK.stroke_width(2))])?
            .label("floor")
            .legend(|(x, y)| PathElement::new([(x, y), (x + 30, y)], BLACK.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .legend_area_size(40)
        .margin(15)
        .background_style(WHITE.mix(0.9))
        .label_font(("sans-serif", 20))
        .draw()?;
    surface.present()?;
    Ok(())
}
