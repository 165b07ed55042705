//! The page as a browser gets it.

use super::*;
use crate::analysis::Score;
use crate::report::series::Point;

/// A page of a few samples; weights fall off with the distance, evenly where `sharpness` is 0.
pub(super) fn page(layers: usize, heads: usize, time: usize, samples: usize) -> Page {
    let map = |sharpness: f64| -> Vec<f32> {
        let row = move |query: usize| {
            let weight = move |key: usize| (-sharpness * (query - key) as f64).exp();
            let sum: f64 = (0..=query).map(weight).sum();
            (0..time).map(move |key| if key <= query { (weight(key) / sum) as f32 } else { 0.0 })
        };
        (0..time).flat_map(row).collect()
    };
    let sample = |index: usize| PageSample {
        name: format!("validation sequence {index}"),
        source: None,
        inputs: (0..time).map(|i| ((i * 5 + index) % 7).to_string()).collect(),
        predictions: (0..time)
            .map(|i| PagePrediction {
                truth: Some(((i * 5 + 5 + index) % 7).to_string()),
                truth_probability: Some(0.123_456_789),
                determined: i > 2,
                probable: vec![TokenProbability { token: (i % 7).to_string(), probability: 0.9 }],
            })
            .collect(),
        attention: (0..layers)
            .map(|layer| (0..heads).map(|head| map((layer * heads + head) as f64 / 3.0)).collect())
            .collect(),
    };
    let grid = vec![vec![Some(0.25); heads]; layers];
    Page {
        run: "golden".to_string(),
        summary: vec![("loss".to_string(), "0.5 nats".to_string())],
        config: "[run]\nname = \"golden\"\n".to_string(),
        loss: LossCurve {
            training: (1..=100).map(|step| Point { step, value: 1.0 / step as f64 }).collect(),
            ..LossCurve::default()
        },
        samples: (0..samples).map(sample).collect(),
        measured_on: "3 sequences".to_string(),
        scores: vec![HeadValues { score: Score::Induction, values: grid.clone() }],
        scored_steps: vec![10, 100],
        score_history: vec![ScoreHistory { score: Score::Induction, values: vec![grid; 2] }],
        color_map: ColorMap::default(),
    }
}

/// The data element of a page, as its script reads it.
fn data(html: &str) -> serde_json::Value {
    let (_, rest) = html.split_once("<script id=\"data\" type=\"application/json\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn a_page_of_the_usual_size_is_below_three_megabytes() {
    assert!(page(2, 4, 64, 8).html().unwrap().len() < 3_000_000);
}

#[test]
fn a_page_loads_nothing() {
    let html = page(1, 2, 3, 1).html().unwrap();
    assert!(html.contains("default-src 'none'"));
    let addresses = html.matches("://").count();
    let names = html.matches("http://www.w3.org/2000/svg").count();
    assert_eq!(addresses, names, "the name of SVG is the only address");
    assert!(!html.contains("{{"));
}

#[test]
fn text_of_a_run_is_data_and_never_markup() {
    let plain = page(1, 2, 5, 1);
    let mut hostile = plain.clone();
    let texts =
        ["</script><script>alert(1)</script>", "<!--<script>", "{{script}}", "\u{2028}\u{0}\\\"'", "&lt;"];
    hostile.samples[0].inputs = texts.map(str::to_string).to_vec();
    hostile.samples[0].predictions[0].probable[0].token = texts[0].to_string();
    hostile.samples[0].name = texts[0].to_string();
    hostile.run = "</title><script>alert(2)</script>{{data}}&amp;".to_string();
    hostile.config = "# </script><img src=x>".to_string();
    hostile.summary[0].1 = texts[0].to_string();
    hostile.measured_on = texts[0].to_string();
    let (plain, html) = (plain.html().unwrap(), hostile.html().unwrap());
    for markup in ["<", "<script", "</script", "<!--", "<img"] {
        assert_eq!(html.matches(markup).count(), plain.matches(markup).count(), "{markup}");
    }
    assert!(
        html.contains("<title>&lt;/title&gt;&lt;script&gt;alert(2)&lt;/script&gt;{{data}}&amp;amp;</title>")
    );
    let data = data(&html);
    let token = |position: usize| {
        let number = data["samples"][0]["inputs"][position].as_u64().unwrap();
        data["tokens"][number as usize].as_str().unwrap()
    };
    assert_eq!([0, 1, 2, 3, 4].map(token), texts);
    assert_eq!(data["run"].as_str().unwrap(), hostile.run);
    assert_eq!(data["config"].as_str().unwrap(), hostile.config);
}

#[test]
fn data_that_contradict_themselves_are_refused_in_one_line() {
    let refused = |change: fn(&mut Page)| {
        let mut page = page(2, 3, 5, 2);
        change(&mut page);
        page.html().unwrap_err().to_string()
    };
    assert_eq!(
        refused(|page| page.samples.clear()),
        "a page needs the attention of at least one sample and head"
    );
    assert_eq!(
        refused(|page| page.samples[1].attention[1][2].truncate(24)),
        "validation sequence 1, layer 1, head 2: 24 weights do not fit 5 tokens, which need [5, 5]"
    );
    assert_eq!(
        refused(|page| drop(page.samples[1].predictions.pop())),
        "validation sequence 1: 4 predictions do not fit 5 tokens"
    );
    assert!(
        refused(|page| drop(page.samples[1].attention.pop())).starts_with("validation sequence 1: 5 tokens")
    );
    assert!(refused(|page| drop(page.scores[0].values.pop())).starts_with("the values of induction"));
    assert_eq!(refused(|page| page.scored_steps = vec![1]), "2 values of induction do not fit 1 steps");
}

#[test]
fn a_page_is_written_or_says_why_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.html");
    let page = page(1, 1, 1, 1);
    page.write(&path).unwrap();
    assert!(fs::read_to_string(&path).unwrap().ends_with("</html>\n"));
    let message = page.write(folder.path()).unwrap_err().to_string();
    assert!(message.starts_with("cannot write `"), "{message}");
}
