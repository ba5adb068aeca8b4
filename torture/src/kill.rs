use crate::runner::{Context, Outcome};
pub(crate) fn case(_: &Context, _seed: u64) -> Outcome {
    Outcome::default()
}
pub(crate) const CHILD: &str = "kill-child";
pub(crate) fn child(_: &std::path::Path, _: u64, _: u64) -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}
