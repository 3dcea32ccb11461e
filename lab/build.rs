//! Compiles the lab's BPF programs; the ones that look tables up once for each map type of the image.

use std::{env, path::PathBuf, process::Command};

use libbpf_cargo::SkeletonBuilder;

fn main() {
    provenance();
    let out = PathBuf::from(env::var("OUT_DIR").unwrap_or_default());
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang-19".into());
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-changed=../lpm/include");

    let compile = |source: &str, object: &str, args: &[&str]| {
        let mut all = vec!["-I../lpm/include", "-Wall", "-Werror", "-fdebug-compilation-dir=."];
        all.extend(args);
        let built = SkeletonBuilder::new()
            .source(format!("bpf/{source}.bpf.c"))
            .obj(out.join(format!("{object}.bpf.o")))
            .clang(&clang)
            .clang_args(&all)
            .build();
        // The skeleton is wanted for the Rust types of intf.h alone.
        let skeleton = out.join(format!("{object}.skel.rs"));
        let generated = built.and_then(|()| {
            SkeletonBuilder::new().obj(out.join(format!("{object}.bpf.o"))).generate(skeleton)
        });
        if let Err(error) = generated {
            eprintln!("bpf/{source}.bpf.c does not compile with {clang}: {error:#}");
            eprintln!("clang 19 or newer is needed (Debian: clang-19); CLANG names another one");
            std::process::exit(1);
        }
    };
    compile("generator", "generator", &["-mcpu=v3"]);
    compile("traffic", "traffic", &["-mcpu=v3"]);
    compile("sinks", "sinks", &["-mcpu=v3"]);
    compile("redirects", "redirects", &["-mcpu=v3", "-D__TARGET_ARCH_x86"]);
    compile("fib", "fib", &["-mcpu=v3"]);
    compile("xdp_fib", "xdp_fib", &["-mcpu=v3"]);
    compile("flows", "flows", &["-mcpu=v3"]);
    compile("queues", "queues", &["-mcpu=v3"]);
    compile("rss", "rss", &["-mcpu=v3"]);
    compile("livelock", "livelock", &["-mcpu=v3"]);
    compile("trace", "trace", &["-mcpu=v3", "-D__TARGET_ARCH_x86"]);
    compile("tables", "tables_arena", &["-mcpu=v4", "-DTL_ARENA"]);
    compile("tables", "tables_array", &["-mcpu=v3", "-DTL_ARRAY"]);
    compile("tables", "tables_rival", &["-mcpu=v3", "-DLAB_LPM_TRIE"]);
}

/// Compilers and commit, for the machine part of every result.
fn provenance() {
    let first_line = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).output().ok().filter(|o| o.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned())
    };
    let unknown = || "unknown".to_owned();
    let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang-19".into());
    let rustc = first_line(&rustc, &["--version"]).unwrap_or_else(unknown);
    let clang = first_line(&clang, &["--version"]).unwrap_or_else(unknown);
    println!("cargo:rustc-env=LAB_COMPILERS={rustc}; {clang}");
    // A source archive has no repository; then the version says enough.
    let git = first_line("git", &["describe", "--always", "--dirty", "--abbrev=12"]).unwrap_or_else(unknown);
    // Changes that no commit has: two builds with other changes must not have one name.
    let changes = || first_line("sh", &["-c", "git diff HEAD | git hash-object --stdin"]);
    let git = match git.ends_with("-dirty").then(changes).flatten() {
        Some(hash) => format!("{git}-{}", &hash[..12]),
        None => git,
    };
    println!("cargo:rustc-env=LAB_GIT={git}");
    println!("cargo:rerun-if-changed=../.git/HEAD");
    println!("cargo:rerun-if-changed=../.git/refs/heads");
    // An edit of what is measured makes the commit "-dirty".
    for code in ["src", "../lpm/src", "../bpf/src", "../router/src", "../trace/src"] {
        println!("cargo:rerun-if-changed={code}");
    }
}
