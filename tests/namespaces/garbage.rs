//! Streams that are no WebSocket, or stop being one: they cost a counter and nothing else.

use std::io::{Read, Write};

use ackbeat_tests::network::IpVersion;
use ackbeat_tests::sockets;
use anyhow::{Context, Result, ensure};

use super::scene::{Pair, Scene};

const REQUEST: &[u8] =
    b"GET /api/remote.mux HTTP/1.1\r\nHost: host\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
/// The first bytes of a TLS 1.3 `ClientHello` (RFC 8446 section 4.1.2), and then nothing that makes sense.
const TLS: &[u8] = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x89\x00\x8a\x00\x88\x02\x03\xe8\r\n\r\n";

fn send(pair: &mut Pair, from_client: &[u8], from_host: &[u8]) -> Result<()> {
    pair.client.write_all(from_client).context("writing as the client failed")?;
    let mut received = vec![0; from_client.len()];
    pair.host.read_exact(&mut received).context("reading as the host failed")?;
    pair.host.write_all(from_host).context("writing as the host failed")?;
    let mut received = vec![0; from_host.len()];
    pair.client.read_exact(&mut received).context("reading as the client failed")
}

fn upgraded(scene: &Scene) -> Result<Pair> {
    let mut pair = scene.pair()?;
    send(&mut pair, REQUEST, ANSWER)?;
    Ok(pair)
}

/// A frame header with a 64-bit length of 2^63 (RFC 6455 section 5.2: the most significant bit must be 0).
fn header_with_length(opcode: u8, mask: u8, length: u64) -> Vec<u8> {
    [&[0x80 | opcode, mask | 127][..], &length.to_be_bytes(), &[0; 4][..if mask == 0 { 0 } else { 4 }]]
        .concat()
}

#[test]
fn garbage_costs_only_a_counter() -> Result<()> {
    let scene = Scene::new(IpVersion::V4)?;
    let mut strange = Vec::new();
    for (from_client, from_host) in [
        (&b"GET /api/remo"[..], &b""[..]),
        (b"\r\n\r\n", b"\r\n\r\n"),
        (REQUEST, b"HTTP/1.1 101 Switching Protocols\r\n"),
        (REQUEST, b"HTTP/1.1 426 Upgrade Required\r\nContent-Length: 0\r\n\r\n"),
        (TLS, TLS),
        (b"\0\0\0\0\0\0\0\0", b"\xff\xff\xff\xff\xff\xff\xff\xff"),
        (&[0x89; 4096], &[0x8a; 4096]),
    ] {
        let mut pair = scene.pair()?;
        send(&mut pair, from_client, from_host)?;
        strange.push(pair);
    }
    let lengths = [1_u64 << 63, u64::MAX, (1 << 63) - 1, 0, 125];
    for length in lengths {
        for opcode in [0x1, 0x2, 0x9, 0xa, 0x8, 0xb] {
            let mut pair = upgraded(&scene)?;
            send(
                &mut pair,
                &header_with_length(opcode, 0x80, length),
                &header_with_length(opcode, 0, length),
            )?;
            send(&mut pair, &[0x89, 0x80, 1, 2, 3, 4], &[0x89, 0x00])?;
            strange.push(pair);
        }
    }
    // Half a header, and the other half never comes.
    let mut pair = upgraded(&scene)?;
    send(&mut pair, &[0x89], &[0x82, 126, 0xff])?;
    strange.push(pair);
    // A Close frame whose reason is no UTF-8, and one whose payload is a single byte (RFC 6455 section 5.5.1).
    let mut pair = upgraded(&scene)?;
    send(&mut pair, &[0x88, 0x81, 0, 0, 0, 0, 3], &[0x88, 0x04, 0x03, 0xe8, 0xff, 0xfe])?;
    strange.push(pair);

    let ports: Vec<u16> = strange.iter().map(|pair| pair.client_port).collect();
    for pair in strange {
        let Pair { mut host, client, .. } = pair;
        drop(client);
        sockets::read_to_end(&mut host)?;
    }
    for end in scene.ends(&ports)? {
        ensure!(end.text("ackbeat.close.initiator") == Some("peer"), "{end:?}");
        ensure!(end.flag("ackbeat.false_kill") != Some(true), "{end:?}");
    }
    // It still understands what comes after: a Close frame with its code.
    let mut pair = upgraded(&scene)?;
    send(&mut pair, b"", &[0x88, 0x02, 0x03, 0xe9])?;
    let Pair { host, mut client, client_port } = pair;
    drop(host);
    sockets::read_to_end(&mut client)?;
    drop(client);
    let close = scene.sidecar.wait_for_host_close(client_port, super::scene::SPAN_DEADLINE)?;
    ensure!(close.number("ackbeat.close.ws_code") == Some(1001), "{close:?}");
    ensure!(close.text("ackbeat.close.kind") == Some("planned_restart"), "{close:?}");
    scene.sidecar.stop().map(drop)
}
