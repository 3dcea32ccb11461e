//! The code of each lookup in the kernel: bytes of machine code and instructions that its verifier followed. They are held against the
//! record in `programs.txt`; 10 % more fails. TRIELINE_RECORD=1 makes a new record.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::fd::AsFd;
use std::path::Path;
use std::{env, fs};

use common::{map_types, open, tables};
use libbpf_rs::libbpf_sys::bpf_prog_info;
use trieline_bpf::sys::object_info;
use trieline_testbed::needs_root;

const RECORD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs.txt");

/// Kernel series and compiler that the record is of: others make other code.
fn toolchain() -> String {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let series: Vec<&str> = release.split('.').take(2).collect();
    format!(
        "# Linux {}, {}: program, map type, bytes of machine code, instructions verified",
        series.join("."),
        env!("TRIELINE_CLANG")
    )
}

/// Both numbers of every program, each loaded alone.
fn measure() -> BTreeMap<(String, String), [u32; 2]> {
    let mut measured = BTreeMap::new();
    for map_type in map_types() {
        let tables = tables(map_type, 1 << 20);
        let names: Vec<String> =
            open(map_type).progs_mut().map(|program| program.name().to_string_lossy().into_owned()).collect();
        for name in names {
            let mut object = open(map_type);
            for mut program in object.progs_mut() {
                let is_it = program.name().to_string_lossy() == name;
                program.set_autoload(is_it);
            }
            let object = tables.load(object).unwrap_or_else(|error| panic!("{name}: {error}"));
            let program = object.progs().find(|program| program.name().to_string_lossy() == name).unwrap();
            // SAFETY: the struct for programs.
            let info: bpf_prog_info = unsafe { object_info(program.as_fd()) }.unwrap();
            measured.insert((name, map_type.to_string()), [info.jited_prog_len, info.verified_insns]);
        }
    }
    measured
}

#[test]
fn code_stays_small() {
    needs_root!();
    let measured = measure();
    if env::var_os("TRIELINE_RECORD").is_some() {
        let mut text = toolchain() + "\n";
        for ((name, map_type), [jited, verified]) in &measured {
            writeln!(text, "{name} {map_type} {jited} {verified}").unwrap();
        }
        fs::write(RECORD, text).unwrap();
        return;
    }
    let text = fs::read_to_string(RECORD).unwrap();
    let mut lines = text.lines();
    if lines.next() != Some(&toolchain()) {
        trieline_testbed::skip(&format!(
            "code_stays_small: {} is not of {}",
            Path::new(RECORD).display(),
            toolchain()
        ));
        return;
    }
    let mut recorded = BTreeMap::new();
    for line in lines {
        let [name, map_type, jited, verified] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        recorded.insert(
            (name.into(), map_type.into()),
            [jited.parse().unwrap(), verified.parse::<u32>().unwrap()],
        );
    }
    let names = |of: &BTreeMap<(String, String), _>| of.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&measured), names(&recorded), "make a new record: TRIELINE_RECORD=1");
    for (program, is) in &measured {
        let was = recorded[program];
        println!("{program:?}: {is:?}, recorded {was:?}");
        for (is, was) in is.iter().zip(was) {
            assert!(u64::from(*is) * 10 <= u64::from(was) * 11, "{program:?} grew: {is}, recorded {was}");
        }
    }
}
