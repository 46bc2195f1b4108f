//! Objects of the API server, each turned into the part of the books that it tells. Pure functions, one file a
//! kind; [`feed`] carries them from the watches to the index.

pub mod endpoint;
pub mod feed;
pub mod gpu_nodes;
pub mod gpu_pools;
pub mod nodes;
pub mod nominated;
pub mod pods;
pub mod rules;
