use super::*;
use datadriven::TestCase;
use std::error::Error;

/// Decodes escapes of scripts for quotes, backslashes and newlines.
fn unescaped(text: &str) -> String {
    text.replace("\\n", "\n").replace("\\q", "\"").replace("\\b", "\\")
}

fn run(case: &mut TestCase) -> Result<String, Box<dyn Error>> {
    let lines = || case.input.lines();
    let number = |line: &str| -> Result<(String, u64), Box<dyn Error>> {
        let (field, value) = line.split_once(' ').ok_or("a field has a value")?;
        Ok((field.into(), value.parse()?))
    };
    Ok(match &*case.directive {
        "statistics" => {
            let statistic = |line| {
                let (field, value) = number(line)?;
                let (name, kind, value) = statistic(&field, value);
                Ok(format!("{field}: {name} {kind} {}\n", value.text()))
            };
            lines().map(statistic).collect::<Result<String, Box<dyn Error>>>()?
        }
        "of-family" => {
            let of_family = |line| {
                let (field, value) = number(line)?;
                Ok(format!("{field}: {}\n", of_family(&field, value).text()))
            };
            lines().map(of_family).collect::<Result<String, Box<dyn Error>>>()?
        }
        "help" => lines().map(|line| help_text(line) + "\n").collect(),
        // Prints a page with a gauge per line: its name, its help, and the values of its label
        // `name`, separated by `|`.
        "gauges" => {
            let mut page = Page { text: String::new(), store: "/a".to_owned() };
            for line in lines() {
                let words: Vec<String> = line.split('|').map(unescaped).collect();
                let samples =
                    words[2..].iter().map(|label| (vec![("name", &label[..])], MetricValue::Ratio(1.5)));
                page.gauges(&words[0], &words[1], samples.collect::<Vec<_>>());
            }
            page.text
        }
        other => return Err(format!("no command is called {other}").into()),
    })
}

#[test]
fn scripts() {
    datadriven::walk("src/admin/metrics/scripts", |file| file.run(run));
}
