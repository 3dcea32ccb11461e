//! Compiles the hooks and generates from their BTF the structs that Rust shares with them.

use std::path::{Path, PathBuf};
use std::{env, process::exit};

use libbpf_cargo::SkeletonBuilder;

fn main() {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang-19".into());
    println!("cargo::rerun-if-env-changed=CLANG");
    println!("cargo::rerun-if-changed=bpf");
    let mut args = ["-mcpu=v3", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-fno-ident"]
        .map(String::from)
        .to_vec();
    // Paths of the building machine do not belong in the object.
    args.push(format!("-ffile-prefix-map={}=.", here.display()));
    if env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64") {
        args.push("-DTR_STORES_IN_ORDER".into());
    }
    let object = out.join("trace.bpf.o");
    let build = |object: &Path, args: &[String]| {
        let mut builder = SkeletonBuilder::new();
        builder.source(here.join("bpf/trace.bpf.c")).obj(object).clang(&clang).clang_args(args).build()
    };
    let built = build(&object, &args).and_then(|()| {
        // The same hooks with most settings off (bpf/filter.bpf.h).
        args.push("-DTR_PLAIN".into());
        build(&out.join("plain.bpf.o"), &args)
    });
    // The skeleton is wanted for the types of intf.h alone.
    let made = built.and_then(|()| SkeletonBuilder::new().obj(&object).generate(out.join("trace.skel.rs")));
    if let Err(error) = made {
        println!("cargo::error=bpf/trace.bpf.c: {}", format!("{error:#}").replace('\n', " | "));
        eprintln!("{error:#}\nclang 18 or newer is needed (Debian: clang-19); CLANG names another");
        exit(1);
    }
}
