use super::*;
use datadriven::TestCase;
use std::error::Error;

/// Parses the options of a script: no compression, tables of 1 MiB, three levels, optionally a
/// policy and a merge operator.
fn options(case: &mut TestCase) -> Result<FamilyOptions, Box<dyn Error>> {
    let mut policy = PolicyChoice::default();
    if let Some(name) = case.try_take_arg("policy")? {
        policy.name = name;
        policy.version = case.try_take_arg("policy-version")?.unwrap_or(policy.version);
        policy.parameters = case.try_take_args("parameters")?.unwrap_or_default();
    }
    let merge_operator = case.try_take_arg::<String>("merge-operator")?.map(MergeChoice::custom);
    let prefix = case
        .try_take_arg::<u64>("prefix-code")?
        .map(|code| KeyPrefix::from_code(code).ok_or("no such prefix"));
    let (prefix, compression) = (prefix.transpose()?, Compression::None);
    let levels = case.try_take_arg("levels")?.unwrap_or(3);
    let own = FamilyOptions { compression, prefix, policy, merge_operator, ..Default::default() };
    Ok(own.expert(|expert| (expert.file_bytes, expert.levels) = (1 << 20, levels)))
}

/// Checks that encoded options round-trip, and that each truncation is refused. Prints the first
/// byte, and the bytes of policy and merge operator.
fn round_trip(case: &mut TestCase) -> Result<String, Box<dyn Error>> {
    let options = options(case)?;
    let bytes = options.encode();
    assert_eq!(FamilyOptions::decode(&bytes)?, options.clone().derived());
    assert!((0..bytes.len()).all(|cut| FamilyOptions::decode(&bytes[..cut]).is_err()));
    let without =
        FamilyOptions { policy: PolicyChoice::default(), merge_operator: None, prefix: None, ..options };
    let without = without.encode();
    assert_eq!(bytes[1..without.len()], without[1..]);
    Ok(format!("kind {}, then \"{}\"\n", bytes[0], bytes[without.len()..].escape_ascii()))
}

/// Decodes options with a part that no release writes.
fn damaged(case: &mut TestCase) -> Result<String, Box<dyn Error>> {
    let (options, part) = (options(case)?, case.take_arg::<String>("part")?);
    let mut bytes = options.encode();
    // A name of one byte, behind its length; a version and no parameters.
    let name = bytes.len() - 3;
    match &*part {
        "kind" => bytes[0] += case.take_arg::<u8>("more-by")?,
        "compression" => bytes[1] = case.take_arg("is")?,
        "value-placement" => bytes[name - 2] = case.take_arg("is")?,
        "policy-name" => {
            assert_eq!(bytes[name - 1], 1);
            bytes[name] = case.take_arg("is")?;
        }
        "operator-name" | "prefix" => {
            let last = bytes.len() - 1;
            bytes[last] = case.take_arg("is")?;
        }
        "policy-version" => {
            bytes.truncate(name + 1);
            bytes.extend([0xff, 0xff, 0xff, 0xff, 0x7f, 0]);
        }
        "none" => bytes = options.derived().encode(),
        other => return Err(format!("options have no {other}").into()),
    }
    Ok(FamilyOptions::decode(&bytes).map_or_else(|e| format!("{e}\n"), |_| "accepted\n".into()))
}

fn run(case: &mut TestCase) -> Result<String, Box<dyn Error>> {
    let out = match &*case.directive {
        "round-trip" => round_trip(case)?,
        "damaged" => damaged(case)?,
        other => return Err(format!("no command is called {other}").into()),
    };
    case.expect_empty()?;
    Ok(out)
}

#[test]
fn scripts() {
    datadriven::walk("src/context/family_options/scripts", |file| file.run(run));
}
