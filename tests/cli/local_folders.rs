//! Pages and pictures must not reveal local folders.

use std::fs;
use std::path::Path;

use base64::{Engine, engine::general_purpose::STANDARD};
use tempfile::TempDir;

use crate::{small_run, stdout_of};

/// Returns the full text of a page, including its packed data.
fn page(path: &Path) -> String {
    let page = fs::read_to_string(path).unwrap();
    let (_, data) = page.split_once("<script id=\"data\"").unwrap();
    let data = data.split_once('>').unwrap().1.split_once('<').unwrap().0.to_string();
    let packed = STANDARD.decode(data).ok();
    let unpacked = packed.map(|packed| miniz_oxide::inflate::decompress_to_vec_zlib(&packed).unwrap());
    page + &String::from_utf8_lossy(&unpacked.unwrap_or_default())
}

/// The page of a run whose circuit was found has the most contents.
const CIRCUIT: &str = "analysis.circuit=true";

#[test]
fn pages_and_pictures_reveal_no_local_folders() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let text = "the folder of a text is nobody's business but its owner's\n".repeat(60);
    for name in ["a", "b"] {
        fs::create_dir(folder.join(name)).unwrap();
        fs::write(folder.join(name).join("words.txt"), format!("{text}{name}\n")).unwrap();
        let path = format!("data.path={}/{name}/words.txt", folder.display());
        let sets =
            ["data.source=text", "data.vocab=auto", "training.steps=6", &path, "analysis.every=0", CIRCUIT];
        small_run(folder, &sets, &format!("runs/{name}/run"));
    }
    let runs = ["a", "b"].map(|name| folder.join("runs").join(name).join("run").display().to_string());
    stdout_of(folder, &["compare", &runs[0], &runs[1], "--out", "side", "--format", "svg"]);
    stdout_of(folder, &["inspect", &runs[0], "--text", "the text", "--out", "seen", "--format", "svg"]);
    stdout_of(folder, &["plot", &runs[0], "--out", "plots", "--format", "svg"]);
    let study = "[tune]\nmethod = \"grid\"\nsteps = 3\noverfit_check = false\n[tune.search]\n\"training.learning_rate\" = [1e-3]\n";
    let config = fs::read_to_string(folder.join("runs/a/run/config.toml")).unwrap();
    fs::write(folder.join("study.toml"), config + study).unwrap();
    stdout_of(folder, &["tune", "study.toml", "--run", "study", "--progress", "none"]);

    let here = folder.display().to_string();
    for name in ["runs/a/run", "side", "seen", "study"] {
        let text = page(&folder.join(name).join("report.html"));
        assert!(
            !text.contains(&here),
            "{name}: …{:?}",
            text.split_once(&here).map(|(before, _)| &before[before.len() - 200..])
        );
        assert!(text.contains("words.txt"), "{name} names the file");
    }
    assert!(page(&folder.join("side/report.html")).contains("b/words.txt"), "names are distinguished");
    for pictures in ["side", "seen", "plots"] {
        for picture in fs::read_dir(folder.join(pictures)).unwrap().map(|picture| picture.unwrap().path()) {
            let text = fs::read_to_string(&picture).unwrap();
            assert!(!text.contains(&here), "{}", picture.display());
        }
    }
}
