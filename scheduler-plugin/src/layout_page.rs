//! The pool drawn as text, one line a GPU: its memory slices in order, each used one by the compute size of its
//! slice, `-` idle, `!` blocked, `.` free.

use std::fmt::Write as _;

use shared::api::gpu_node::Health;
use shared::mig::Use;
use shared::snapshot::{Gpu, Node, NodeState, Snapshot};

/// Draws a snapshot.
#[must_use]
pub fn draw(snapshot: &Snapshot) -> String {
    let mut page = String::new();
    for node in snapshot.nodes.values() {
        // writing to a String cannot fail
        let _ = writeln!(page, "{}{}", node.name, note(node));
        for gpu in &node.gpus {
            let _ = writeln!(page, "  {:>2} {} {}{}", gpu.index, bar(gpu), gpu.uuid, state(gpu));
            for (place, owner) in gpu.owners() {
                let _ = writeln!(page, "       {place} {}/{}", owner.namespace, owner.pod);
            }
        }
    }
    if page.is_empty() {
        "no node with a migpool agent has GPUs\n".to_owned()
    } else {
        page
    }
}

/// A GPU's memory slices in a line.
#[must_use]
pub fn bar(gpu: &Gpu) -> String {
    let Some(board) = gpu.board.as_deref() else {
        return format!(
            "[{}]",
            if gpu.whole.is_some() {
                "whole, used"
            } else {
                "whole, free"
            }
        );
    };
    let mut cells = vec!['.'; usize::from(board.memory_slices)];
    for slice in gpu.layout().slices() {
        let cell = match slice.used {
            Use::Idle => '-',
            Use::Blocked => '!',
            Use::Allocated => char::from_digit(u32::from(slice.place.profile.compute), 36).unwrap_or('#'),
        };
        let window = slice.place.window(board).unwrap_or_default();
        for (at, drawn) in cells.iter_mut().enumerate() {
            if window & (1 << at) != 0 {
                *drawn = cell;
            }
        }
    }
    format!("[{}]", cells.into_iter().collect::<String>())
}

fn note(node: &Node) -> &'static str {
    match node.state {
        NodeState::Ready => "",
        NodeState::Paused => " (paused)",
        NodeState::Away => " (agent not ready)",
    }
}

fn state(gpu: &Gpu) -> &'static str {
    match (gpu.withheld, gpu.health) {
        (true, _) => " (withheld)",
        (false, Health::Healthy) => "",
        (false, Health::Suspect) => " (suspect)",
        (false, Health::Unhealthy) => " (unhealthy)",
        (false, Health::Recovering) => " (recovering)",
    }
}

#[cfg(test)]
mod tests {
    use shared::decide::testing::{cluster, node, owner};
    use shared::mig::Slice;

    use super::*;

    #[test]
    fn a_gpu_is_drawn_by_its_memory_slices() {
        let mut a = node("a", "H100-80GB", 2);
        for (place, used) in [
            ("3g.40gb:0", Use::Allocated),
            ("1g.10gb:4", Use::Allocated),
            ("1g.20gb:6", Use::Idle),
        ] {
            let place = place.parse().unwrap();
            a.gpus[0].put(
                Slice { place, used },
                (used == Use::Allocated).then(|| owner("p")),
            );
        }
        a.gpus[1].withheld = true;
        let page = draw(&cluster([a]));
        assert_eq!(
            page,
            "a\n   0 [33331.--] GPU-a-0\n       1g.10gb:4 default/p\n       3g.40gb:0 default/p\n   1 [........] GPU-a-1 (withheld)\n"
        );
        assert_eq!(
            draw(&Snapshot::default()),
            "no node with a migpool agent has GPUs\n"
        );
    }
}
