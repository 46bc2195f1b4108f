//! The inventory as a GpuNode's status.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use shared::api::conditions::{
    READY, REASON_DRIVER_FAILED, REASON_NO_DRIVER, REASON_NOT_REGISTERED, REASON_SERVING, REASON_SOLE_OWNER,
    STOOD_BACK,
};
use shared::api::gpu_node::{BoardStatus, GpuNodeStatus, GpuStatus, Holder, SliceStatus, Summary};
use shared::mig::{Board, Profile, Use};
use shared::names::DeviceId;

use super::condition;
use crate::inventory::{Driver, Gpu, Held, State};

/// Longest message of a GPU or a slice, by the schema.
const MESSAGE: usize = 256;
/// Longest line of a summary, by the schema.
const LINE: usize = 512;

/// The status of a state, with the conditions that stood before for their times of change.
#[must_use]
pub fn status(state: &State, boot_id: &str, before: &[Condition], now: Time) -> GpuNodeStatus {
    let driver_version = match &state.driver {
        Driver::Works(driver) => driver.version.clone(),
        Driver::Unknown | Driver::Absent(_) | Driver::Failed(_) => String::new(),
    };
    let mut boards: Vec<BoardStatus> = Vec::new();
    for board in state.gpus.iter().filter_map(|gpu| gpu.info.board.as_deref()) {
        if !boards.iter().any(|known| known.name == board.name) {
            boards.push(BoardStatus::from(board));
        }
    }
    GpuNodeStatus {
        observed_generation: state.generation,
        driver_version,
        strategy: state.strategy.as_str().to_owned(),
        boot_id: boot_id.to_owned(),
        boards,
        gpus: state.gpus.iter().map(|gpu| gpu_status(state, gpu)).collect(),
        endpoint: state.endpoint.clone(),
        summary: summary(state),
        conditions: conditions(state, before, now),
    }
}

fn conditions(state: &State, before: &[Condition], now: Time) -> Vec<Condition> {
    let mut list = before.to_vec();
    let (on, reason, message) = match (&state.driver, &state.unregistered) {
        (Driver::Unknown, _) => (
            false,
            REASON_NO_DRIVER,
            "the driver was not looked for yet".to_owned(),
        ),
        (Driver::Absent(why), _) => (false, REASON_NO_DRIVER, why.clone()),
        (Driver::Failed(why), _) => (false, REASON_DRIVER_FAILED, why.clone()),
        (Driver::Works(_), Some(why)) => (false, REASON_NOT_REGISTERED, why.clone()),
        (Driver::Works(_), None) => (
            true,
            REASON_SERVING,
            "slices are cut, and the kubelet knows of them".to_owned(),
        ),
    };
    condition(
        &mut list,
        READY,
        on,
        (reason, &message),
        state.generation,
        now.clone(),
    );
    let (back, reason, message) = match &state.stood_back {
        Some((reason, message)) => (true, *reason, message.as_str()),
        None => (false, REASON_SOLE_OWNER, "nobody else cuts slices here"),
    };
    condition(
        &mut list,
        STOOD_BACK,
        back,
        (reason, message),
        state.generation,
        now,
    );
    list
}

fn gpu_status(state: &State, gpu: &Gpu) -> GpuStatus {
    let info = &gpu.info;
    let message = state
        .closed(gpu)
        .filter(|_| gpu.health != shared::api::gpu_node::Health::Healthy)
        .map(|_| gpu.message.clone());
    GpuStatus {
        uuid: info.uuid.clone(),
        index: info.index,
        model: cut(&info.model, 64),
        board: info
            .board
            .as_ref()
            .map(|board| board.name.clone())
            .unwrap_or_default(),
        memory_mib: info.memory_mib,
        numa_node: info.numa,
        mig: info.mig,
        health: gpu.health,
        message: cut(&message.unwrap_or_default(), MESSAGE),
        holder: state.held.get(&info.uuid).and_then(holder),
        slices: slices(state, gpu),
    }
}

fn slices(state: &State, gpu: &Gpu) -> Vec<SliceStatus> {
    let layout = state.layout(gpu);
    let describe = |slice: &shared::mig::Slice| {
        let id = DeviceId::new(gpu.info.uuid.clone(), slice.place).to_string();
        let there = gpu.slices.get(&slice.place);
        let uuid = there.map(|there| there.instance.uuid.clone()).unwrap_or_default();
        let held = state.held.get(&id).or_else(|| state.held.get(&uuid));
        let message = there.and_then(|there| there.blocked.clone().or_else(|| there.fault.clone()));
        SliceStatus {
            place: slice.place,
            mig_uuid: uuid,
            // with NVIDIA's strategies devices are held by their own UUID
            state: if held.is_some() {
                Use::Allocated
            } else {
                slice.used
            },
            holder: held.and_then(holder),
            message: cut(&message.unwrap_or_default(), MESSAGE),
        }
    };
    layout.slices().iter().map(describe).collect()
}

fn holder(held: &Held) -> Option<Holder> {
    let pod = held.pod.as_ref()?;
    Some(Holder {
        namespace: pod.namespace.clone(),
        pod: pod.name.clone(),
        container: held.container.clone().unwrap_or_default(),
    })
}

fn summary(state: &State) -> Summary {
    let slices = |gpu: &Gpu| {
        gpu.slices
            .values()
            .filter(|slice| slice.instance.is_slice())
            .count()
    };
    let mut free: BTreeMap<Profile, usize> = BTreeMap::new();
    let mut drawn = Vec::new();
    for gpu in &state.gpus {
        let Some(board) = gpu.info.board.as_ref().filter(|_| gpu.info.mig) else {
            drawn.push("[gpu]".to_owned());
            continue;
        };
        drawn.push(draw(state, gpu, board));
        if state.closed(gpu).is_none() {
            let busy = state.layout(gpu).busy();
            for row in &board.profiles {
                *free.entry(row.profile).or_default() += busy.count_free(board, row.profile);
            }
        }
    }
    let free = free
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(profile, count)| format!("{count}x{profile}"));
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    Summary {
        gpus: number(state.gpus.len()),
        slices: number(state.gpus.iter().map(slices).sum()),
        allocated: number(state.held.len()),
        free: cut(&free.collect::<Vec<_>>().join(" "), LINE),
        layout: cut(&drawn.join(" "), LINE),
    }
}

/// A GPU's memory slices in a line: used ones by compute size, `-` idle, `!` blocked, `.` free.
fn draw(state: &State, gpu: &Gpu, board: &Board) -> String {
    let mut line: Vec<char> = vec!['.'; usize::from(board.memory_slices)];
    for slice in state.layout(gpu).slices() {
        let mark = match slice.used {
            Use::Allocated => char::from_digit(u32::from(slice.place.profile.compute), 36).unwrap_or('?'),
            Use::Idle => '-',
            Use::Blocked => '!',
        };
        let size = board
            .row(slice.place.profile)
            .map_or(0, |row| usize::from(row.size));
        line.iter_mut()
            .skip(usize::from(slice.place.start))
            .take(size)
            .for_each(|at| *at = mark);
    }
    let mut drawn = String::from("[");
    drawn.extend(line);
    // writing to a String cannot fail
    let _ = drawn.write_char(']');
    drawn
}

/// A text that is not longer than the schema allows.
fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use shared::api::gpu_node::{Endpoint, Health};
    use tokio::time::Instant;

    use super::*;
    use crate::args::Strategy;
    use crate::gpus::fake::Fake;
    use crate::gpus::{DriverInfo, Gpus as _, Instance};
    use crate::inventory::{PodRef, SliceState};

    fn now(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    fn state() -> State {
        let info = Fake::node("H100-80GB", 1).list().unwrap().remove(0);
        let mut gpu = Gpu {
            info,
            slices: BTreeMap::new(),
            health: Health::Healthy,
            message: String::new(),
        };
        for (place, ci) in [
            ("3g.40gb:4", Some(0)),
            ("1g.10gb:0", Some(0)),
            ("1g.10gb:1", None),
        ] {
            let place = place.parse().unwrap();
            let instance = Instance {
                place,
                gi: 1,
                ci,
                uuid: format!("MIG-{place}"),
                partial: usize::from(ci.is_none()),
            };
            gpu.slices
                .insert(place, SliceState::new(instance, Instant::now()));
        }
        let mut state = State {
            strategy: Strategy::Dynamic,
            driver: Driver::Works(DriverInfo::default()),
            ..State::default()
        };
        let id = DeviceId::new(gpu.info.uuid.clone(), "3g.40gb:4".parse().unwrap()).to_string();
        let mut held = Held::new("nvidia.com/mig-3g.40gb", 1, Instant::now());
        held.pod = Some(PodRef {
            namespace: "n".into(),
            name: "p".into(),
            uid: None,
        });
        state.held.insert(id, held);
        state.gpus.push(gpu);
        state
    }

    #[test]
    fn a_node_is_told_with_its_slices_holders_and_a_drawing() {
        let endpoint = Endpoint {
            address: "10.0.0.7:9404".into(),
            fingerprint: "sha256:00".into(),
        };
        let state = State {
            endpoint: Some(endpoint.clone()),
            ..state()
        };
        let status = status(&state, "boot", &[], now(0));
        assert_eq!(status.endpoint, Some(endpoint));
        assert_eq!(status.summary.layout, "[-!..3333]");
        assert_eq!(status.summary.free, "3x1g.10gb 1x1g.10gb+me 1x1g.20gb 1x2g.20gb");
        let slices = &status.gpus[0].slices;
        assert_eq!(
            slices.iter().map(|slice| slice.state).collect::<Vec<_>>(),
            [Use::Idle, Use::Blocked, Use::Allocated]
        );
        assert_eq!(slices[2].holder.as_ref().unwrap().pod, "p");
        assert!(
            slices[1].message.contains("somebody else"),
            "{}",
            slices[1].message
        );
    }

    #[test]
    fn conditions_keep_their_time_until_they_change() {
        let mut state = state();
        let first = status(&state, "", &[], now(1)).conditions;
        let second = status(&state, "", &first, now(2)).conditions;
        assert_eq!(first, second);
        state.unregistered = Some("no socket".into());
        let third = status(&state, "", &second, now(3)).conditions;
        let ready = third.iter().find(|condition| condition.type_ == READY).unwrap();
        assert_eq!(
            (ready.status.as_str(), &ready.last_transition_time),
            ("False", &now(3))
        );
    }
}
