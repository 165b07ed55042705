//! `backends`: lists the compiled backends and the devices of this machine, and checks their results.

use std::process::ExitCode;

use serde_json::{Value, json};

use crate::backend::{self, Check, Device};
use crate::config::BackendName;
use crate::error::Result;
use crate::numbers::Bytes;
use crate::terminal::{print_json, say};

/// List the backends and devices, and check that each computes right.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Checks this backend alone: cuda, wgpu, ndarray or flex.
    #[arg(long, value_name = "NAME")]
    backend: Option<BackendName>,
    /// Lists only, checks nothing.
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
    let tell = |line: String| {
        if !args.json {
            say(&line)
        }
    };
    let (mut all_right, mut entries) = (true, Vec::new());
    for name in BackendName::ALL.into_iter().filter(|&name| args.backend.is_none_or(|only| only == name)) {
        let (backend, is_compiled) = (name.name(), backend::compiled().contains(&name));
        let devices = if is_compiled { backend::devices(name) } else { Vec::new() };
        tell(match (is_compiled, &devices[..]) {
            (false, _) => format!("{backend}: not compiled in (cargo build --release --features {backend})"),
            (true, []) => format!("{backend}: no device found"),
            (true, _) => format!("{backend}:"),
        });
        let mut found = Vec::new();
        for device in &devices {
            let memory = device.memory.map_or_else(String::new, |bytes| format!(", {}", Bytes(bytes as f64)));
            tell(format!("  {}  {} ({}{memory})", device.index, device.name, device.kind.name()));
            let check = (!args.list).then(|| backend::check(device));
            if let Some(check) = &check {
                all_right &= check.as_ref().is_ok_and(Check::is_right);
                tell(in_words(check));
            }
            found.push(as_json(device, check.as_ref()));
        }
        entries.push(json!({ "backend": backend, "compiled": is_compiled, "devices": found }));
    }
    if args.json {
        print_json(&entries);
    }
    Ok(if all_right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn in_words(check: &Result<Check>) -> String {
    let check = match check {
        Err(error) => return format!("     fails: {error}"),
        Ok(check) => check,
    };
    let (worst, dropout) = (check.worst(), &check.dropout);
    format!(
        "     computes {}: {} comparisons, largest relative error {:.1e} (limit {:.1e}) in {}; dropout rate off by \
         {:.1e} (limit {:.1e})",
        if check.is_right() { "right" } else { "WRONG" },
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
        Ok(check) => json!({ "right": check.is_right(), "dropout": check.dropout, "parts": check.parts }),
    });
    let Device { index, name, kind, memory, .. } = device;
    json!({ "index": index, "name": name, "kind": kind.name(), "memory": memory, "check": check })
}
