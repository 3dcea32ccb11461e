//! Gives the library its SONAME: programs go on with the version that they were linked with.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libtrieline.so.0");
}
