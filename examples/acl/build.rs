//! Compiles the program for both map types of the tables; the loader takes the one that they are in.

use std::env::{consts::ARCH, var};

use libbpf_cargo::SkeletonBuilder;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=acl.bpf.c");
    println!("cargo::rerun-if-changed=../../lpm/include");
    for (map_type, define, cpu) in [("arena", "-DTL_ARENA", "-mcpu=v4"), ("array", "-DTL_ARRAY", "-mcpu=v3")]
    {
        SkeletonBuilder::new()
            .source("acl.bpf.c")
            .obj(format!("{}/acl.{map_type}.bpf.o", var("OUT_DIR")?))
            .clang(var("CLANG").unwrap_or_else(|_| "clang-19".into()))
            .clang_args([define, cpu, "-I../../lpm/include", &format!("-I/usr/include/{ARCH}-linux-gnu")])
            .build()
            .map_err(|error| format!("{error:#}"))?;
    }
    Ok(())
}
