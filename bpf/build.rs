//! Compiles the crate's own BPF program and those of its tests, once for each map type of the tables.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{
    env,
    process::{Command, exit},
};

use libbpf_cargo::SkeletonBuilder;

/// Source, whether the map type is an array, object.
const OBJECTS: [(&str, bool, &str); 9] = [
    ("bpf/pages.bpf.c", false, "pages"),
    ("tests/programs/asleep.bpf.c", false, "asleep_arena"),
    ("tests/programs/asleep.bpf.c", true, "asleep_array"),
    ("tests/programs/deferred.bpf.c", false, "deferred_arena"),
    ("tests/programs/deferred.bpf.c", true, "deferred_array"),
    ("tests/programs/load.bpf.c", false, "load_arena"),
    ("tests/programs/load.bpf.c", true, "load_array"),
    ("tests/programs/lookups.bpf.c", false, "lookups_arena"),
    ("tests/programs/lookups.bpf.c", true, "lookups_array"),
];

fn main() {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    println!("cargo::rerun-if-env-changed=CLANG");
    for source in ["bpf", "tests/programs", "../lpm/include/trieline"] {
        println!("cargo::rerun-if-changed={source}");
    }
    // For the record of what the tests' programs become.
    println!("cargo::rustc-env=TRIELINE_CLANG={}", version());
    for (source, is_array, object) in OBJECTS {
        if let Err(error) = compile(&here, source, is_array, &out.join(format!("{object}.bpf.o"))) {
            println!("cargo::error={source}: {}", error.replace('\n', " | "));
            eprintln!(
                "{source}: {error}\nclang 18 or newer is needed (Debian: clang-19); CLANG names another"
            );
            exit(1);
        }
    }
}

fn compile(here: &Path, source: &str, is_array: bool, object: &Path) -> Result<(), String> {
    let mut args: Vec<OsString> =
        ["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-fno-ident"].map(OsString::from).into();
    // Paths of the building machine do not belong in the object.
    args.push(format!("-ffile-prefix-map={}=.", here.display()).into());
    args.extend(
        (if is_array { ["-mcpu=v3", "-DTL_ARRAY"] } else { ["-mcpu=v4", "-DTL_ARENA"] }).map(OsString::from),
    );
    // Where Debian has <asm/types.h>.
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    args.push(format!("-I/usr/include/{arch}-linux-gnu").into());
    args.extend(["-I".into(), here.join("../lpm/include").into_os_string()]);
    SkeletonBuilder::new()
        .source(here.join(source))
        .obj(object)
        .clang(clang())
        .clang_args(args)
        .build()
        .map_err(|error| format!("{error:#}"))
}

fn clang() -> OsString {
    env::var_os("CLANG").unwrap_or_else(|| "clang-19".into())
}

/// `clang 19`
fn version() -> String {
    let output =
        Command::new(clang()).arg("-dumpversion").output().map(|output| output.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&output);
    format!("clang {}", text.split('.').next().unwrap_or_default().trim())
}
