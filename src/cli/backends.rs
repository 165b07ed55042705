//! `backends`: what is compiled in, what this machine has, and whether each computes right.

use std::process::ExitCode;

use serde_json::{Value, json};

use crate::backend::{self, Check, Device};
use crate::config::BackendName;
use crate::error::Result;
use crate::terminal::{Bytes, print_json, say};

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

/// Runs the command. Exit code 1: a device computes wrong.
pub fn run(args: Args) -> Result<ExitCode> {
    if let (Some(name), false) = (args.backend, args.list) {
        // Nothing that is asked for by name and not there counts as right.
        backend::devices_of(name)?;
    }
    let compiled = backend::compiled();
    let mut all_right = true;
    let mut entries = Vec::new();
    for name in BackendName::ALL.into_iter().filter(|&name| args.backend.is_none_or(|only| only == name)) {
        let devices = backend::devices(name);
        let is_compiled = compiled.contains(&name);
        if !args.json {
            print_backend(name, is_compiled, &devices);
        }
        let mut found = Vec::new();
        for device in devices.iter().filter(|_| is_compiled) {
            if !args.json {
                print_device(device);
            }
            let check = (!args.list).then(|| backend::check(device));
            all_right &= check.as_ref().is_none_or(|check| check.as_ref().is_ok_and(Check::is_right));
            match (args.json, &check) {
                (true, check) => found.push(as_json(device, check.as_ref())),
                (false, Some(check)) => print_check(check),
                (false, None) => {}
            }
        }
        entries.push(json!({ "backend": name.name(), "compiled": is_compiled, "devices": found }));
    }
    if args.json {
        print_json(&entries);
    }
    Ok(if all_right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print_backend(name: BackendName, is_compiled: bool, devices: &[Device]) {
    let backend = name.name();
    match (is_compiled, devices) {
        (false, _) => {
            say(&format!("{backend}: not compiled in (cargo build --release --features {backend})"))
        }
        (true, []) => say(&format!("{backend}: no device found")),
        (true, _) => say(&format!("{backend}:")),
    }
}

fn print_device(device: &Device) {
    let memory = device.memory.map_or_else(String::new, |bytes| format!(", {}", Bytes(bytes as f64)));
    say(&format!("  {}  {} ({}{memory})", device.index, device.name, device.kind.name()));
}

fn print_check(check: &Result<Check>) {
    say(&match check {
        Err(error) => format!("     fails: {error}"),
        Ok(check) => {
            let (worst, dropout) = (check.worst(), &check.dropout);
            format!(
                "     computes {}: {} comparisons, at worst {:.1e} of {:.1e} allowed ({}); the share that dropout \
                 zeroes is off by {:.1e} of {:.1e}",
                if check.is_right() { "right" } else { "WRONG" },
                check.parts.len(),
                worst.difference,
                worst.limit,
                worst.what,
                dropout.difference,
                dropout.limit
            )
        }
    });
}

fn as_json(device: &Device, check: Option<&Result<Check>>) -> Value {
    let check = check.map(|check| match check {
        Err(error) => json!({ "right": false, "error": error.to_string() }),
        Ok(check) => json!({
            "right": check.is_right(),
            "dropout": check.dropout,
            "parts": check.parts,
        }),
    });
    json!({
        "index": device.index,
        "name": device.name,
        "kind": device.kind.name(),
        "memory": device.memory,
        "check": check,
    })
}
