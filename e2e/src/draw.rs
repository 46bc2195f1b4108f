//! A GPU as its memory slices, one cell each: who sits where. In colour on a terminal, plain when piped.

use std::fmt::Write as _;

use shared::api::gpu_node::{GpuNode, GpuStatus, SliceStatus};
use shared::mig::Use;

use crate::oracle;

/// Width of the cell of one memory slice, in characters.
const CELL: usize = 9;
/// ANSI background colours by compute slices; grey for idle ones, red for blocked ones.
const COLOURS: [(u8, u8); 5] = [(1, 44), (2, 42), (3, 45), (4, 46), (7, 43)];

/// Draws all nodes.
#[must_use]
pub fn nodes(nodes: &[GpuNode], colour: bool) -> String {
    let mut text = String::new();
    for node in nodes {
        let name = node.metadata.name.as_deref().unwrap_or("?");
        let Some(status) = &node.status else { continue };
        let model = status.gpus.first().map_or("no GPUs", |gpu| gpu.model.as_str());
        let _ = writeln!(text, "{name}  ({} x {model})", status.gpus.len());
        for gpu in &status.gpus {
            text.push_str(&line(node, gpu, colour));
        }
    }
    text
}

/// One GPU in a line: index, cells, then the holders that did not fit in their cell.
fn line(node: &GpuNode, gpu: &GpuStatus, colour: bool) -> String {
    let Some(board) = oracle::board(node, gpu) else {
        return format!("  gpu {:<2} not in MIG mode\n", gpu.index);
    };
    let mut cells = String::from("|");
    let mut notes = Vec::new();
    let mut at = 0;
    while at < board.memory_slices {
        let slice = gpu.slices.iter().find(|slice| slice.place.start == at);
        let size = slice
            .and_then(|slice| board.row(slice.place.profile))
            .map_or(1, |row| row.size);
        let width = CELL * usize::from(size) + usize::from(size) - 1;
        match slice {
            Some(slice) => {
                cells.push_str(&cell(slice, width, colour));
                if let Some(holder) = &slice.holder
                    && holder.pod.len() > width
                {
                    notes.push(format!("{}@{} {}", slice.place.profile, at, holder.pod));
                }
            }
            None => cells.push_str(&centre("", width, '.')),
        }
        cells.push('|');
        at += size;
    }
    let withheld = node.spec.withhold.iter().any(|withheld| withheld.gpu == gpu.uuid);
    let mark = if withheld { " withheld" } else { "" };
    let notes = if notes.is_empty() {
        String::new()
    } else {
        format!("  {}", notes.join(", "))
    };
    format!("  gpu {:<2} {cells}{mark}{notes}\n", gpu.index)
}

fn cell(slice: &SliceStatus, width: usize, colour: bool) -> String {
    let holder = slice.holder.as_ref().map(|holder| holder.pod.as_str());
    let profile = slice.place.profile.to_string();
    let label = match (slice.state, holder) {
        (Use::Allocated, Some(pod)) if profile.len() + 1 + pod.len() <= width => format!("{profile} {pod}"),
        (Use::Allocated, Some(pod)) if pod.len() <= width => pod.to_owned(),
        (Use::Allocated, _) => profile,
        (Use::Idle, _) => format!("idle {}g", slice.place.profile.compute),
        (Use::Blocked, _) => "blocked".to_owned(),
    };
    let text = centre(&label, width, ' ');
    if !colour {
        return text;
    }
    let code = match slice.state {
        Use::Idle => 100,
        Use::Blocked => 41,
        Use::Allocated => {
            let found = COLOURS
                .iter()
                .find(|(compute, _)| *compute == slice.place.profile.compute);
            found.map_or(47, |(_, code)| *code)
        }
    };
    format!("\x1b[30;{code}m{text}\x1b[0m")
}

/// The label in the middle of a cell, cut to its width.
fn centre(label: &str, width: usize, fill: char) -> String {
    let label: String = label.chars().take(width).collect();
    let free = width - label.chars().count();
    let side = |count: usize| fill.to_string().repeat(count);
    format!("{}{label}{}", side(free / 2), side(free - free / 2))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_gpu_is_drawn_as_its_eight_memory_slices() {
        let board = shared::api::gpu_node::BoardStatus::from(shared::mig::Board::named("H100-80GB").unwrap());
        let node: GpuNode = serde_json::from_value(json!({
            "apiVersion": "migpool.dev/v1alpha1",
            "kind": "GpuNode",
            "metadata": {"name": "gpu-1"},
            "spec": {},
            "status": {
                "boards": [board],
                "gpus": [{
                    "uuid": "GPU-1", "index": 0, "model": "H100", "board": "H100-80GB", "memoryMib": 1, "mig": true,
                    "health": "Healthy",
                    "slices": [
                        {"profile": "1g.10gb", "start": 0, "state": "Idle"},
                        {"profile": "3g.40gb", "start": 4, "state": "Allocated",
                         "holder": {"namespace": "d", "pod": "train", "container": "main"}},
                    ],
                }],
            },
        }))
        .unwrap();
        let plain = nodes(std::slice::from_ref(&node), false);
        let drawn =
            "  gpu 0  | idle 1g |.........|.........|.........|             3g.40gb train             |\n";
        assert_eq!(plain, format!("gpu-1  (1 x H100)\n{drawn}"));
        assert!(nodes(&[node], true).contains("\x1b[30;45m"));
    }
}
