//! The whole table: every TCP state × every event, and what the engine makes of it.
//!
//! Each row is a WebSocket connection that was brought to a state, then met one event, then was left alone until
//! its record was out or two minutes had passed.

use ackbeat_liveness::*;

use crate::world::{Peer, World, process};

const ID: u64 = 7;

/// A connection in a state, as it comes there in practice.
fn in_state(state: TcpState) -> Option<World> {
    let mut world = World::new();
    world.open_websocket(ID, Peer::Mute);
    world.run_ms(1_000);
    // The socket does nothing by itself from here on.
    match state {
        TcpState::Established => {}
        TcpState::CloseWait => world.peer_fin(ID),
        TcpState::FinWait1 => world.half_close(ID),
        TcpState::FinWait2 => {
            world.half_close(ID);
            world.run_ms(20);
        }
        TcpState::Closing => {
            world.half_close(ID);
            world.peer_fin(ID);
        }
        TcpState::LastAck => {
            world.socket(ID).peer = Peer::Gone;
            world.peer_fin(ID);
            world.close(ID);
        }
        // No record is ever opened in these.
        TcpState::SynSent | TcpState::SynRecv | TcpState::Listen | TcpState::TimeWait | TcpState::Close => {
            return None;
        }
    }
    world.socket(ID).peer = Peer::Gone;
    world.run_ms(10);
    Some(world)
}

fn outcome(world: &mut World) -> String {
    let first =
        world.closing(ID).map_or("goes on".to_string(), |(_, initiator)| format!("closing by {initiator}"));
    let rest = (0..1_200).find_map(|_| {
        let record = world.record(ID);
        if record.is_none() {
            world.run_ms(100);
        }
        record
    });
    let Some(record) = rest else {
        let info = world.engine.connections().next().map(|info| info.verdict.as_str());
        return format!("{first}; open, {}", info.unwrap_or("untracked"));
    };
    let method = record.method.map_or("-", CloseMethod::as_str);
    let postmortem = record.postmortem.map_or("-", Postmortem::as_str);
    let assessment = record.assessment.map_or("-", Assessment::as_str);
    format!(
        "{first}; {} by {}, {method}, post-mortem {postmortem}, assessment {assessment}",
        record.kind, record.initiator
    )
}

type Event = (String, Box<dyn Fn(&mut World)>);

fn events() -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    for state in TcpState::ALL {
        for (who, task) in [("process", process(false)), ("nobody", None)] {
            events.push((
                format!("enters {state:?} by {who}"),
                Box::new(move |world| {
                    if task.is_some() {
                        world.socket(ID).shutdown = 3;
                    }
                    world.transition(ID, state, task.clone());
                }),
            ));
        }
    }
    events.push(("exits".into(), Box::new(|world| world.close_by(ID, process(true)))));
    events.push(("shutdown(SHUT_WR)".into(), Box::new(|world| world.half_close(ID))));
    events.push(("linger 0".into(), Box::new(|world| world.close_linger_zero(ID))));
    for error in [0, 103, 104, 110, 113] {
        events.push((
            format!("CLOSE with errno {error}"),
            Box::new(move |world| world.kernel_gives_up(ID, error)),
        ));
    }
    for (name, direction, answers) in [
        ("reset received", Direction::Ingress, false),
        ("reset sent", Direction::Egress, false),
        ("reset sent in answer", Direction::Egress, true),
    ] {
        events.push((name.into(), Box::new(move |world| world.reset(ID, direction, answers))));
        events.push((
            format!("{name}, then CLOSE"),
            Box::new(move |world| {
                world.reset(ID, direction, answers);
                world.transition(ID, TcpState::Close, None);
            }),
        ));
        events.push((
            format!("CLOSE, then {name}"),
            Box::new(move |world| {
                world.transition(ID, TcpState::Close, None);
                world.reset(ID, direction, answers);
            }),
        ));
    }
    for kind in [FrameKind::Ping, FrameKind::Pong, FrameKind::Close] {
        events.push((format!("{kind:?} received"), Box::new(move |world| world.peer_frame(ID, kind, None))));
    }
    events.push((
        "Close sent, then close()".into(),
        Box::new(|world| {
            world.socket(ID).peer = Peer::Mute;
            world.close_frame(ID, 1000, "");
            world.run_ms(20);
            world.close(ID);
        }),
    ));
    events.push((
        "vanishes".into(),
        Box::new(|world| {
            world.socket(ID).state = TcpState::Close;
            world.lose_records(1);
        }),
    ));
    events
}

#[test]
fn state_event_table() {
    let mut table = String::new();
    for state in TcpState::ALL {
        if in_state(state).is_none() {
            continue;
        }
        table.push_str(&format!("{state:?}\n"));
        for (name, event) in events() {
            let mut world = in_state(state).expect("reached before");
            event(&mut world);
            table.push_str(&format!("  {name:<32} {}\n", outcome(&mut world)));
        }
    }
    insta::assert_snapshot!(table);
}

/// A state that only a sample shows, whichever it is: it waits for its record, then decides without accusing.
#[test]
fn sampled_state_table() {
    let mut table = String::new();
    for state in TcpState::ALL {
        for shutdown in [0, 1, 2, 3] {
            let mut world = in_state(TcpState::Established).expect("reached before");
            world.socket(ID).shutdown = shutdown;
            world.socket(ID).state = state;
            let snapshot = world.snapshot(ID);
            world.give(Input::Sample(snapshot));
            // The driver goes on; the socket stays what it is.
            let line = outcome(&mut world);
            table.push_str(&format!("{state:?}, shutdown {shutdown}: {line}\n"));
        }
    }
    insta::assert_snapshot!(table);
}
