use super::*;
use datadriven::TestCase;
use std::error::Error;

fn run(demand: &mut ScanCost, case: &mut TestCase) -> Result<String, Box<dyn Error>> {
    let mut out = String::new();
    match &*case.directive {
        "new" => *demand = ScanCost::default(),
        "scanned" => {
            let (read, needed) = (case.take_arg("reads")?, case.take_arg("in-order")?);
            demand.scanned(read, needed, case.take_arg("gap")?);
        }
        "written" => demand.written(case.take_arg("bytes")?),
        "spent" => {
            let (lost, taken) =
                (case.try_take_arg("lost")?.unwrap_or(0), case.try_take_arg("taken")?.unwrap_or(0));
            demand.spent(Spent { lost, taken, all: case.try_take_arg("of")?.unwrap_or(0) });
        }
        "lost" => out = format!("{} B, {} B beyond writes\n", demand.bytes(), demand.beyond_writes()),
        "disordered" => {
            let of = |all: u64| format!("{} B of {all}\n", demand.disordered(all));
            out = case.take_args("of")?.into_iter().map(of).collect();
        }
        other => return Err(format!("no command is called {other}").into()),
    }
    case.expect_empty()?;
    Ok(out)
}

#[test]
fn scripts() {
    datadriven::walk("src/tree/scan_cost/scripts", |file| {
        let mut demand = ScanCost::default();
        file.run(|case| run(&mut demand, case));
    });
}
