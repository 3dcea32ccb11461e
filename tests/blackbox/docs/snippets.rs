//! The C that pages show: it compiles as it stands, with the headers of this tree.

use super::page::{Block, blocks, root};
use std::fs;
use trieline_testbed::command::run_with;
use trieline_testbed::skip;

/// The `c` blocks of a page, without and with their includes: those stand before any function.
fn snippets(page: &str) -> Vec<(Block, String, String)> {
    let text = fs::read_to_string(root().join(page)).expect("the page can be read");
    let of_c = blocks(&text).into_iter().filter(|block| block.language == "c");
    let cut = |block: Block| {
        let (includes, code): (Vec<_>, Vec<_>) = block.lines.iter().partition(|line| line.starts_with('#'));
        let text = |lines: Vec<&String>| lines.into_iter().map(|line| format!("{line}\n")).collect();
        let (includes, code) = (text(includes), text(code));
        (block, includes, code)
    };
    of_c.map(cut).collect()
}

/// Compiles each block as the body of a function.
fn compile(page: &str, compiler: &str, options: &[&str], before: &str, function: (&str, &str)) {
    let snippets = snippets(page);
    assert!(!snippets.is_empty(), "{page} has no C");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("snippet.c").display().to_string();
    let includes = ["lpm/include", "capi/include"].map(|path| format!("-I{}", root().join(path).display()));
    for (block, headers, code) in snippets {
        // The compiler names the line of the page.
        let text = format!(
            "{before}\n{headers}\n{}\n#line {} \"{page}\"\n{code}\n{}\n",
            function.0,
            block.line + 1 + headers.lines().count(),
            function.1
        );
        fs::write(&file, text).expect("the file can be written");
        let mut words = vec!["-Wall", "-Werror", "-Wno-unused-variable", "-c", "-o", "/dev/null"];
        words.extend(options);
        words.extend(includes.iter().map(String::as_str));
        words.push(&file);
        run_with(compiler, &words, "").ok();
    }
}

fn has_libbpf() -> bool {
    let found = fs::exists("/usr/include/bpf/libbpf.h").unwrap_or(false);
    if !found {
        skip("needs libbpf-dev");
    }
    found
}

#[test]
fn the_lookup_in_a_bpf_program_compiles() {
    if !has_libbpf() {
        return;
    }
    let machine = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    for (map_type, cpu) in [("-DTL_ARENA", "-mcpu=v4"), ("-DTL_ARRAY", "-mcpu=v3")] {
        compile(
            "docs/tables.md",
            "clang-19",
            &["-target", "bpf", "-g", "-O2", map_type, cpu, &machine],
            "#include <linux/bpf.h>\n#include <linux/ip.h>\n#include <bpf/bpf_endian.h>",
            ("__u32 found(struct iphdr *ip);\n__u32 found(struct iphdr *ip)\n{", "return value;\n}"),
        );
    }
}

#[test]
fn the_loader_in_c_compiles() {
    if has_libbpf() {
        compile(
            "capi/README.md",
            "cc",
            &["-O2"],
            "#include <err.h>",
            ("void load(void);\nvoid load(void)\n{", "}"),
        );
    }
}
