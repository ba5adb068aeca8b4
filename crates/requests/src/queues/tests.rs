use super::*;
use datadriven::TestCase;
use std::error::Error;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn class_of(name: &str) -> OperationClass {
    OperationClass::ALL
        .into_iter()
        .find(|class| format!("{class:?}") == name)
        .unwrap_or_else(|| panic!("no class is {name}"))
}

fn shown(classes: &[OperationClass]) -> String {
    let mut runs: Vec<(OperationClass, usize)> = Vec::new();
    for class in classes {
        match runs.last_mut() {
            Some(run) if run.0 == *class => run.1 += 1,
            _ => runs.push((*class, 1)),
        }
    }
    let run = |(class, count): &(OperationClass, usize)| match count {
        1 => format!("{class:?}"),
        count => format!("{count} {class:?}"),
    };
    if runs.is_empty() {
        "nothing\n".into()
    } else {
        runs.iter().map(run).collect::<Vec<_>>().join(", ") + "\n"
    }
}

fn run(queues: &mut ClassQueues<OperationClass>, case: &mut TestCase) -> Outcome<String> {
    let out = match &*case.directive {
        "queues" => {
            *queues = ClassQueues::of_threads(case.take_arg("threads")?);
            for class in OperationClass::ALL {
                let count = case.try_take_arg(&format!("{class:?}"))?.unwrap_or(0);
                (0..count).for_each(|_| queues.push(class, class));
            }
            String::new()
        }
        "push" => {
            let class = class_of(&case.take_arg::<String>("class")?);
            queues.push(class, class);
            String::new()
        }
        // One thread serves a number of operations, each of which takes 20 us.
        "turns" => {
            let mut done = Vec::new();
            for _ in 0..case.take_arg("count")? {
                let Some((class, _)) = queues.serve() else { break };
                queues.served(class, COST_NS_FIRST);
                done.push(class);
            }
            shown(&done)
        }
        // Threads that come and stay at it.
        "serve" => {
            let threads = case.try_take_arg("threads")?.unwrap_or(1);
            let served: Vec<OperationClass> =
                (0..threads).filter_map(|_| queues.serve()).map(|(class, _)| class).collect();
            shown(&served)
        }
        "served" => {
            let (class, ns) = (class_of(&case.take_arg::<String>("class")?), case.take_arg("ns")?);
            (0..case.try_take_arg("times")?.unwrap_or(1)).for_each(|_| queues.served(class, ns));
            String::new()
        }
        "has-next" => format!("{}\n", queues.has_next()),
        "remove" => {
            let removed = queues.remove(case.take_arg("nth")?);
            format!(
                "{}, {} left\n",
                removed.map_or("nothing".into(), |class| format!("{class:?}")),
                queues.len()
            )
        }
        "drain" => shown(&queues.drain()),
        other => return Err(format!("no command is called {other}").into()),
    };
    case.expect_empty()?;
    Ok(out)
}

#[test]
fn scripts() {
    datadriven::walk("src/queues/scripts", |file| {
        let mut queues = ClassQueues::of_threads(1);
        file.run(|case| run(&mut queues, case));
    });
}
