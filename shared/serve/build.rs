//! Compiles the interface by which agents tell their load; needs no `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = "proto/usage.proto";
    println!("cargo:rerun-if-changed={file}");
    // both sides: the agent serves what the scheduler calls
    tonic_prost_build::configure().compile_fds(protox::compile([file], ["proto"])?)?;
    Ok(())
}
