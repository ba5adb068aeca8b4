use super::*;
use datadriven::TestCase;
use std::error::Error as StdError;

/// Parses a report: `log a lacks 3-5`, `log a may lack 6-6`, `operations lost, may come back`,
/// `operations lost`.
fn report(input: &str) -> RepairReport {
    let mut report = RepairReport::default();
    for line in input.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["log", name, .., lsns] => {
                let (first, last) = lsns.split_once('-').unwrap();
                let (first, last) = (first.parse().unwrap(), last.parse().unwrap());
                let gap = RepairGap { first, last, is_certain: words[2] == "lacks" };
                match report.logs.iter_mut().find(|log| log.name == name) {
                    Some(log) => log.gaps.push(gap),
                    None => {
                        let gaps = vec![gap];
                        report.logs.push(RepairedLog { name: name.into(), gaps, ..RepairedLog::default() });
                    }
                }
            }
            ["operations", ..] => {
                let may_come_back = line.ends_with("may come back");
                let (file, sequences) = ("f".into(), (1, None));
                report.lost_batches.push(LostBatches { file, offset: None, sequences, may_come_back });
            }
            _ => panic!("{line} is no part of a report"),
        }
    }
    report
}

fn run(report_of: &mut RepairReport, case: &mut TestCase) -> Result<String, Box<dyn StdError>> {
    let out = match &*case.directive {
        "report" => {
            *report_of = report(&case.input);
            let (losses, unknowns) = (report_of.losses(), report_of.unknowns());
            format!("losses {losses}, unknowns {unknowns}; lossless: {}\n", report_of.is_lossless())
        }
        "outcome" => {
            let log: String = case.take_arg("log")?;
            let outcome = |lsn: Lsn| match report_of.outcome(&log, lsn) {
                RecordOutcome::NotLost => format!("{lsn}: not lost\n"),
                RecordOutcome::Lost => format!("{lsn}: lost\n"),
                RecordOutcome::Unknown(why) => format!("{lsn}: unknown, since {why}\n"),
            };
            case.take_args("lsns")?.into_iter().map(outcome).collect()
        }
        other => return Err(format!("no command is called {other}").into()),
    };
    case.expect_empty()?;
    Ok(out)
}

#[test]
fn scripts() {
    datadriven::walk("src/repair/report/scripts", |file| {
        let mut report = RepairReport::default();
        file.run(|case| run(&mut report, case));
    });
}
