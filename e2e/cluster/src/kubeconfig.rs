//! kubeconfig files: one for the administrator, one for each component.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::plan::Plan;

/// Writes a kubeconfig that uses the named certificate of the plan.
pub fn write(plan: &Plan, certificate: &str, target: &Path) -> Result<()> {
    fs::write(target, render(plan, certificate)).with_context(|| format!("write {}", target.display()))
}

fn render(plan: &Plan, certificate: &str) -> String {
    let quoted = |file: String| format!("{:?}", plan.pki_file(&file).display().to_string());
    format!(
        "apiVersion: v1\n\
         kind: Config\n\
         clusters:\n\
         - name: migpool\n\
         \x20 cluster:\n\
         \x20   server: {url}\n\
         \x20   certificate-authority: {authority}\n\
         users:\n\
         - name: {certificate}\n\
         \x20 user:\n\
         \x20   client-certificate: {crt}\n\
         \x20   client-key: {key}\n\
         contexts:\n\
         - name: migpool\n\
         \x20 context:\n\
         \x20   cluster: migpool\n\
         \x20   user: {certificate}\n\
         current-context: migpool\n",
        url = plan.api_url(),
        authority = quoted("ca.crt".to_owned()),
        crt = quoted(format!("{certificate}.crt")),
        key = quoted(format!("{certificate}.key")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Options;

    #[test]
    fn paths_are_absolute_and_the_server_is_the_planned_one() {
        let plan = Plan::new(Path::new("/lab one"), &Options::default()).unwrap();
        let text = render(&plan, "admin");
        assert!(text.contains("    server: https://10.99.0.1:6443\n"), "{text}");
        assert!(
            text.contains("    client-key: \"/lab one/pki/admin.key\"\n"),
            "{text}"
        );
    }
}
