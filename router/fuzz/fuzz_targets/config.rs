//! Bytes as the configuration file: read or refused, with an error that names the file and, where it is not the file's encoding, a line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

#[path = "../../../cli/src"]
#[allow(dead_code, unused_imports, reason = "only what reads the file is used here")]
mod cli {
    pub mod config;
}

fn file(content: &[u8]) -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    let path = PATH.get_or_init(|| {
        let memory = PathBuf::from("/dev/shm");
        let directory = if memory.is_dir() { memory } else { std::env::temp_dir() };
        directory.join(format!("trieline-fuzz-config-{}", std::process::id()))
    });
    std::fs::write(path, content).expect("a temporary file can be written");
    path
}

fuzz_target!(|data: &[u8]| {
    let path = file(data);
    match cli::config::File::read(path) {
        Ok(file) => {
            let _ = (file.image(), file.config(Path::new("/")));
        }
        Err(error) => {
            let reported = format!("{error:#}");
            assert!(reported.contains(&path.display().to_string()), "{reported}");
            assert!(std::str::from_utf8(data).is_err() || reported.contains("line "), "{reported}");
        }
    }
});
