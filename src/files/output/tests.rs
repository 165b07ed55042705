//! Tests that output folders are replaced completely or not at all.

use std::io::ErrorKind;

use super::*;

fn write(dir: &Path, command: &str, text: &str) -> Result<Vec<PathBuf>> {
    write_output(dir, command, |folder| write_atomically(&folder.join("a.txt"), text.as_bytes()))
}

#[test]
fn only_output_of_the_same_command_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("new/out");
    assert_eq!(write(&out, "export", "one").unwrap(), [out.join("a.txt")]);
    write(&out, "export", "two").unwrap();
    assert_eq!(fs::read_to_string(out.join("a.txt")).unwrap(), "two");
    assert!(write(&out, "inspect", "three").unwrap_err().to_string().contains("not made by `inspect`"));
    fs::write(out.join("notes.txt"), "mine").unwrap();
    let refused = write(&out, "export", "four").unwrap_err();
    assert!(refused.to_string().contains("also contains `notes.txt`"), "{refused}");
    assert_eq!(fs::read_to_string(out.join("a.txt")).unwrap(), "two");
    fs::remove_file(out.join("notes.txt")).unwrap();
    fs::write(out.join("a.txt"), "mine").unwrap();
    let refused = write(&out, "export", "four").unwrap_err();
    assert!(
        refused.to_string().contains("contains `a.txt`, which has changed since `export` wrote it"),
        "{refused}"
    );
    assert_eq!(fs::read_to_string(out.join("a.txt")).unwrap(), "mine");
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    write(&empty, "export", "five").unwrap();
    assert_eq!(fs::read_to_string(empty.join("a.txt")).unwrap(), "five");
    let entries = fs::read_dir(out.parent().unwrap()).unwrap().count();
    assert_eq!(entries, 1, "no hidden folder remains");
}

/// Writes an output folder `out` of `export`, and prepares its replacement next to it.
fn two_outputs(dir: &Path) -> HiddenFolder {
    write(&dir.join("out"), "export", "one").unwrap();
    let hidden = HiddenFolder::next_to(&dir.join("out"), WRITING, OPTION).unwrap();
    fs::write(hidden.path().join("a.txt"), "two").unwrap();
    hidden
}

fn names_in(dir: &Path) -> Vec<String> {
    names(dir).unwrap()
}

#[test]
fn folders_are_replaced_with_and_without_an_exchange() {
    for replace_with in [publish, replace] {
        let dir = tempfile::tempdir().unwrap();
        let mut hidden = two_outputs(dir.path());
        replace_with(&mut hidden, &dir.path().join("out")).unwrap();
        drop(hidden);
        assert_eq!(fs::read_to_string(dir.path().join("out/a.txt")).unwrap(), "two");
        assert_eq!(names_in(dir.path()), ["out"]);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn an_exchange_never_removes_the_destination() {
    let dir = tempfile::tempdir().unwrap();
    let hidden = two_outputs(dir.path());
    exchange(hidden.path(), &dir.path().join("out")).unwrap();
    assert_eq!(fs::read_to_string(dir.path().join("out/a.txt")).unwrap(), "two");
    assert_eq!(fs::read_to_string(hidden.path().join("a.txt")).unwrap(), "one");
}

#[cfg(unix)]
#[test]
fn a_replaced_folder_is_restored_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("out"), "export", "one").unwrap();
    // The state after a kill between two renames, next to folders of running commands and of a user.
    let aside = dir.path().join(".replaced-output-a1B2c3");
    fs::create_dir(&aside).unwrap();
    fs::rename(dir.path().join("out"), aside.join("out")).unwrap();
    fs::create_dir(dir.path().join(".writing-output-d4E5f6")).unwrap();
    fs::write(dir.path().join(".writing-output-d4E5f6/a.txt"), "half").unwrap();
    fs::create_dir_all(dir.path().join(".writing-output-notes/of mine")).unwrap();
    fs::create_dir(dir.path().join(".writing-output-young1")).unwrap();
    let running = HiddenFolder::next_to(&dir.path().join("other"), WRITING, OPTION).unwrap();
    fs::write(running.path().join("a.txt"), "half").unwrap();
    check_output(&dir.path().join("out"), "export").unwrap();
    assert_eq!(fs::read_to_string(dir.path().join("out/a.txt")).unwrap(), "one");
    let name = running.path().file_name().unwrap().to_string_lossy().into_owned();
    let mut expected = vec![name.as_str(), ".writing-output-notes", ".writing-output-young1", "out"];
    expected.sort_unstable();
    assert_eq!(names_in(dir.path()), expected);
}

#[cfg(unix)]
#[test]
fn pipes_in_an_output_folder_never_block() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("plots")).unwrap();
    let pipe = dir.path().join("samples.json");
    let make = |path: &Path| {
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    make(&pipe);
    for message in [read_own(&pipe).unwrap_err(), sha256(&pipe).unwrap_err()].map(|error| error.to_string()) {
        assert!(message.starts_with(&format!("{}: is a pipe", pipe.display())), "{message}");
    }
    make(&dir.path().join("plots").join(MADE_BY));
    let message = check_output(&dir.path().join("plots"), "plot").unwrap_err().to_string();
    assert!(message.contains("was not made by `plot`"), "{message}");
}

#[test]
fn failed_writes_leave_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("new/out");
    let failed = write_output(&out, "export", |folder| {
        write_atomically(&folder.join("a.txt"), b"half")?;
        let full = io::Error::from(ErrorKind::StorageFull);
        Err::<(), _>(Error::io("write", folder.join("b.txt"), full))
    });
    let message = failed.unwrap_err().to_string();
    assert!(message.contains(&format!("`{}`", out.join("b.txt").display())), "{message}");
    assert!(message.contains("no space left"), "{message}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}
