//! Compiles the XDP program once for each map type of the image and generates from its BTF what Rust shares with it.

use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

use libbpf_cargo::SkeletonBuilder;
use libbpf_rs::ObjectBuilder;
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Enum;

fn main() {
    if let Err(error) = build() {
        println!("cargo::error={}", error.to_string().replace('\n', " | "));
        eprintln!("{error}");
        exit(1);
    }
}

fn build() -> Result<(), Box<dyn std::error::Error>> {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let headers = here.join("../lpm/include");
    println!("cargo::rerun-if-env-changed=CLANG");
    println!("cargo::rerun-if-env-changed=TRIELINE_NEXT_BUILD");
    for folder in [&here.join("src"), &here.join("include"), &headers] {
        watch(folder)?;
    }
    let clang = clang()?;
    // An arena needs the address-space casts of -mcpu=v4; v3 is what Linux 6.1 takes.
    compile(&clang, &here, &headers, "v4", "TL_ARENA", &out.join("node_arena.bpf.o"))?;
    let array = out.join("node_array.bpf.o");
    compile(&clang, &here, &headers, "v3", "TL_ARRAY", &array)?;
    SkeletonBuilder::new().obj(&array).generate(out.join("node.skel.rs")).map_err(|e| format!("{e:#}"))?;
    println!("cargo::rustc-env=TRIELINE_NODE_OBJECT={}", array.display()); // for tests/layout.rs
    fs::write(out.join("verdicts.rs"), verdicts(&array)?)?;
    fs::write(out.join("defines.rs"), defines(&fs::read_to_string(here.join("src/xdp/intf.h"))?)?)?;
    fs::write(out.join("map_names.rs"), map_names(&array)?)?;
    // Programs apart from the packet's journey: the list of receive handlers, and the counts after redirect.
    let handlers = out.join("rx_handlers.bpf.o");
    compile_source(&clang, &here, "bypass/rx_handlers.bpf.c", vec!["-mcpu=v3".into()], &handlers)?;
    let drops = out.join("drops.bpf.o");
    compile_source(&clang, &here, "drops/drops.bpf.c", vec!["-mcpu=v3".into()], &drops)?;
    for object in [handlers, drops] {
        let skeleton = object.with_extension("").with_extension("skel.rs");
        SkeletonBuilder::new().obj(&object).generate(skeleton).map_err(|e| format!("{e:#}"))?;
    }
    fs::write(out.join("fates.rs"), fates(&out.join("drops.bpf.o"))?)?;
    Ok(())
}

/// The numbers that the header has as macros, which BTF does not know.
fn defines(header: &str) -> Result<String, Box<dyn std::error::Error>> {
    let mut constants = String::new();
    for line in header.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["#define", name, value, ..] = words[..] else { continue };
        let value = value.trim_end_matches('u');
        let number =
            value.strip_prefix("0x").map_or_else(|| value.parse(), |hex| u32::from_str_radix(hex, 16));
        if let Ok(number) = number {
            writeln!(constants, "pub const {name}: u32 = {number};")?;
        }
    }
    Ok(constants)
}

/// Builds again when a C file below the folder changes.
fn watch(folder: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            watch(&path)?;
        } else if path.extension().is_some_and(|extension| extension == "h" || extension == "c") {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    Ok(())
}

/// The compiler: `CLANG`, or Debian's clang-19. Debian 12's own clang 14 knows neither arenas nor `may_goto`.
fn clang() -> Result<PathBuf, String> {
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang-19".into());
    let version = Command::new(&clang).arg("--version").output().map_err(|e| {
        format!("cannot run `{clang}` ({e}): install it (apt-get install clang-19 llvm-19) or set CLANG")
    })?;
    let text = String::from_utf8_lossy(&version.stdout);
    let major =
        text.split("version ").nth(1).and_then(|v| v.split('.').next()).and_then(|v| v.parse::<u32>().ok());
    match major {
        Some(major) if major < 18 => {
            Err(format!("`{clang}` is clang {major}; BPF arenas need clang 18 or newer (set CLANG)"))
        }
        _ => Ok(clang.into()),
    }
}

/// The names of the maps that the object declares: a constant for each that is pinned, and the list of them. A map with
/// `scratch` in its name is a CPU's working memory and not pinned. One with a dot is a section, which has no declaration.
fn map_names(object: &Path) -> Result<String, Box<dyn std::error::Error>> {
    let object = ObjectBuilder::default().open_file(object)?;
    let names = object.maps().map(|map| map.name().to_string_lossy().into_owned());
    let mut names: Vec<_> = names.filter(|name| !name.contains('.') && !name.contains("scratch")).collect();
    names.sort();
    let mut rows = String::new();
    for name in &names {
        writeln!(rows, "pub(crate) const {}: &str = {name:?};", name.to_uppercase())?;
    }
    writeln!(rows, "/// The pinned maps that the XDP program declares.")?;
    writeln!(rows, "pub(crate) const DECLARED: [&str; {}] = {names:?};", names.len())?;
    Ok(rows)
}

fn compile(
    clang: &Path,
    here: &Path,
    headers: &Path,
    cpu: &str,
    map_type: &str,
    object: &Path,
) -> Result<(), String> {
    let include = here.join("include");
    // The build that comes after this one, as far as the test of upgrades is concerned: its program has one verdict more.
    let next = env::var("TRIELINE_NEXT_BUILD").ok().map(|tos| format!("-DTL_NEXT_BUILD={tos}"));
    let args = [format!("-mcpu={cpu}"), format!("-D{map_type}")].into_iter().chain(next).map(OsString::from);
    let folders = [headers, &include].into_iter().flat_map(|folder| ["-I".into(), folder.into()]);
    compile_source(clang, here, "xdp/node.bpf.c", args.chain(folders).collect(), object)
}

fn compile_source(
    clang: &Path,
    here: &Path,
    source: &str,
    more: Vec<OsString>,
    object: &Path,
) -> Result<(), String> {
    let mut args: Vec<OsString> =
        ["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-fno-ident"].map(OsString::from).into();
    // Paths of the building machine do not belong in the object.
    args.push(format!("-fdebug-prefix-map={}=.", here.display()).into());
    args.push(format!("-ffile-prefix-map={}=.", here.display()).into());
    args.extend(["-I".into(), here.join("src").into()]);
    args.extend(more);
    SkeletonBuilder::new()
        .source(here.join("src").join(source))
        .obj(object)
        .clang(clang)
        .clang_args(args)
        .build()
        .map_err(|e| format!("{e:#}"))
}

/// `enum tl_verdict` as a Rust table: the names that counters, metrics and JSON use.
fn verdicts(object: &Path) -> Result<String, Box<dyn std::error::Error>> {
    let btf = Btf::from_path(object)?;
    let verdict = btf.type_by_name::<Enum<'_>>("tl_verdict").ok_or("no enum tl_verdict in the BTF")?;
    let mut rows = String::new();
    let (mut count, mut seen) = (0, std::collections::HashSet::new());
    for member in verdict.iter() {
        let name = member.name.and_then(|n| n.to_str()).ok_or("a verdict without a name")?;
        if name == "TL_VERDICTS" {
            continue;
        }
        let rest = name.strip_prefix("TL_").ok_or_else(|| format!("{name} does not begin with TL_"))?;
        let (kind, reason) = rest.split_once('_').ok_or_else(|| format!("{name} has no reason"))?;
        let kind = match kind {
            "FORWARD" => "Forward",
            "PASS" => "Pass",
            "DROP" => "Drop",
            _ => return Err(format!("{name} is neither FORWARD nor PASS nor DROP").into()),
        };
        let reason = reason.to_lowercase();
        if !seen.insert(reason.clone()) {
            return Err(format!("two verdicts are named {reason}").into());
        }
        let number = member.value;
        writeln!(rows, "    Verdict {{ number: {number}, name: {reason:?}, kind: Kind::{kind} }},")?;
        count += 1;
    }
    Ok(format!(
        "/// Every verdict of the XDP program, in the order of its counters.\npub const VERDICTS: [Verdict; {count}] = [\n{rows}];\n"
    ))
}

/// `enum tl_fate` as a Rust table: the reasons of losses after redirect, as metrics and JSON name them.
fn fates(object: &Path) -> Result<String, Box<dyn std::error::Error>> {
    let btf = Btf::from_path(object)?;
    let fate = btf.type_by_name::<Enum<'_>>("tl_fate").ok_or("no enum tl_fate in the BTF")?;
    let mut rows = Vec::new();
    for member in fate.iter() {
        let name = member.name.and_then(|n| n.to_str()).ok_or("a fate without a name")?;
        if let Some(reason) = name.strip_prefix("TL_LOST_") {
            rows.push(format!("({}, {:?})", member.value, reason.to_lowercase()));
        }
    }
    Ok(format!(
        "/// The reasons for which packets are lost after redirect, each with the index of its counter.\nconst LOSSES: [(usize, &str); {}] = [{}];\n",
        rows.len(),
        rows.join(", ")
    ))
}
