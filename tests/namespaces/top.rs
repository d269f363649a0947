//! `ackbeat top` in a real terminal, over the API of a real sidecar beside a real host.

use std::process::{Command, Stdio};
use std::time::Duration;

use ackbeat_tests::client::{Client, ClientOptions};
use ackbeat_tests::journal::wait_until;
use ackbeat_tests::mux::{Host, HostOptions};
use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::sidecar::{Sidecar, SidecarOptions};
use ackbeat_tests::terminal::{PROMPT, Terminal};
use ackbeat_tests::{story, tools};
use anyhow::{Context as _, Result};
use nix::sys::signal::Signal;

const DEADLINE: Duration = Duration::from_secs(60);

/// A host whose clients are alive, with the sidecar beside it.
struct Pod {
    network: Network,
    host: Host,
    clients: Vec<Client>,
    sidecar: Sidecar,
    /// Holds the API's unix socket.
    folder: tempfile::TempDir,
}

impl Pod {
    fn start() -> Result<Self> {
        let network = Network::create()?;
        // It does not kill: what is seen stays.
        let options = HostOptions { kills: false, ..HostOptions::new(network.host_address(IpVersion::V4)) };
        let host = Host::start(Some(&network.host), options)?;
        let folder = tempfile::tempdir().context("making a folder failed")?;
        let socket = folder.path().join("api.sock").display().to_string();
        let options = SidecarOptions::port(host.address().port()).variable("ACKBEAT_API_SOCKET", socket);
        let sidecar = Sidecar::start(&network.host, &options)?;
        let clients = (0..3)
            .map(|_| Client::connect(Some(&network.client), ClientOptions::new(host.address())))
            .collect::<Result<Vec<_>>>()?;
        for client in &clients {
            host.wait_for_pongs(client.port(), 2, DEADLINE)?;
        }
        Ok(Self { network, host, clients, sidecar, folder })
    }

    fn terminal(&self, columns: u16, lines: u16) -> Result<Terminal> {
        Terminal::open(&self.network.host, columns, lines)
    }
}

/// The shell command that shows connections.
fn top(arguments: &str) -> Result<String> {
    Ok(format!("{} top {arguments}; echo code $?", tools::ackbeat()?.display()))
}

/// The line of the table that is about this client.
fn row(screen: &str, port: u16) -> Option<&str> {
    screen.lines().skip(4).find(|line| line.contains(&format!(":{port} ")))
}

/// The terminal is as it was before, and the shell has it back.
fn assert_restored(terminal: &Terminal, mode_before: &str, code: i32) -> Result<()> {
    let ended = format!("code {code}");
    terminal.wait_for("the exit code and the prompt", |screen| {
        screen.lines().any(|line| line.ends_with(&ended)) && screen.trim_end().ends_with(PROMPT)
    })?;
    assert_eq!(terminal.variable("alternate_on")?, "0", "the alternate screen is left");
    assert_eq!(terminal.variable("cursor_flag")?, "1", "the cursor is shown");
    assert_eq!(terminal.output_of("stty -a")?, mode_before, "the terminal's mode is the one before");
    Ok(())
}

#[test]
fn an_operator_finds_who_is_congested_and_leaves() -> Result<()> {
    let pod = Pod::start()?;
    let terminal = pod.terminal(80, 24)?;
    let mode = terminal.output_of("stty -a")?;
    terminal.enter("clear")?;
    terminal.enter(&top("--sort age_ms")?)?;

    let ports: Vec<u16> = pod.clients.iter().map(Client::port).collect();
    let screen = terminal.wait_for("every client, alive", |screen| {
        ports.iter().all(|port| row(screen, *port).is_some_and(|row| row.contains("alive")))
    })?;
    assert_eq!(terminal.variable("alternate_on")?, "1");
    assert!(screen.contains("live  mode ebpf  policy default"), "{screen}");
    assert!(screen.contains("showing 3 of 3, youngest connection first"), "{screen}");
    let order = |screen: &str| {
        let mut ports: Vec<(usize, u16)> = ports
            .iter()
            .filter_map(|port| {
                Some((screen.lines().position(|line| line.contains(&format!(":{port} ")))?, *port))
            })
            .collect();
        ports.sort_unstable();
        ports.into_iter().map(|(_, port)| port).collect::<Vec<_>>()
    };
    let youngest_first: Vec<u16> = ports.iter().rev().copied().collect();
    assert_eq!(order(&screen), youngest_first, "{screen}");
    terminal.type_text("r")?;
    let screen = terminal.wait_for("the other order", |screen| screen.contains("oldest connection first"))?;
    assert_eq!(order(&screen), ports, "{screen}");

    // A slow reader gets 28 MB: its Ping cannot pass them.
    let slow = story::burst(&pod.network, &pod.host, story::slow_reader(&pod.host))?;
    terminal.type_text("S")?;
    let screen = terminal.wait_for(
        "the slow reader on top, with its queue over time and its Ping behind it",
        |screen| {
            let row = screen.lines().nth(5).unwrap_or_default();
            // The column before the last tells how much its Ping waits behind.
            let before = row.split_whitespace().rev().nth(1).unwrap_or_default();
            row.contains(&format!(":{} ", slow.port()))
                && row.contains("congested")
                && row.contains('█')
                && before.ends_with(['K', 'M'])
        },
    )?;
    assert!(screen.contains("longest send queue first"), "{screen}");
    assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");

    // Filters: by verdict, by text.
    terminal.type_text("2")?;
    let screen = terminal.wait_for("the congested only", |screen| screen.contains("showing 1 of 4"))?;
    assert!(screen.contains("[2 congested 1]"), "{screen}");
    terminal.type_text("0/")?;
    terminal.type_text(&format!(":{}", ports.first().context("three clients")?))?;
    terminal.press("Enter")?;
    terminal.wait_for("no local port of this number", |screen| screen.contains("No connection passes"))?;
    terminal.type_text("/")?;
    terminal.press("C-u")?;
    terminal.type_text("/api")?;
    terminal.press("Enter")?;
    terminal.wait_for("all by their path", |screen| {
        screen.contains("showing 4 of 4") && screen.contains("filter: /api")
    })?;

    // The detail, with the event of its verdict.
    terminal.press("Home")?;
    terminal.press("Enter")?;
    let screen = terminal.wait_for("the detail", |screen| {
        screen.contains("the verdict stands here") && screen.contains("-> congested")
    })?;
    assert!(screen.contains("/api/remote.mux") && screen.contains("established"), "{screen}");
    pod.network.cut(slow.port())?;
    terminal.wait_for("another verdict", |screen| screen.contains("congested -> "))?;
    terminal.press("Escape")?;
    terminal.wait_for("the table", |screen| screen.contains("VERDICT"))?;

    // Any size.
    terminal.resize(40, 10)?;
    let screen = terminal.wait_for("the narrow table", |screen| {
        screen.contains("VERDICT") && !screen.contains("QUEUE") && screen.lines().count() <= 10
    })?;
    assert!(screen.contains("? help"), "{screen}");
    terminal.resize(120, 40)?;
    terminal.wait_for("the wide table", |screen| screen.contains("PATH") && screen.contains("EVERY"))?;
    terminal.resize(1, 1)?;
    terminal.resize(80, 24)?;
    terminal.wait_for("the table as before", |screen| screen.contains("BEFORE"))?;

    // A pause holds the picture; the sidecar goes, and the view says so when it goes on.
    terminal.type_text("p")?;
    terminal.wait_for("the pause", |screen| screen.contains("PAUSED"))?;
    let Pod { sidecar, network, host, clients, folder: _folder } = pod;
    sidecar.stop()?;
    terminal.type_text("p")?;
    terminal.wait_for("that the API is away, and why", |screen| {
        screen.contains("AWAY") && screen.contains("Connection refused")
    })?;
    let _sidecar = Sidecar::start(&network.host, &SidecarOptions::port(host.address().port()))?;
    terminal.wait_for("that it is back", |screen| screen.contains("live  mode ebpf"))?;
    terminal.type_text("?")?;
    terminal.wait_for("the help", |screen| screen.contains("where the oldest unanswered Ping is"))?;
    terminal.type_text("q")?;
    assert_restored(&terminal, &mode, 0)?;
    drop((clients, slow));
    Ok(())
}

#[test]
fn every_way_out_gives_the_terminal_back() -> Result<()> {
    let pod = Pod::start()?;
    let terminal = pod.terminal(100, 30)?;
    let mode = terminal.output_of("stty -a")?;
    let show = |arguments: &str| {
        terminal.enter("clear")?;
        terminal.enter(&top(arguments)?)?;
        terminal.wait_for("the table", |screen| screen.contains("VERDICT") && screen.contains("alive"))
    };
    for key in ["q", "Escape", "C-c"] {
        show("")?;
        terminal.press(key)?;
        assert_restored(&terminal, &mode, 0).with_context(|| format!("after {key}"))?;
    }
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        show("--interval 250ms")?;
        terminal.signal_child(signal)?;
        assert_restored(&terminal, &mode, 0).with_context(|| format!("after {signal}"))?;
    }
    terminal.enter("clear")?;
    terminal.enter(&format!("{}; echo code $?", tools::own_program("screen_panic")?.display()))?;
    terminal.wait_for("the panic's message", |screen| screen.contains("in the middle of a picture"))?;
    assert_restored(&terminal, &mode, 101).context("after a panic")?;

    // Nobody is there any more: it ends, and does not spin.
    show("")?;
    let process = terminal.child()?;
    drop(terminal);
    wait_until("the end of a view whose terminal hung up", DEADLINE, || {
        // One that has ended stays a zombie where nobody asks for it.
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
        Ok(stat.map_or(true, |stat| stat.contains(") Z ")))
    })
}

#[test]
fn colours_are_only_where_they_are_wanted() -> Result<()> {
    let pod = Pod::start()?;
    let terminal = pod.terminal(80, 24)?;
    // The verdict of a client in green, however tmux writes that.
    let has_colour = |screen: &str| {
        ["\u{1b}[32m", "\u{1b}[39;32m", "\u{1b}[38;5;2m"].iter().any(|green| screen.contains(green))
    };
    for (variables, arguments, wanted) in
        [("", "", true), ("", "--no-color", false), ("NO_COLOR=1 ", "", false)]
    {
        terminal.enter(&format!("clear; {variables}{}", top(arguments)?))?;
        // The head of the table names the verdict before any connection is there.
        let ports = pod.clients.iter().map(Client::port);
        terminal.wait_for("every client, alive", |screen| {
            ports.clone().all(|port| row(screen, port).is_some_and(|row| row.contains("alive")))
        })?;
        let screen = terminal.screen_with_colours()?;
        assert_eq!(has_colour(&screen), wanted, "{variables}{arguments}: {screen:?}");
        terminal.type_text("q")?;
        terminal.wait_for("the prompt", |screen| screen.contains("code 0"))?;
    }
    // A terminal that can do nothing gets the plain table, and is told why.
    terminal.enter(&format!("clear; TERM=dumb {}", top("")?))?;
    // The command is on the screen, below the code of the one before, before it has cleared both.
    terminal.wait_for("the plain table, and why", |screen| {
        ["TERM=dumb", "--once", "showing 3 of 3", "code 0"].iter().all(|part| screen.contains(part))
    })?;
    assert_eq!(terminal.variable("alternate_on")?, "0");
    Ok(())
}

#[test]
fn without_a_terminal_it_is_one_plain_table() -> Result<()> {
    let pod = Pod::start()?;
    let ackbeat = tools::ackbeat()?;
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&ackbeat);
        command.arg("top").args(arguments).stdin(Stdio::null());
        pod.network.host.run(move || command.output())?.context("starting ackbeat failed")
    };
    let socket = format!("unix:{}", pod.folder.path().join("api.sock").display());
    for arguments in [
        &[][..],
        &["--once", "--verdict", "alive", "--sort=-age_ms"],
        &["--api", &socket, "--sort", "-verdict"],
    ] {
        let output = run(arguments)?;
        let text = String::from_utf8(output.stdout).context("the table is text")?;
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(!text.chars().any(|character| character.is_control() && character != '\n'), "{text:?}");
        for client in &pod.clients {
            let line = text.lines().find(|line| line.contains(&format!(":{} ", client.port())));
            assert!(line.is_some_and(|line| line.contains("/api/remote.mux")), "{text}");
        }
    }
    // The server limits, and knows how many there are.
    let output = run(&["--once", "--limit", "2"])?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("showing 2 of 3") && text.matches("/api/remote.mux").count() == 2, "{text}");
    let output = run(&["--api", "http://127.0.0.1:1"])?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{said}");
    assert!(["http://127.0.0.1:1", "api.listen", "refused"].iter().all(|part| said.contains(part)), "{said}");
    Ok(())
}
