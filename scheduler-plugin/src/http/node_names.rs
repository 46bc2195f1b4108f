//! The names of the nodes that kube-scheduler leaves to choose from. A body names up to thousands, and most are
//! never looked at one by one, so they are kept as one text: two allocations instead of one for each name.

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// Names in the order in which they were sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeNames {
    text: String,
    /// Where each name ends in the text.
    ends: Vec<usize>,
}

/// Questions after which a set is made: the first few candidates are nearly always offered.
const SCANS: usize = 4;

/// Answers whether a name is among those offered: by a scan at first, by a set when it is asked again and again.
pub struct Offered<'a> {
    names: &'a NodeNames,
    scans: usize,
    set: HashSet<&'a str>,
}

impl NodeNames {
    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The name, where there is just one.
    #[must_use]
    pub fn only(&self) -> Option<&str> {
        (self.len() == 1).then_some(self.text.as_str())
    }

    /// One by one.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts
            .zip(&self.ends)
            .map(|(start, end)| &self.text[*start..*end])
    }

    /// Whether a name is among them.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.iter().any(|one| one == name)
    }

    /// For many questions of that kind.
    #[must_use]
    pub fn offered(&self) -> Offered<'_> {
        Offered {
            names: self,
            scans: 0,
            set: HashSet::new(),
        }
    }

    fn push(&mut self, name: &str) {
        self.text.push_str(name);
        self.ends.push(self.text.len());
    }
}

impl Offered<'_> {
    /// Whether a name is among them.
    pub fn contains(&mut self, name: &str) -> bool {
        self.scans += 1;
        if self.scans <= SCANS {
            return self.names.contains(name);
        }
        if self.set.is_empty() {
            self.set = self.names.iter().collect();
        }
        self.set.contains(name)
    }
}

impl<S: AsRef<str>> FromIterator<S> for NodeNames {
    fn from_iter<T: IntoIterator<Item = S>>(names: T) -> Self {
        let mut all = Self::default();
        for name in names {
            all.push(name.as_ref());
        }
        all
    }
}

impl Serialize for NodeNames {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for NodeNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Reader(Self::default()))
    }
}

/// Reads the list, one name after the other, into one text.
struct Reader(NodeNames);

/// Reads one name.
struct One<'a>(&'a mut NodeNames);

impl<'de> Visitor<'de> for Reader {
    type Value = NodeNames;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of node names")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut names: A) -> Result<NodeNames, A::Error> {
        while names.next_element_seed(One(&mut self.0))?.is_some() {}
        Ok(self.0)
    }
}

impl<'de> DeserializeSeed<'de> for One<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for One<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a node name")
    }

    fn visit_str<E>(self, name: &str) -> Result<(), E> {
        self.0.push(name);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written_in_order() {
        for text in [
            r#"[]"#,
            r#"["a"]"#,
            r#"["node-2","node-1","node-10"]"#,
            r#"["\u00e4\"b",""]"#,
        ] {
            let names: NodeNames = serde_json::from_str(text).unwrap();
            let plain: Vec<String> = serde_json::from_str(text).unwrap();
            assert_eq!(names.iter().collect::<Vec<_>>(), plain);
            assert_eq!(names, plain.iter().collect());
            assert_eq!(
                serde_json::to_value(&names).unwrap(),
                serde_json::to_value(&plain).unwrap()
            );
        }
    }

    #[test]
    fn what_is_not_a_list_of_names_is_refused() {
        for text in [r#"{}"#, r#""a""#, r#"[1]"#, r#"[null]"#, r#"["a""#] {
            assert!(serde_json::from_str::<NodeNames>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_name_is_found_whole_or_not_at_all() {
        let names: NodeNames = ["node-1", "node-10", "x"].into_iter().collect();
        let mut offered = names.offered();
        for _ in 0..3 {
            for (name, there) in [
                ("node-1", true),
                ("node-10", true),
                ("node", false),
                ("1x", false),
                ("", false),
            ] {
                assert_eq!(names.contains(name), there, "{name}");
                assert_eq!(offered.contains(name), there, "{name}");
            }
        }
    }
}
