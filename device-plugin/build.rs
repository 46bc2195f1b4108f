//! Compiles the kubelet's interfaces; needs no `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = ["proto/deviceplugin.proto", "proto/podresources.proto"];
    for file in files {
        println!("cargo:rerun-if-changed={file}");
    }
    // server and client sides of both: the tests play the kubelet
    tonic_prost_build::configure().compile_fds(protox::compile(files, ["proto"])?)?;
    Ok(())
}
