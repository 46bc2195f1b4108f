//! How load is read, told and taken in. Every number with its unit and its reason.

/// Minutes of load that agent and scheduler remember: the day that a forecast sees, the hour until the first one, so
/// that a scheduler that starts anew has as many to judge by as it wants ([`FORECAST_JUDGED`](super::FORECAST_JUDGED)), and an hour for its way.
pub const LOAD_MINUTES: usize = 26 * 60;
/// A bin counts as read when at least this share of its minutes was, percent.
pub const LOAD_BIN_LEAST_PERCENT: usize = 50;
/// How long after its end a bin is taken in, seconds: its last minute is read, averaged and sent by then.
pub const LOAD_LATE_SECONDS: i64 = 30;
/// A node that has told nothing for this long is as if nothing were known of it, minutes (design, section 10).
pub const LOAD_STALE_MINUTES: i64 = 3;
/// How often the scheduler looks at what came, seconds.
pub const LOAD_TURN_SECONDS: u64 = 10;
/// Agents that the scheduler connects to at once; each costs it a TLS handshake of about a millisecond.
pub const LOAD_DIALS_AT_ONCE: usize = 32;
/// Longest that an agent may take to answer a call, seconds.
pub const LOAD_DIAL_SECONDS: u64 = 10;
/// Rest before an agent that did not answer is called again, seconds: the first, and the longest.
pub const LOAD_REDIAL_SECONDS: (u64, u64) = (1, 60);
/// How often the scheduler looks which agents came, went or started anew, milliseconds.
pub const LOAD_FOLLOW_MILLISECONDS: u64 = 500;
/// Nodes that are looked at in one go when they are sorted by pools: a tenth of a millisecond in which nobody is told
/// where a pod goes.
pub const LOAD_NODES_AT_ONCE: usize = 128;
/// How long the scheduler gathers what agents remember before it forecasts from it, milliseconds: those that are called
/// together answer together, and are taken in together.
pub const LOAD_GATHER_MILLISECONDS: u64 = 1_000;
/// Largest message of an agent that is read, bytes: all that it remembers takes 20,000.
pub const LOAD_MESSAGE_BYTES: usize = 64 << 10;
/// How far an agent's clock may be ahead of the scheduler's, minutes. What is further ahead is not taken: it would keep
/// out all that is true until then.
pub const LOAD_AHEAD_MINUTES: i64 = 2;
/// A stream that told so much of no use is ended, minutes: as many as an agent remembers. It is called again after a
/// rest, so that an agent that floods costs no more than one that is away.
pub const LOAD_USELESS_MINUTES: usize = LOAD_MINUTES;

/// Load is read at least this often, seconds, however seldom a pool wants it: so every minute is read, ten seconds late
/// or not.
pub const LOAD_READ_MOST_SECONDS: u64 = 50;
/// Minutes in one message of the load stream: 4 kB, so that a day goes in few messages and none is large.
pub const LOAD_MESSAGE_MINUTES: usize = 256;
/// Connections to an agent's load stream, and streams on all of them: one for each replica of the scheduler, those that
/// were lost and are not known to be dead yet, and some for people.
pub const LOAD_CALLERS: usize = 16;
/// A connection on which no good token was shown for this long is closed, seconds: it keeps a place from others.
pub const LOAD_KNOCK_SECONDS: u64 = 10;
/// How long a token that was good is taken without asking again, seconds: a scheduler that dials anew costs no review, and
/// a token that was revoked is soon refused.
pub const LOAD_TOKEN_SECONDS: u64 = 60;
