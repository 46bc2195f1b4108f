//! Prints our custom resource definitions as YAML, for `hack/generate.sh`: all of them, the one that is named
//! (`crds gpunodes.migpool.dev`), or only their names (`crds --names`).

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let wanted = std::env::args().nth(1);
    for crd in shared::api::crds() {
        let name = crd.metadata.name.clone().unwrap_or_default();
        match wanted.as_deref() {
            Some("--names") => println!("{name}"),
            Some(one) if one != name => {}
            _ => print!("---\n{}", serde_saphyr::to_string(&crd)?),
        }
    }
    Ok(())
}
