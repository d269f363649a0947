//! Why each threshold has the value that it has. The figures are the arena's (`tests/arena/README.md`): each value was swept
//! over every recording of the full set, with the other thresholds as they are.

/// The reason for a threshold's values under both policies; empty for a name that is none.
#[must_use]
pub(super) fn reason(threshold: &str) -> &'static str {
    match threshold {
        "fresh_ms" => {
            "Above the longest gap between two ACKs of a living peer on a clean path, 1.3 s for a reader of 5 kB/s in \
             500-byte reads. It moves verdicts, not kills: from 500 ms to 4 s no kill changed."
        }
        "pong_budget_ms" => {
            "A stopped process's kernel acknowledges within 58 ms; what its application owes has seconds. A lossy path took \
             longer than any of them: the longest wrong accusation was 18.5 s with 1 s, 13.5 s with 3 s, 11.6 s with 5 s. It \
             justifies nothing by itself."
        }
        "unreachable_retransmits" => {
            "RFC 9293 section 3.8.6.1 forbids reading one unanswered probe as death. The third timeout of the oldest segment \
             is over after 1.7 s on a LAN, 2.3 s at 80 ms and 3.6 s at 200 ms. With 1 or 2 a living peer behind 20 % loss was \
             killed; with 4 `fast` found the dead 0.7 s later (p99 3 s). Where something was lost in the minute before, one \
             or two more are needed, until a kill is justified by time: with 15 % lost each way three round trips fail in a row \
             once in fifty times."
        }
        "unreachable_floor_ms" => {
            "Behind ICMP errors the kernel does not back off, and three timeouts pass in 0.6 s: less than an outage while a \
             route changes."
        }
        "unreachable_after_ms" => {
            "After an outage the first ACK comes with the next retransmission: up to as late again as the outage was long. \
             `default` is twice an outage of 5 s; below 7 s such outages killed, at 7 s one living peer behind 15 % loss, from \
             8 s on none. `fast` lies above the answer to an outage of up to 3.3 s, which comes after 3.4 s on a LAN, and finds \
             the dead no later than `ws-2`; at 3 s it killed through outages of 2 s, for nothing but a second."
        }
        "lossy_after_ms" => {
            "At 20 % loss each way living peers were not heard for 15 and for 28 s by chance alone: six and seven timeouts, each \
             twice as long as the one before. Both had healed from two spells or more within the minute. A third, at \
             15 %, was not heard for 15 s after three seconds of traffic and one timeout, but had lost 39 of 215 segments. A \
             single outage does not make a path lossy, and neither does a queue that overflows: with it the round trip grows."
        }
        "silent_after_ms" => {
            "`default` is four Pong budgets: at 8 s living peers behind 15 % loss and more were killed, whose Pong was lost and \
             waited for the peer's own timeouts; from 12 s on none. `fast` accepts those, and is done with a hung application \
             after 8 s."
        }
        "stalled_after_ms" => {
            "Readers of 5 and 20 kB/s let up to 20 to 30 s pass without a sign that they read, while megabytes lie in their \
             kernel: at 20 s one living peer in twenty was killed, at 30 s none. `fast` is that, `default` twice that."
        }
        "min_progress_bytes" => {
            "A trickle of a byte every 10 s stays below it, a reader of 5 kB/s is far above. From 0 to 64 KiB no kill changed; \
             at 96 KiB `fast` killed such a reader, at 192 KiB peers behind a link of 50 kbit/s."
        }
        "progress_window_ms" => {
            "A reader of 5 kB/s was killed with 20 s and less, with 30 s not. `fast` is that, `default` twice that."
        }
        "postmortem_window_ms" => "Six retransmissions on a LAN: whoever is there answers one of them.",
        "sample_interval_ms" => {
            "Just below the smallest retransmission timeout (`TCP_RTO_MIN`, 200 ms). Where the moment of a timeout is known the \
             sampler looks right after it, so this does not delay `unreachable`."
        }
        "late_tick_ms" => {
            "A busy machine wakes a process some tens of milliseconds late; a second is a pause. With a pause of 60 s nobody \
             was accused."
        }
        _ => "",
    }
}
