//! Reads the openb trace: nodes with GPUs, and lists of pods. Files are CSV, plain or gzipped, found by their
//! column names. A row that cannot be read is named by file and line.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use flate2::read::GzDecoder;
use shared::decide::pack::{Ask, Room};

/// The lists of the paper, in the order of its tables.
pub const LISTS: [&str; 17] = [
    "default",
    "cpu050",
    "cpu100",
    "cpu200",
    "cpu250",
    "gpushare40",
    "gpushare60",
    "gpushare80",
    "gpushare100",
    "gpuspec10",
    "gpuspec20",
    "gpuspec25",
    "gpuspec33",
    "multigpu20",
    "multigpu30",
    "multigpu40",
    "multigpu50",
];

/// The nodes of the cluster, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// What each has when it is empty.
    pub rooms: Vec<Room>,
    /// Names of the GPU models, by number.
    pub models: Vec<String>,
}

impl Cluster {
    /// Thousandths of GPUs of each model.
    #[must_use]
    pub fn capacity(&self) -> Vec<u64> {
        let mut capacity = vec![0; self.models.len()];
        for room in &self.rooms {
            capacity[room.model as usize] += room.gpu_milli();
        }
        capacity
    }
}

/// Where the trace is read from: the folder given, or the copy that comes with the simulator.
#[must_use]
pub fn folder(given: Option<&Path>) -> PathBuf {
    let copy = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/openb");
    match given {
        // the folder of all traces, or that of openb alone
        Some(given) if given.join("openb").is_dir() => given.join("openb"),
        Some(given) => given.to_path_buf(),
        None => copy,
    }
}

/// Reads the nodes.
///
/// # Errors
/// Where the file is missing or a row cannot be read.
pub fn nodes(folder: &Path) -> Result<Cluster> {
    let table = Table::open(folder, "openb_node_list_gpu_node.csv")?;
    let mut models: Vec<String> = Vec::new();
    let mut rooms = Vec::new();
    for row in table.rows() {
        let name = row.text("model")?;
        let model = models.iter().position(|known| known == name).unwrap_or_else(|| {
            models.push(name.to_owned());
            models.len() - 1
        });
        let gpus: usize = row.number("gpu")?;
        rooms.push((
            row.text("sn")?.to_owned(),
            Room {
                cpu_milli: row.number("cpu_milli")?,
                memory_mib: row.number("memory_mib")?,
                model: model as u32,
                free_milli: vec![1_000; gpus],
            },
        ));
    }
    rooms.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(Cluster {
        rooms: rooms.into_iter().map(|(_, room)| room).collect(),
        models,
    })
}

/// Reads a list of pods, sorted by name.
///
/// # Errors
/// Where the file is missing or a row cannot be read.
pub fn pods(folder: &Path, list: &str, models: &[String]) -> Result<Vec<Ask>> {
    let table = Table::open(folder, &format!("openb_pod_list_{list}.csv"))?;
    let mut pods: Vec<(String, Ask)> = Vec::new();
    for row in table.rows() {
        let mut allowed = 0;
        // the lists without pinned pods leave the column out
        for name in row
            .optional("gpu_spec")
            .split('|')
            .filter(|name| !name.is_empty())
        {
            let model = models.iter().position(|known| known == name);
            let model = model.with_context(|| row.wrong(&format!("no node has the GPU model {name:?}")))?;
            allowed |= 1 << model;
        }
        let gpus = row.number("num_gpu")?;
        let ask = Ask {
            cpu_milli: row.number("cpu_milli")?,
            memory_mib: row.number("memory_mib")?,
            gpus,
            share_milli: if gpus == 0 { 0 } else { row.number("gpu_milli")? },
            models: allowed,
        };
        if ask.share_milli > 1_000 || gpus > 1 && ask.share_milli != 1_000 || gpus > 0 && ask.share_milli == 0
        {
            bail!(row.wrong("gpu_milli is 1 to 1000, and 1000 where more than one GPU is asked"));
        }
        pods.push((row.text("name")?.to_owned(), ask));
    }
    pods.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(pods.into_iter().map(|(_, ask)| ask).collect())
}

/// A CSV file in memory. The traces quote nothing.
struct Table {
    path: PathBuf,
    columns: BTreeMap<String, usize>,
    lines: Vec<String>,
}

struct Row<'a> {
    table: &'a Table,
    line: usize,
    fields: Vec<&'a str>,
}

impl Table {
    /// Opens `name`, or `name.gz` where that is what there is.
    fn open(folder: &Path, name: &str) -> Result<Self> {
        let plain = folder.join(name);
        let path = if plain.is_file() {
            plain
        } else {
            folder.join(format!("{name}.gz"))
        };
        let bytes = std::fs::read(&path).with_context(|| {
            format!(
                "cannot read {}; give the folder of the traces with --traces",
                path.display()
            )
        })?;
        let mut text = String::new();
        if path.extension().is_some_and(|extension| extension == "gz") {
            GzDecoder::new(bytes.as_slice()).read_to_string(&mut text)
        } else {
            bytes.as_slice().read_to_string(&mut text)
        }
        .with_context(|| format!("{} is no text, or is cut off", path.display()))?;
        let mut lines = text.lines().map(ToOwned::to_owned);
        let head = lines.next().unwrap_or_default();
        Ok(Self {
            path,
            columns: head
                .split(',')
                .enumerate()
                .map(|(at, name)| (name.to_owned(), at))
                .collect(),
            lines: lines.collect(),
        })
    }

    fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        let filled = |(_, line): &(usize, &String)| !line.trim().is_empty();
        self.lines
            .iter()
            .enumerate()
            .filter(filled)
            .map(|(at, line)| Row {
                table: self,
                // the head is line 1
                line: at + 2,
                fields: line.split(',').collect(),
            })
    }
}

impl Row<'_> {
    fn optional(&self, column: &str) -> &str {
        let at = self.table.columns.get(column);
        at.and_then(|at| self.fields.get(*at))
            .copied()
            .unwrap_or_default()
    }

    fn text(&self, column: &str) -> Result<&str> {
        match self.optional(column) {
            "" => bail!(self.wrong(&format!("the column {column} is missing or empty"))),
            text => Ok(text),
        }
    }

    fn number<N: std::str::FromStr>(&self, column: &str) -> Result<N> {
        let text = self.text(column)?;
        let wrong = || self.wrong(&format!("{column} is {text:?}, not a whole number"));
        text.parse().map_err(|_| anyhow::anyhow!(wrong()))
    }

    fn wrong(&self, what: &str) -> String {
        format!("{}, line {}: {what}", self.table.path.display(), self.line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_is_the_trace_of_the_paper() {
        let folder = folder(None);
        let cluster = nodes(&folder).unwrap();
        assert_eq!(cluster.rooms.len(), 1_213);
        assert_eq!(cluster.capacity().iter().sum::<u64>(), 6_212_000);
        let total = |list: &str| {
            let pods = pods(&folder, list, &cluster.models).unwrap();
            (pods.len(), pods.iter().map(Ask::gpu_milli).sum::<u64>())
        };
        assert_eq!(total("default"), (8_152, 6_086_800));
        assert_eq!(total("gpushare100"), (8_152, 3_952_670));
        assert_eq!(total("multigpu50"), (9_061, 11_358_800));
        let pinned = pods(&folder, "gpuspec33", &cluster.models).unwrap();
        assert_eq!(pinned.iter().filter(|ask| ask.models != 0).count(), 2_388);
        for list in LISTS {
            assert!(
                !pods(&folder, list, &cluster.models).unwrap().is_empty(),
                "{list}"
            );
        }
    }

    #[test]
    fn a_bad_row_is_named_by_file_and_line() {
        let folder = std::env::temp_dir().join(format!("migpool-sim-trace-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let refused = |body: &str| {
            let head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n";
            std::fs::write(
                folder.join("openb_pod_list_bad.csv"),
                format!("{head}p0,1,1,0,0,\n{body}\n"),
            )
            .unwrap();
            format!("{:#}", pods(&folder, "bad", &["T4".to_owned()]).unwrap_err())
        };
        assert!(
            refused("p1,many,1,1,1000,").contains("openb_pod_list_bad.csv, line 3: cpu_milli is \"many\"")
        );
        assert!(refused("p1,1,1,1,1000,V9").contains("line 3: no node has the GPU model \"V9\""));
        assert!(refused("p1,1,1,2,500,").contains("line 3: gpu_milli is 1 to 1000"));
        assert!(refused("p1,1").contains("line 3: the column num_gpu is missing"));
        let missing = format!("{:#}", nodes(&folder).unwrap_err());
        assert!(missing.contains("--traces"), "{missing}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
