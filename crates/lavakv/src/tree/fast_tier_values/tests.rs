use super::*;
use datadriven::TestCase;
use std::error::Error;

fn run(case: &mut TestCase) -> Result<String, Box<dyn Error>> {
    let out = match &*case.directive {
        "rank" => {
            let is_fresh = case.take_flag("fresh")?;
            let options = Options::default().expert(|expert| {
                expert.fast_tier_values_bytes_max = 1 << 30;
                expert.fast_tier_values_flushed = is_fresh;
            });
            let [flushed, collected] =
                [true, false].map(|is_flushed| rank(&options, VsstClass::Hot, is_flushed));
            format!("flushed: {flushed:?}, collected: {collected:?}\n")
        }
        "excess" => {
            let (bytes, lasting_bytes) = (case.take_arg("bytes")?, case.take_arg("lasting")?);
            let excess = excess_bytes(case.take_arg("room")?, &SpeedBytes { bytes, lasting_bytes });
            format!("{excess} B go down\n")
        }
        other => return Err(format!("no command is called {other}").into()),
    };
    case.expect_empty()?;
    Ok(out)
}

#[test]
fn scripts() {
    datadriven::walk("src/tree/fast_tier_values/scripts", |file| file.run(run));
}
