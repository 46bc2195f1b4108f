//! A node for people: every GPU as its memory slices, with who sits where.

use std::fmt::Write;

use crate::model::Model;
use crate::state::{Gpu, GpuInstance, State};

/// Characters of one memory slice.
const CELL: usize = 12;

/// Draws every GPU of a node.
#[must_use]
pub fn drawing(state: &State) -> String {
    let Ok(model) = state.model() else {
        return format!("unknown board {}\n", state.board);
    };
    let mut text = format!(
        "{} x {} ({}), driver {}, seed {}, boots {}\n",
        state.gpus.len(),
        model.product,
        model.board,
        state.driver_version,
        state.seed,
        state.boots
    );
    for gpu in &state.gpus {
        gpu_drawing(&mut text, model, gpu);
    }
    for (function, milliseconds) in &state.delays {
        line(
            &mut text,
            format_args!("delay: {function} takes {milliseconds} ms"),
        );
    }
    for failure in &state.failures {
        let (from, times, code) = (failure.on_call, failure.times, failure.code);
        let function = &failure.function;
        line(
            &mut text,
            format_args!("fail: {function} from call {from}, {times} times, with code {code}"),
        );
    }
    text
}

/// A write to a `String` cannot fail.
fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    let _ = writeln!(text, "{arguments}");
}

fn gpu_drawing(text: &mut String, model: &Model, gpu: &Gpu) {
    let mig = match (gpu.mig, gpu.mig_pending) {
        (true, true) => "MIG on",
        (false, false) => "MIG off",
        (true, false) => "MIG on, off after reset",
        (false, true) => "MIG off, on after reset",
    };
    let lost = if gpu.lost { ", LOST" } else { "" };
    let recovery = if gpu.recovery_action == 0 {
        ""
    } else {
        ", needs recovery"
    };
    line(
        text,
        format_args!("\nGPU {} {} {mig}{lost}{recovery}", gpu.index, gpu.uuid),
    );
    if gpu.mig {
        line(text, format_args!("  |{}", bar(model, gpu)));
    }
    let mut instances: Vec<&GpuInstance> = gpu.instances.iter().collect();
    instances.sort_by_key(|instance| instance.start);
    for instance in instances {
        let name = model
            .profile(instance.profile)
            .map_or("?", |profile| &profile.name);
        let computes = instance.compute_instances.iter();
        let uuids: Vec<String> = computes
            .map(|compute| format!("ci {} {}", compute.id, compute.uuid))
            .collect();
        let uuids = if uuids.is_empty() {
            "no compute instance".to_owned()
        } else {
            uuids.join(", ")
        };
        line(
            text,
            format_args!("  gi {} {name}@{} {uuids}", instance.id, instance.start),
        );
    }
    for process in &gpu.processes {
        let on = process
            .gpu_instance
            .map_or_else(|| "the GPU".to_owned(), |id| format!("gi {id}"));
        line(
            text,
            format_args!("  process {} on {on}, {} MiB", process.pid, process.memory_mib),
        );
    }
}

/// One cell a memory slice: the profile where an instance begins, dashes where it goes on, blank where free.
fn bar(model: &Model, gpu: &Gpu) -> String {
    let mut bar = String::new();
    let mut slice = 0;
    while slice < model.memory_slices {
        let (size, label) = match gpu.instances.iter().find(|instance| instance.start == slice) {
            Some(instance) => (
                instance.size,
                model
                    .profile(instance.profile)
                    .map_or("?", |profile| profile.name.as_str()),
            ),
            None => (1, ""),
        };
        let width = CELL * size as usize - 1;
        let _ = if label.is_empty() {
            write!(bar, "{:width$}|", "")
        } else {
            write!(bar, "{:-^width$}|", format!(" {label} "))
        };
        slice += size;
    }
    bar
}
