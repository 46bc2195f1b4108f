//! The objects in the API server, one file each. The two programs meet here and nowhere else: of a GpuNode the
//! scheduler writes the spec and the agent the status.

pub mod conditions;
pub mod gpu_node;
pub mod gpu_pool;

pub use gpu_node::{GpuNode, GpuNodeSpec, GpuNodeStatus};
pub use gpu_pool::{GpuPool, GpuPoolSpec, GpuPoolStatus};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

/// Every custom resource definition of ours, in the order they are installed.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut crds = vec![GpuNode::crd(), GpuPool::crd()];
    for version in crds.iter_mut().flat_map(|crd| &mut crd.spec.versions) {
        let schema = version
            .schema
            .as_mut()
            .and_then(|schema| schema.open_api_v3_schema.as_mut());
        schema.into_iter().for_each(known_formats);
    }
    crds
}

/// Removes the formats of unsigned numbers, which the API server does not know and warns of at every install. The
/// ranges beside them say the same.
fn known_formats(schema: &mut JSONSchemaProps) {
    if schema
        .format
        .as_deref()
        .is_some_and(|format| format.starts_with("uint"))
    {
        schema.format = None;
    }
    let properties = schema
        .properties
        .iter_mut()
        .flat_map(|properties| properties.values_mut());
    properties.for_each(known_formats);
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => known_formats(items),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(known_formats),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        known_formats(values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schemas_hold_only_formats_that_an_api_server_knows() {
        let text = serde_json::to_string(&crds()).unwrap();
        assert!(!text.contains("\"uint"), "{text}");
        assert!(text.contains("\"minimum\""), "the ranges are gone");
    }
}
