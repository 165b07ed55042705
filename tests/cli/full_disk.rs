//! A disk that fills up while a run is written.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::{SMALL, program, text, train, without_data_warnings};

/// A small temporary disk, unmounted when dropped.
pub struct SmallDisk(TempDir);

impl SmallDisk {
    pub fn new(size: &str) -> Option<Self> {
        let dir = TempDir::new().unwrap();
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(dir.path());
        let mounted = mount.output().is_ok_and(|output| output.status.success());
        mounted.then(|| Self(dir))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.0.path()).output();
    }
}

#[test]
fn runs_resume_after_a_full_disk() {
    let Some(disk) = SmallDisk::new("4m") else {
        eprintln!("notice: full disks are not tested, because this user may not mount one");
        return;
    };
    let uninterrupted = TempDir::new().unwrap();
    let sets = [&SMALL[..], &["training.steps=40", "training.checkpoint_every=10"]].concat();
    assert!(train(uninterrupted.path(), &sets, &["--run", "run"]).status.success());

    // Room for the folder and its first checkpoint, but not for later files.
    let filler = disk.0.path().join("filler");
    fs::write(&filler, vec![1; (4 << 20) - (200 << 10)]).unwrap();
    let output = train(disk.0.path(), &sets, &["--run", "run"]);
    let stderr = without_data_warnings(&output.stderr);
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
    assert!(
        stderr.contains("cannot write `run/") && stderr.contains("no space left on the disk"),
        "{stderr}"
    );
    assert!(stderr.contains("free some space, then resume the run") && !stderr.contains("/."), "{stderr}");

    fs::remove_file(&filler).unwrap();
    let output = train(disk.0.path(), &[], &["--resume", "run"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let weights = |dir: &Path| fs::read(dir.join("run/model.safetensors")).unwrap();
    assert!(
        weights(disk.0.path()) == weights(uninterrupted.path()),
        "the run ends with the weights of an uninterrupted one"
    );

    // Pictures report a full disk too.
    for picture in fs::read_dir(disk.0.path().join("run/plots")).unwrap() {
        fs::remove_file(picture.unwrap().path()).unwrap();
    }
    let _ = fs::write(&filler, vec![1; 4 << 20]);
    let output = program(disk.0.path()).args(["plot", "run"]).output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
    assert!(
        stderr.contains("cannot write `run/plots/") && stderr.contains("no space left on the disk"),
        "{stderr}"
    );
}
