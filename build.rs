//! Makes Rust of the wire types in `proto/`. The engine alone needs none, and then nothing is made.

#[cfg(feature = "serve")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(
        [
            "envoy/service/ext_proc/v3/external_processor.proto",
            "grpc/health/v1/health.proto",
        ],
        ["proto"],
    )?;
    // Bodies and headers are slices of the message they came in. Maps are ordered, so that equal messages are equal
    // bytes.
    tonic_prost_build::configure()
        .bytes(".envoy")
        .btree_map(".")
        .build_transport(false)
        .compile_fds(files)?;
    Ok(())
}

#[cfg(not(feature = "serve"))]
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
}
