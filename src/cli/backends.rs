//! `backends`: lists the compiled backends and the devices of this machine, and checks their results.

use std::process::ExitCode;

use serde_json::{Value, json};

use crate::backend::{self, Check, Device};
use crate::config::BackendName;
use crate::error::Result;
use crate::numbers::Bytes;
use crate::terminal::{print_json, say};

/// List the backends and devices, and check their results.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Checks only this backend: cuda, wgpu, ndarray or flex.
    #[arg(long, value_name = "NAME")]
    backend: Option<BackendName>,
    /// Lists backends and devices without checking them.
    #[arg(long)]
    list: bool,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the command. Exit code 1 means that a device computes wrong results.
pub fn run(args: Args) -> Result<ExitCode> {
    if let (Some(name), false) = (args.backend, args.list) {
        // A backend requested by name must have a device.
        backend::devices_of(name)?;
    }
    // Results are printed immediately, because a check takes time.
    let print_line = |line: String| {
        if !args.json {
            say(&line);
        }
    };
    let (mut all_correct, mut entries) = (true, Vec::new());
    for name in BackendName::ALL.into_iter().filter(|&name| args.backend.is_none_or(|only| only == name)) {
        let (backend, is_compiled) = (name.to_string(), backend::compiled().contains(&name));
        let devices = if is_compiled { backend::devices(name) } else { Vec::new() };
        print_line(match (is_compiled, &devices[..]) {
            (false, _) => {
                format!("{backend}: not compiled in; build with `cargo build --release --features {backend}`")
            }
            (true, []) => format!("{backend}: no device found"),
            (true, _) => format!("{backend}:"),
        });
        let mut found = Vec::new();
        for device in &devices {
            let memory = device.memory.map_or_else(String::new, |bytes| format!(", {}", Bytes(bytes as f64)));
            print_line(format!("  {}  {} ({}{memory})", device.index, device.name, device.kind.name()));
            let check = (!args.list).then(|| backend::check(device));
            if let Some(check) = &check {
                all_correct &= check.as_ref().is_ok_and(Check::passes);
                print_line(in_words(check));
            }
            found.push(as_json(device, check.as_ref()));
        }
        entries.push(json!({ "backend": backend, "compiled": is_compiled, "devices": found }));
    }
    if args.json {
        print_json(&entries);
    }
    Ok(if all_correct { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn in_words(check: &Result<Check>) -> String {
    let check = match check {
        Err(error) => return format!("     check failed: {error}"),
        Ok(check) => check,
    };
    let (worst, dropout) = (check.worst(), &check.dropout);
    format!(
        "     results {}: {} comparisons, largest relative error {:.1e} (limit {:.1e}) in {}; dropout rate off by \
         {:.1e} (limit {:.1e})",
        if check.passes() { "correct" } else { "WRONG" },
        check.parts.len(),
        worst.difference,
        worst.limit,
        worst.what,
        dropout.difference,
        dropout.limit
    )
}

fn as_json(device: &Device, check: Option<&Result<Check>>) -> Value {
    let check = check.map(|check| match check {
        Err(error) => json!({ "right": false, "error": error.to_string() }),
        Ok(check) => json!({ "right": check.passes(), "dropout": check.dropout, "parts": check.parts }),
    });
    let Device { index, name, kind, memory, .. } = device;
    json!({ "index": index, "name": name, "kind": kind.name(), "memory": memory, "check": check })
}
