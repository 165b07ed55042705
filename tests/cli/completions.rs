//! Completion of commands, options, values and paths, in the installed shells.

use std::fs;
use std::process::Command;

use tempfile::TempDir;

use crate::generate::run;
use crate::text;

/// Waits for an interactive zsh, types a line and a tab, and prints the completions.
const TYPE_IN_ZSH: &str = r#"
zmodload zsh/zpty
zpty z "zsh -f -i"
zpty -w z 'PS1= PS2=; stty -echo; autoload -Uz compinit; compinit -D -u; source ./zsh; bindkey "^I" complete-word
compadd() { local -a hits; builtin compadd -O hits "$@"; (( $#hits )) && print -rl -- "<"${^hits}">"; builtin compadd "$@" }
ended() { print "<END>" }; comppostfuncs=(ended); print "<""READY>"'
while zpty -r z line; do [[ $line == *"<READY>"* ]] && break; done
zpty -w -n z "causal-attention $1"$'\t'
while zpty -r z line; do print -rn -- "$line"; [[ $line == *"<END>"* ]] && break; done
zpty -d z
"#;

/// Prints bash's completions for a line of words, the last of which is completed.
const TYPE_IN_BASH: &str = r#"
source ./bash; complete -p causal-attention
COMP_WORDS=(causal-attention "$@"); COMP_CWORD=$#
_causal__attention causal-attention "${COMP_WORDS[$#]}" "${COMP_WORDS[$#-1]}"; printf '<%s>\n' "${COMPREPLY[@]}"
"#;

/// Returns the completions of a line in a shell; `None` if the shell is not installed.
fn offered(dir: &TempDir, shell: &str, line: &[&str]) -> Option<String> {
    let typed = line.join(" ");
    let mut command = Command::new(shell);
    match shell {
        "bash" => command.args(["--norc", "-c", TYPE_IN_BASH, "bash"]).args(line),
        "zsh" => command.args(["-f", "-c", TYPE_IN_ZSH, "zsh", &typed]),
        _ => command.args([
            "--no-config",
            "-c",
            &format!("source ./fish; complete -C 'causal-attention {typed}'"),
        ]),
    };
    let output = command.current_dir(dir).env("HOME", dir.path()).env("TERM", "xterm").output().ok()?;
    Some(text(&output.stdout))
}

#[test]
fn shells_complete_options_values_and_paths() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("mine.toml"), "").unwrap();
    for shell in ["bash", "zsh", "fish"] {
        fs::write(dir.path().join(shell), run(dir.path(), &["completions", shell]).stdout).unwrap();
        let cases: [(&[&str], &[&str]); 8] = [
            (&["eval"], &["evaluate"]),
            (&["train", "--"], &["--resume", "--set", "--preset", "--progress", "--backend"]),
            (&["tune", "--"], &["--find-rate", "--jobs"]),
            (&["train", "--progress", ""], &["bar", "plain", "none"]),
            (&["train", "--backend", ""], &["cuda", "wgpu", "ndarray", "flex"]),
            (&["train", "--preset", ""], &["characters", "llama"]),
            (&["config", "--preset", "ll"], &["llama"]),
            (&["train", "--run", "mi"], &["mine.toml"]),
        ];
        for (line, expected) in cases {
            let Some(completions) = offered(&dir, shell, line) else {
                eprintln!("notice: completion is not tested in {shell}, which is not installed");
                break;
            };
            for word in expected {
                assert!(completions.contains(word), "{shell}, {line:?}: {completions}");
            }
        }
        // The CONFIG argument: bash falls back to file names if the script offers nothing.
        if let Some(completions) = offered(&dir, shell, &["train", "mi"]) {
            let is_default = shell == "bash"
                && completions.contains("-o default")
                && completions.trim_end().ends_with("<>");
            assert!(
                is_default || shell != "bash" && completions.contains("mine.toml"),
                "{shell}: {completions}"
            );
        }
    }
}
