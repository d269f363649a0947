//! Accepts connections and holds them until it is killed: prints its port, then the port of each client.
#![expect(clippy::print_stdout, reason = "its output is how the test knows how far it is")]

use std::net::{IpAddr, TcpListener};

use anyhow::{Context, Result};
use clap::Parser;

/// Accepts connections and holds them until it is killed.
#[derive(Parser)]
struct Arguments {
    /// Address to listen on; the port is chosen by the kernel.
    address: IpAddr,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let listener = TcpListener::bind((arguments.address, 0)).context("listening failed")?;
    println!("{}", listener.local_addr().context("reading the own address failed")?.port());
    let mut held = Vec::new();
    loop {
        let (stream, peer) = listener.accept().context("accepting failed")?;
        println!("{}", peer.port());
        held.push(stream);
    }
}
