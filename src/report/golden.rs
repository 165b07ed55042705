//! Whole pictures: their sizes, and pixels that must carry known colours.

mod course;
mod heads;

use std::path::Path;

use image::RgbImage;
use plotters::style::RGBColor;

use super::Page;
use super::draw::{Outcome, Picture, PictureFormat, Style, color, render, tint};
use super::loss::LossCurve;
use super::reading::{Reading, Target, TokenProbability};
use super::series::Point;
use super::{attention, attention_over_time, heads as all_heads, prediction};
use crate::analysis::{HeadScores, View};
use crate::config::Config;
use crate::data::Role;

/// What tests ask of a drawn picture.
trait Pixels {
    fn pixel(&self, x: usize, y: usize) -> RGBColor;
    fn count(&self, color: RGBColor) -> usize;
    /// The bounding box of a colour, in pixels: left, top, right, bottom.
    fn bounds(&self, color: RGBColor) -> Option<[usize; 4]>;
    /// The border is empty: nothing runs over the edge.
    fn has_clear_border(&self) -> bool;
}

impl Pixels for RgbImage {
    fn pixel(&self, x: usize, y: usize) -> RGBColor {
        let [red, green, blue] = self.get_pixel(x as u32, y as u32).0;
        RGBColor(red, green, blue)
    }

    fn count(&self, color: RGBColor) -> usize {
        self.pixels().filter(|pixel| pixel.0 == [color.0, color.1, color.2]).count()
    }

    fn bounds(&self, color: RGBColor) -> Option<[usize; 4]> {
        let mut bounds: Option<[usize; 4]> = None;
        for (x, y, pixel) in self.enumerate_pixels() {
            if pixel.0 == [color.0, color.1, color.2] {
                let (x, y) = (x as usize, y as usize);
                let [left, top, right, bottom] = bounds.unwrap_or([x, y, x, y]);
                bounds = Some([left.min(x), top.min(y), right.max(x), bottom.max(y)]);
            }
        }
        bounds
    }

    fn has_clear_border(&self) -> bool {
        let (width, height) = (self.width() as usize, self.height() as usize);
        let clear = |x, y| self.pixel(x, y) == color::BACKGROUND;
        (0..width).all(|x| clear(x, 0) && clear(x, height - 1))
            && (0..height).all(|y| clear(0, y) && clear(width - 1, y))
    }
}

fn drawn(picture: &Picture) -> RgbImage {
    let raster = render::raster(picture, 1).unwrap();
    assert_eq!(raster.dimensions(), picture.size());
    assert_eq!(raster.width(), 900);
    assert!(raster.has_clear_border(), "{} runs over its edge", picture.name);
    raster
}

fn vector(picture: &Picture) -> String {
    render::vector(picture).unwrap()
}

fn tokens(time: usize) -> Vec<String> {
    (0..time).map(|position| (position % 7).to_string()).collect()
}

/// A head that sees only itself.
fn identity(time: usize) -> Vec<f32> {
    (0..time * time).map(|i| if i / time == i % time { 1.0 } else { 0.0 }).collect()
}

/// What a decoder with these maps, `[layer][head]`, does with a sequence of `time` tokens.
fn reading(time: usize, attention: Vec<Vec<Vec<f32>>>) -> Reading {
    Reading {
        sequence: "validation sequence 3".to_string(),
        source: None,
        inputs: tokens(time),
        targets: vec![None; time],
        view: View { attention, encoder: Vec::new(), cross: Vec::new(), probabilities: Vec::new() },
        likeliest: vec![Vec::new(); time],
    }
}

/// Scores of which none is known.
fn unscored(reading: &Reading) -> Vec<Vec<HeadScores>> {
    reading.view.attention.iter().map(|heads| vec![HeadScores::default(); heads.len()]).collect()
}

/// The page of a reading alone.
fn page(reading: &Reading, run: &str, head: Option<usize>) -> Page {
    let readings = (vec![reading.clone()], 0);
    Page::new(run.to_string(), readings, unscored(reading), head, &Config::default())
}

/// The pictures of one head per layer: its map, and the same as curves.
fn maps(reading: &Reading) -> [Picture; 2] {
    let layers = reading.layers(&unscored(reading), None);
    [attention::picture("golden", reading, &layers), attention_over_time::picture("golden", reading, &layers)]
}

fn loss(floor: Option<f64>) -> LossCurve {
    let training = (1..=500).map(|step| Point { step, value: 0.5 + 2.0 * (-(step as f64) / 90.0).exp() });
    LossCurve {
        run: "golden".to_string(),
        training: training.collect(),
        validation: (1..=5).map(|epoch| Point { step: epoch * 100, value: 0.6 }).collect(),
        learning_rate: (1..=500).map(|step| Point { step, value: 1e-3 }).collect(),
        epoch_ends: (1..=5).map(|epoch| epoch * 100).collect(),
        floor,
        ..LossCurve::default()
    }
}

#[test]
fn an_identity_map_is_bright_on_the_diagonal_dark_below_and_empty_above() {
    let time = 7;
    let raster = drawn(&maps(&reading(time, vec![vec![identity(time)]]))[0]);
    // The dark cells reach from the left edge of the second row to the bottom; cells are 64 wide.
    let [left, _, _, bottom] = raster.bounds(color::color(0.0)).unwrap();
    let side = (64 * time) as f64;
    let top = bottom as f64 - side;
    let cell = |query: usize, key: usize| {
        // A quarter into the cell, beside the weight that is written in its middle.
        let along = |i: usize| (i as f64 + 0.2) * side / time as f64;
        raster.pixel((left as f64 + along(key)) as usize, (top + along(query)) as usize)
    };
    for query in 0..time {
        for key in 0..time {
            let expected = match key.cmp(&query) {
                std::cmp::Ordering::Less => color::color(0.0),
                std::cmp::Ordering::Equal => color::color(1.0),
                std::cmp::Ordering::Greater => color::BACKGROUND,
            };
            assert_eq!(cell(query, key), expected, "query {query}, key {key}");
        }
    }
}

#[test]
fn every_number_of_layers_and_every_length_is_drawn_within_its_picture() {
    for layers in [1, 2, 3, 4, 5, 12] {
        for time in [1, 2, 11, 64, 211] {
            for picture in maps(&reading(time, vec![vec![identity(time)]; layers])) {
                assert!(drawn(&picture).count(color::INK) > 100, "{layers} layers, {time} tokens");
            }
        }
    }
    drawn(&maps(&reading(1_024, vec![vec![identity(1_024)]; 12]))[0]);
}

#[test]
fn an_encoder_decoder_shows_each_kind_of_attention_over_its_own_tokens() {
    for (queries, keys) in [(5, 6), (1, 40), (60, 3), (300, 11)] {
        let mut reading = reading(queries, vec![vec![identity(queries); 2]; 2]);
        reading.source = Some((0..keys).map(|i| format!("s{i}")).collect());
        reading.view.cross = vec![vec![vec![1.0 / keys as f32; queries * keys]; 2]; 2];
        reading.view.encoder = vec![vec![identity(keys); 2]; 2];
        let [maps, curves] = maps(&reading);
        let all = all_heads::picture("golden", &reading, &reading.layers(&[], None));
        for picture in [&maps, &curves, &all] {
            drawn(picture);
        }
        for kind in
            ["decoder self-attention, layer 1", "cross-attention, layer 0", "encoder self-attention, layer"]
        {
            assert!(vector(&maps).contains(kind) && vector(&curves).contains(kind), "{kind}");
        }
        assert!(vector(&maps).contains(">\ns0\n<") && vector(&all).contains("cross-attention"));
    }
}

#[test]
fn page_and_pictures_open_each_kind_of_attention_on_the_same_head() {
    let (time, even) = (5, vec![0.2; 25]);
    let mut reading = reading(time, vec![vec![even.clone(), identity(time)]; 2]);
    reading.source = Some(tokens(time));
    reading.view.cross = vec![vec![even.clone(), identity(time)], vec![identity(time), even.clone()]];
    reading.view.encoder = vec![vec![even.clone(), identity(time)]; 2];
    let names = |head: Option<usize>| -> Vec<String> {
        reading.layers(&unscored(&reading), head).into_iter().map(|layer| layer.name).collect()
    };
    let shown =
        |head: Option<usize>| serde_json::to_value(page(&reading, "golden", head)).unwrap()["shown"].clone();
    assert_eq!(shown(None), serde_json::json!({"decoder": [0, 0], "cross": [1, 0], "encoder": [1, 1]}));
    assert!(names(None)[2].contains("cross-attention, layer 0, head 1"), "{:?}", names(None));
    assert!(names(None)[3].contains("cross-attention, layer 1, head 0"));
    assert_eq!(shown(Some(1)), serde_json::json!({"decoder": [1, 1], "cross": [1, 1], "encoder": [1, 1]}));
}

#[test]
fn long_and_foreign_tokens_stay_within_the_picture() {
    let odd =
        ["\u{202e}abc", "   ", "\n\n", "internationalisation", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝔱𝔢𝔵𝔱", "你好", "<script>", "\0", ""];
    let mut reading = reading(200, vec![vec![identity(200)]; 2]);
    reading.inputs = (0..200).map(|i| odd[i % odd.len()].to_string()).collect();
    reading.targets = (0..200).map(|i| Some(target(odd[i % odd.len()], i % 3 > 0))).collect();
    reading.likeliest = (0..200).map(|i| vec![likely(odd[i * 5 % odd.len()])]).collect();
    let run = "a run with a name that is far too long for one line ".repeat(5);
    for picture in page(&reading, &run, None).pictures() {
        drawn(&picture);
    }
}

#[test]
fn the_floor_is_a_dashed_line_across_the_chart_below_the_losses() {
    let raster = drawn(&loss(Some(0.5)).picture());
    let [left, _, right, floor] = raster.bounds(color::GREEN).unwrap();
    assert!(right - left > 680, "from {left} to {right}");
    let row: Vec<bool> = (left..right).map(|x| raster.pixel(x, floor) == color::GREEN).collect();
    let dashes = row.windows(2).filter(|pair| !pair[0] && pair[1]).count();
    assert!(dashes > 50, "{dashes} dashes");
    let [_, _, _, validation] = raster.bounds(color::VERMILION).unwrap();
    assert!(validation < floor, "validation loss at row {validation}, floor at row {floor}");
    assert_eq!(drawn(&loss(None).picture()).count(color::GREEN), 0);
}

#[test]
fn a_constant_learning_rate_does_not_run_along_the_floor() {
    let (floor, rate) = (0.5, 1e-3);
    let mut curve = loss(Some(floor));
    for place in [0.07, 0.5, 0.64, 0.66, 0.68, 0.9] {
        // The lowest loss puts the floor at this place of the axis.
        curve.training[400].value = floor - place * 2.0;
        let losses = curve.losses();
        let place = (floor - losses.start) / losses.length();
        let apart = (rate / curve.rates_end().unwrap() - place).abs();
        assert!(apart > 0.05 && curve.rates_end().unwrap() <= 2.0 * rate, "{place}: {apart}");
    }
    let same = LossCurve { learning_rate: Vec::new(), ..curve };
    assert_eq!(same.rates_end(), None);
}

#[test]
fn a_spike_at_the_start_does_not_squash_the_curve() {
    // How far the curve falls from a little after the start, in pixels.
    let height = |curve: &LossCurve| {
        let raster = drawn(&curve.picture());
        let rows: Vec<usize> =
            (110..430).filter(|&y| (120..400).any(|x| raster.pixel(x, y) == color::BLUE)).collect();
        rows[rows.len() - 1] - rows[0]
    };
    let usual = loss(Some(0.5));
    let mut spiked = usual.clone();
    spiked.training[0].value = 500.0;
    spiked.training[1].value = f64::INFINITY;
    assert!(height(&spiked) * 2 > height(&usual), "{} of {}", height(&spiked), height(&usual));
}

#[test]
fn runs_without_points_are_drawn_too() {
    let empty = LossCurve::default();
    assert!(drawn(&empty.picture()).count(color::MUTED) > 100);
    let one = LossCurve { training: vec![Point { step: 1, value: 2.0 }], ..empty.clone() };
    assert!(drawn(&one.picture()).count(color::BLUE) > 0);
    let lost = LossCurve { training: vec![Point { step: 1, value: f64::NAN }], ..empty.clone() };
    drawn(&lost.picture());
    // So early that nothing was logged.
    let diverged = LossCurve { diverged: Some(3), ..empty }.picture();
    assert!(drawn(&diverged).count(color::MUTED) > 100);
    let svg = vector(&diverged);
    assert!(svg.matches("diverged at step 3").count() == 2 && svg.contains("no step was logged"), "{svg}");
}

#[test]
fn a_run_that_diverged_is_shown_as_far_as_it_was_sane_and_says_where_it_left() {
    let falling = (1..=80).map(|i| 2.0 + 2.2 * (-f64::from(i) / 20.0).exp());
    let running = (1..=30).map(|i| 2.0 * 1.6f64.powi(i));
    let training = falling.chain(running).zip(1..).map(|(value, i)| Point { step: i * 10, value });
    let curve = LossCurve {
        run: "golden".to_string(),
        training: training.collect(),
        validation: vec![Point { step: 500, value: 2.3 }],
        diverged: Some(1_107),
        weights: Some("the weights of step 500".to_string()),
        ..LossCurve::default()
    };
    assert!(curve.losses().end < 8.0, "{:?}", curve.losses());
    assert_eq!(curve.steps().end, 1_107.0);
    let picture = curve.picture();
    let svg = vector(&picture);
    for said in ["diverged at step 1,107", "the weights of step 500 were kept", "are cut"] {
        assert!(svg.contains(said), "{said}");
    }
    drawn(&picture);
}

#[test]
fn a_run_that_was_never_sane_shows_where_it_began() {
    let point = |step, value| Point { step, value };
    let curve = LossCurve {
        training: vec![point(1, 2.4), point(2, 7.8e8)],
        validation: vec![point(1, 7.2e8)],
        diverged: Some(2),
        floor: Some(0.8),
        ..LossCurve::default()
    };
    assert!(curve.losses().end < 5.0, "{:?}", curve.losses());
    let svg = vector(&curve.picture());
    assert!(svg.contains("validation loss 7.2e8 nats per token; 7.2e8 above the floor"), "{svg}");
    assert!(!svg.contains("\nvalidation\n"), "no curve of it is drawn: {svg}");
    drawn(&curve.picture());
}

#[test]
fn what_stands_below_a_title_is_shown_whole() {
    let mut reading = reading(900, vec![vec![identity(900)]]);
    let short = drawn(&maps(&reading)[0]).height();
    reading.sequence = "validation sequence 3 (its beginning), by the weights of step 100,000".to_string();
    let [picture, _] = maps(&reading);
    let svg = vector(&picture);
    let words = svg.lines().filter(|line| !line.starts_with('<')).collect::<Vec<_>>().join(" ");
    assert!(words.contains("on all its keys, averaged over its queries") && !words.contains('…'), "{words}");
    assert!(drawn(&picture).height() >= short, "a further line has room of its own");
}

#[test]
fn nothing_is_drawn_outside_the_axes() {
    // One step far below all others, as at the end of a short run.
    let mut curve = loss(Some(0.5));
    curve.training[300].value = 0.1;
    curve.learning_rate.clear();
    let raster = drawn(&curve.picture());
    let [.., bottom] = raster.bounds(color::pale(color::BLUE)).unwrap();
    assert!(curve.losses().start < 0.1 && bottom < 428, "{bottom}");
}

fn likely(token: &str) -> TokenProbability {
    TokenProbability { token: token.to_string(), probability: 0.25 }
}

fn target(text: &str, determined: bool) -> Target {
    let role = if determined { Role::Determined } else { Role::Undetermined };
    Target { text: text.to_string(), probability: 0.5, role }
}

fn predictions(truth: &[&str], predicted: &[&str], role: impl Fn(usize) -> Role) -> Picture {
    let mut reading = reading(truth.len(), Vec::new());
    let target = |(i, text): (usize, &&str)| Some(Target { role: role(i), ..target(text, true) });
    reading.targets = truth.iter().enumerate().map(target).collect();
    reading.likeliest = predicted.iter().map(|text| vec![likely(text)]).collect();
    prediction::picture("golden", &reading).unwrap()
}

/// The first tokens cannot be known, the others can.
fn known_from(first: usize) -> impl Fn(usize) -> Role {
    move |i| if i < first { Role::Undetermined } else { Role::Determined }
}

#[test]
fn misses_are_marked_and_what_cannot_be_known_is_no_miss() {
    // Numbers are drawn as a chart, text as cells.
    let numbers = (["3", "5", "7", "2"], ["1", "5", "7", "2"], color::VERMILION);
    let text = (["a", "b", " c", "d"], ["x", "b", " c", "d"], tint(Outcome::Miss));
    for (right, wrong, mark) in [numbers, text] {
        let perfect = drawn(&predictions(&right, &right, known_from(0)));
        assert_eq!((perfect.count(mark), perfect.count(color::SHADE)), (0, 0));
        assert!(drawn(&predictions(&right, &wrong, known_from(0))).count(mark) > 50);
        let unknowable = drawn(&predictions(&right, &wrong, known_from(1)));
        assert_eq!(unknowable.count(mark), 0);
        assert!(unknowable.count(color::SHADE) > 200);
    }
}

#[test]
fn what_frames_a_wrong_guess_covers_nothing_of_its_sign() {
    // Punctuation through or below which a line would make another sign.
    for sign in ["-", ".", "_", "=", ":"] {
        let guess = |truth: &str| drawn(&predictions(&[truth, "b"], &[sign, "b"], known_from(1)));
        let (wrong, right) = (guess("x"), guess(sign));
        let [left, top, ..] = wrong.bounds(color::SHADE).unwrap();
        // The lower line of the first cell, within its frame.
        let within = |raster: &RgbImage| -> Vec<RGBColor> {
            (top + 19..top + 30)
                .flat_map(|y| (left + 4..left + 15).map(move |x| (x, y)))
                .map(|(x, y)| raster.pixel(x, y))
                .collect()
        };
        assert!(within(&wrong) == within(&right), "{sign}");
        assert!(within(&wrong).iter().any(|&pixel| pixel != color::SHADE), "{sign} is seen");
    }
}

#[test]
fn where_no_rule_is_known_nothing_is_called_unknowable() {
    let text = (["a", "b", " c", "d"], ["x", "b", " c", "d"]);
    let picture = predictions(&text.0, &text.1, |_| Role::Unknown);
    let svg = vector(&picture);
    assert!(svg.contains("3 of 4 tokens are right") && svg.contains("50.0 % probable"), "{svg}");
    assert!(!svg.contains("undetermined") && !svg.contains("by chance"));
    assert!(drawn(&picture).count(tint(Outcome::Miss)) > 50, "a miss is shown as one");
}

#[test]
fn one_token_is_counted_as_one() {
    let says = |truth: &[&str], first: usize| vector(&predictions(truth, &["a", "b"], known_from(first)));
    assert!(says(&["a"], 0).contains("1 of 1 token is right"));
    assert!(says(&["a", "b"], 0).contains("2 of 2 tokens are right"));
    assert!(says(&["a", "b"], 1).contains("1 of 1 determined target is right"));
}

#[test]
fn an_svg_says_in_text_what_the_picture_shows() {
    let mut reading = reading(11, vec![vec![identity(11)]; 2]);
    reading.inputs[3] = "<b>&\"".to_string();
    reading.inputs[4] = "a\u{1b}b".to_string();
    let svg = vector(&maps(&reading)[0]);
    for text in [
        "golden: attention",
        "layer 0, head 0",
        "layer 1, head 0",
        "attention weight",
        "&lt;b&gt;&amp;&quot;",
    ] {
        assert!(svg.contains(text), "{text}");
    }
    assert!(svg.contains("data:image/png;base64,") && !svg.contains("<b>"));
    assert!(!svg.contains(|c: char| c.is_control() && c != '\n'));
    assert!(svg.starts_with("<svg width=\"900\""));
    let svg = vector(&loss(Some(0.5)).picture());
    assert!(svg.contains("floor 0.5000 nats") && svg.contains("learning rate"));
    assert!(svg.contains("training, smoothed over"));
}

#[test]
fn pictures_are_written_as_files_of_their_size() {
    let folder = tempfile::tempdir().unwrap();
    let curve = loss(Some(0.5)).picture();
    let style = Style { scale: 3, ..Style::default() };
    let path = curve.save(folder.path(), &style).unwrap();
    assert_eq!(path, folder.path().join("loss.png"));
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(bytes[..8], *b"\x89PNG\r\n\x1a\n");
    assert_eq!(bytes[16..24], [0, 0, 0x0a, 0x8c, 0, 0, 0x05, 0xa0], "2700 by 1440 pixels");
    let path = curve.save(folder.path(), &Style { format: PictureFormat::Svg, ..style }).unwrap();
    assert!(std::fs::read_to_string(path).unwrap().trim_end().ends_with("</svg>"));
}

#[test]
fn what_cannot_be_written_is_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let picture = loss(None).picture();
    let save = |folder: &Path, style: Style| picture.save(folder, &style).unwrap_err().to_string();
    let message = save(&folder.path().join("missing"), Style::default());
    assert!(message.starts_with("cannot write `") && message.contains("loss.png"), "{message}");
    let message = save(folder.path(), Style { scale: 0, ..Style::default() });
    assert_eq!(message, "`scale` = 0 must lie between 1 and 4");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
