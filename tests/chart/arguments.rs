//! What containers are started with.

use std::process::{Command, Output};

use super::{containers, documents, examples, list, repository, texts};

/// Has the program read `arguments`, and do no more. It stops at the first one that it does not know.
fn read(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(arguments)
        .arg("--help")
        .output()
        .unwrap()
}

#[test]
fn the_program_takes_the_arguments_of_the_chart() {
    for rendered in examples() {
        let arguments = texts(&rendered.picker()["args"]);

        let output = read(&arguments);

        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {arguments:?}\n{said}", rendered.name);
    }
}

#[test]
fn arguments_that_it_does_not_take_would_be_noticed() {
    assert!(!read(&["--pool-nam=x"]).status.success());
    assert!(!read(&["--grpc-port=http"]).status.success());
}

#[test]
fn the_program_takes_the_arguments_of_the_stand_in_servers() {
    let objects = documents(&repository("examples/kubernetes/model-servers.yaml"));
    let container = &containers(&objects[0])[0];

    let output = read(&texts(&container["args"]));

    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_port_of_a_container_is_the_one_that_the_program_is_told() {
    for rendered in examples() {
        let container = rendered.picker();
        for (flag, name) in [
            ("--grpc-port=", "grpc"),
            ("--grpc-health-port=", "grpc-health"),
            ("--metrics-port=", "metrics"),
        ] {
            let port = list(&container["ports"]).iter().find(|port| port["name"] == name);
            let port = &port.unwrap()["containerPort"];
            assert!(
                rendered.picker_has(&format!("{flag}{port}")),
                "{}: {flag}",
                rendered.name
            );
        }
    }
}
