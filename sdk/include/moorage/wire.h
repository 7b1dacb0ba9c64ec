/* wire.h - interface moorage.wire/1: how messages cross between machines.
 *
 * A wire carries whole messages over connections. It knows nothing of what they say: who may take
 * part, what a call is and when a silent peer counts as dead are the host's protocol.
 *
 *   open(limits) -> listen, connect -> poll ... -> deactivate
 *
 *   connection   ordered, reliable, both ways, of one channel: whichever side asked for it. It is
 *                told of by one CONNECTED or ACCEPTED, and ends with one CLOSED; an attempt that
 *                fails ends with CLOSED alone. Messages arrive once each, in the order in which
 *                they were sent, whole, before CLOSED; a message of which a part is missing is
 *                never told of. Connections know no order among each other.
 *   number       of a connection, listener, memory or lent message: not 0, never used twice by an
 *                instance (so an event that comes late meets nobody else).
 *   channel      calls are short and urgent, bulk is long and may be paced. A wire keeps them from
 *                waiting for one another: on sockets, streams or queue pairs of their own.
 *
 * Threads. One thread drives an instance from open to deactivate ([control]); several threads use
 * several instances. Only `poll` waits: everything else returns without waiting for network, name
 * service or peer. `wake` alone may be called from any thread. A wire may have threads of its own,
 * which call nothing of the host but its log.
 *
 * Time is real: wires do not take part in virtual time. The host's clock stands at 0 for them, so
 * they read the system's. `activate` has no limits for a wire and its fields may all be 0; bounds
 * come with `open`.
 *
 * What comes from the network is hostile: no length, count or text of a peer is used before it is
 * checked against the limits, and nothing that a peer sends, withholds or breaks off ends more than
 * its connection. Texts of events are words for people: lower case, place, value and limit; never
 * keys, certificates or payload.
 */
#ifndef MOORAGE_WIRE_H
#define MOORAGE_WIRE_H

#include "module.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MOORAGE_WIRE_CALLS = 0, MOORAGE_WIRE_BULK = 1 }; /* channels */
#define MOORAGE_WIRE_CHANNELS 2
#define MOORAGE_WIRE_PARTS_MAX 64    /* of one message */
#define MOORAGE_WIRE_ADDRESS_MAX 256 /* bytes of an address or identity, final 0 included */

/* Bounds of an instance. Every one is at least 1. A connection holds no more than
 * receive_bytes_max, and as much of what it was given to send as one message, beside a constant
 * that the wire's documentation states. */
typedef struct moorage_wire_limits {
    uint32_t size;
    uint32_t flags;              /* 0 */
    uint32_t connections_max;    /* beyond it connect fails, and who calls in is refused */
    uint32_t handshakes_max;     /* of others, under way at one time */
    uint32_t handshakes_per_s;   /* of others, begun; the rest is refused before costly work */
    uint32_t queue_messages_max; /* taken, not yet sent, a connection */
    uint64_t message_bytes_max[MOORAGE_WIRE_CHANNELS]; /* of one message, either way */
    uint64_t queue_bytes_max;   /* taken, not yet sent, a connection; a message longer than this is
                                 * taken when nothing else is queued */
    uint64_t receive_bytes_max; /* received or being received, not yet released, a connection; at
                                 * least the longest message. Beyond it the wire stops reading, so
                                 * that the sender's queue fills: backpressure from end to end */
    uint64_t connect_ns; /* until CONNECTED or ACCEPTED, names, secrets and greeting included */
    uint64_t close_ns;   /* that `close` gives to what is queued */
} moorage_wire_limits;
MOORAGE_ASSERT(offsetof(moorage_wire_limits, message_bytes_max) == 24, "wire_limits layout");
MOORAGE_ASSERT(sizeof(moorage_wire_limits) == 72, "moorage_wire_limits layout");

/* Whom to connect to. Borrowed for the call. */
typedef struct moorage_wire_target {
    uint32_t size;
    int32_t channel;
    /* Of one peer, in the wire's own form ("host:port"); all are tried, at the same time or nearly
     * so, and the first that answers is used. */
    const char *const *host_addresses;
    uint32_t address_count;
    uint32_t reserved; /* 0 */
    /* Who must answer: a peer that proves another identity is not connected to. Null: anybody whom
     * the wire lets in. A wire that knows no identities refuses the call unless this is null. Nodes
     * leave it null so far, and compare the identity that CONNECTED tells of. */
    const char *host_identity;
} moorage_wire_target;
MOORAGE_ASSERT(sizeof(moorage_wire_target) == 32, "moorage_wire_target layout");

/* Piece of a message that is sent. Elements of arrays never grow. */
typedef struct moorage_wire_part {
    const void *host_data;
    uint64_t bytes;
    uint64_t memory; /* number of the registered memory that it lies in, or 0 */
} moorage_wire_part;
MOORAGE_ASSERT(sizeof(moorage_wire_part) == 24, "moorage_wire_part layout");

/* What `send` did. */
enum {
    MOORAGE_WIRE_DONE = 0,   /* taken; the bytes are the host's again, no SENT follows */
    MOORAGE_WIRE_TAKEN = 1,  /* taken; the bytes are borrowed until SENT, or CLOSED */
    MOORAGE_WIRE_FULL = 2,   /* not taken: a bound of the queue; WRITABLE follows once, when half of
                              * the queue is empty again */
    MOORAGE_WIRE_GONE = 3,   /* not taken: not connected yet, closed, or never was */
    MOORAGE_WIRE_REFUSED = 4 /* not taken: no bytes, too many parts, or longer than `bytes` of
                              * CONNECTED or ACCEPTED; set_error says which */
};

/* Kinds of events. */
enum {
    MOORAGE_WIRE_CONNECTED = 1,  /* what `connect` began */
    MOORAGE_WIRE_ACCEPTED = 2,   /* somebody connected to a listener */
    MOORAGE_WIRE_MESSAGE = 3,    /* lent to the host until `release` */
    MOORAGE_WIRE_SENT = 4,       /* bytes of a message that was TAKEN are the host's again; it says
                                  * nothing of whether the peer has it */
    MOORAGE_WIRE_WRITABLE = 5,   /* after FULL */
    MOORAGE_WIRE_CLOSED = 6,     /* a connection or listener; nothing follows for its number */
    MOORAGE_WIRE_TURNED_AWAY = 7 /* `count` attempts of others that did not become connections,
                                  * since the last event of this reason; text is of the latest */
};

/* Why something was closed or turned away. */
enum {
    MOORAGE_WIRE_BY_HOST = 1,     /* `close` */
    MOORAGE_WIRE_BY_PEER = 2,     /* it said goodbye: all that it sent has been told of */
    MOORAGE_WIRE_LOST = 3,        /* reset, broken off, unanswered: the peer or the way died */
    MOORAGE_WIRE_UNREACHABLE = 4, /* no address of the target answered in time */
    MOORAGE_WIRE_STRANGER = 5,    /* no, wrong, expired or untrusted identity, on either side */
    MOORAGE_WIRE_MALFORMED = 6,   /* bytes that are not of this wire, or of a version not spoken */
    MOORAGE_WIRE_TOO_LONG = 7,    /* a message beyond what this side takes */
    MOORAGE_WIRE_TOO_MANY = 8,    /* connections or handshakes */
    MOORAGE_WIRE_TOO_SLOW = 9     /* a handshake beyond connect_ns */
};

enum { MOORAGE_WIRE_SECURE = 1u }; /* flag: encrypted, and both sides have proved who they are */

/* One event. Texts are the wire's and stay until the next `poll`; "" where there is none. Elements
 * of arrays never grow; fields that a kind does not name are 0 or "". */
typedef struct moorage_wire_event {
    int32_t kind;
    int32_t channel;     /* CONNECTED, ACCEPTED */
    int32_t reason;      /* CLOSED, TURNED_AWAY */
    uint32_t flags;      /* CONNECTED, ACCEPTED: MOORAGE_WIRE_SECURE */
    uint64_t connection; /* or listener: of CLOSED, and of TURNED_AWAY */
    uint64_t listener;   /* ACCEPTED: which */
    uint64_t user;       /* SENT: the message's */
    uint64_t message;    /* MESSAGE: its number for `release` */
    /* MESSAGE: at least 1 byte, at a multiple of 8; read only. It outlives its connection. */
    const void *plugin_data;
    uint64_t bytes; /* MESSAGE: of it. CONNECTED, ACCEPTED: the longest that both sides take */
    const char *plugin_identity; /* CONNECTED, ACCEPTED: that the peer proved, or "" */
    const char *plugin_address;  /* of the peer, where known */
    const char *plugin_text;     /* CLOSED, TURNED_AWAY: the reason in words */
    uint32_t count;              /* TURNED_AWAY */
    uint32_t reserved;           /* 0 */
} moorage_wire_event;
MOORAGE_ASSERT(offsetof(moorage_wire_event, connection) == 16, "wire_event layout");
MOORAGE_ASSERT(sizeof(moorage_wire_event) == 96, "moorage_wire_event layout");

#define MOORAGE_INTERFACE_WIRE "moorage.wire/1"
typedef struct moorage_wire {
    uint32_t size;
    uint32_t flags; /* 0 */
    /* Once, after activate; limits are borrowed. What the parameters name (a certificate) is read
     * here. Required. [control] */
    int32_t (*open)(moorage_plugin *plugin, const moorage_wire_limits *limits);
    /* Lets others connect to `address`; writes the one that is bound (a port of 0 becomes a number)
     * into MOORAGE_WIRE_ADDRESS_MAX bytes of the host, and the listener's number. One listener
     * serves both channels. Required. [control] */
    int32_t (*listen)(moorage_plugin *plugin, const char *host_address, char *host_bound,
                      uint64_t *host_listener);
    /* Begins a connection and writes its number. A failure is of the call itself (an address that
     * cannot be read, connections_max); whether somebody answers is told by an event. Required.
     * [control] */
    int32_t (*connect)(moorage_plugin *plugin, const moorage_wire_target *target,
                       uint64_t *host_connection);
    /* Sends the parts (the array is borrowed for the call) as one message, without waiting:
     * MOORAGE_WIRE_DONE .. REFUSED. `user` comes back with SENT. Required. [control] */
    uint32_t (*send)(moorage_plugin *plugin, uint64_t connection,
                     const moorage_wire_part *host_parts, uint32_t part_count, uint64_t user);
    /* Moves bytes and writes up to `capacity` events, at least 1, and how many. With none at hand
     * it waits up to `wait_ns` (0: not at all, MOORAGE_NEVER: without end) for one, or for `wake`.
     * No connection keeps others waiting for their turn. Required. [control] */
    uint32_t (*poll)(moorage_plugin *plugin, moorage_wire_event *host_events, uint32_t capacity,
                     uint64_t wait_ns);
    /* Ends the wait of a poll, or the next one if none waits; many wakes may count as one.
     * Required. [any] */
    void (*wake)(moorage_plugin *plugin);
    /* Gives a lent message back; in any order, and at the latest before deactivate, which ends all
     * that is open without waiting and without events. An unknown number does nothing. Required.
     * [control] */
    void (*release)(moorage_plugin *plugin, uint64_t message);
    /* Ends a connection or listener. What was taken still goes out, for close_ns at most; nothing
     * more is received; CLOSED follows, by then SENT for all that went. 1 in `at_once`: what is
     * queued is dropped. An unknown number does nothing. Connections of a closed listener stay.
     * Required. [control] */
    void (*close)(moorage_plugin *plugin, uint64_t number, uint32_t at_once);
    /* Nodes call neither this nor the two that follow so far: weights are asked for one range at a
     * time, and who asks keeps the rate.
     * Sends no faster than this on the connection, from now on; 0: without limit. Null: the wire
     * cannot, and the host spreads what it sends. [control] */
    void (*pace)(moorage_plugin *plugin, uint64_t connection, uint64_t bytes_per_s);
    /* Memory from which parts will be sent often, until `forget`; writes its number. Null: the wire
     * gains nothing by it. [control] */
    int32_t (*remember)(moorage_plugin *plugin, const void *host_memory, uint64_t bytes,
                        uint64_t *host_number);
    /* Nothing that lies in it is being sent. Null exactly where `remember` is. [control] */
    void (*forget)(moorage_plugin *plugin, uint64_t memory);
} moorage_wire;
MOORAGE_ASSERT(sizeof(moorage_wire) == 96, "moorage_wire layout");

#ifdef __cplusplus
}
#endif
#endif
