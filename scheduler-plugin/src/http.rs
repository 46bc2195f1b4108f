//! What kube-scheduler asks, and the answers: filter, prioritize and bind.
//!
//! * [`wire`] - the types as they are spelled on the wire
//! * [`node_names`] - thousands of names in one piece
//! * [`pod_text`] - the pod in a body, read only where it is news
//! * [`body`] - reading a request, bounded
//! * [`router`] - paths, spans and metrics
//! * [`filter`], [`prioritize`] - pure answers from the index
//! * [`pace`] - holds kube-scheduler back while nominations are being written
//! * [`bind`] - picks the place, writes the Binding

pub mod bind;
pub mod body;
pub mod filter;
pub mod node_names;
pub mod pace;
pub mod pod_text;
pub mod prioritize;
pub mod router;
pub mod wire;
