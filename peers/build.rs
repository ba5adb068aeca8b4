//! The program finds the shared library that `./setup` put beside it, wherever the checkout lies.

fn main() {
    let here = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo:rustc-link-arg=-Wl,-rpath,{here}/.deps");
    println!("cargo:rerun-if-changed=build.rs");
}
