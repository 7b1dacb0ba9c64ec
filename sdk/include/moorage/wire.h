/* wire.h - interface moorage.wire/1: how messages travel between machines.
 *
 * A wire carries whole messages over connections. It does not know their contents. The host's
 * protocol decides who may take part, what a call is and when a silent peer counts as dead.
 *
 *   open(limits) -> listen, connect -> poll ... -> deactivate
 *
 *   connection   ordered and reliable, in both directions, of one channel. Either side may have
 *                asked for it. One CONNECTED or ACCEPTED event announces it, and one CLOSED event
 *                ends it. An attempt that fails ends with CLOSED alone. Each message arrives once,
 *                whole, in the order of sending and before CLOSED. A message that lacks a part is
 *                never reported. Messages of different connections have no order.
 *   number       of a connection, listener, memory or lent message. It is not 0, and an instance
 *                never uses it twice. So a late event meets no other object.
 *   channel      calls are short and urgent; bulk is long and may be paced. A wire keeps one
 *                channel from waiting for the other: it uses separate sockets, streams or queue
 *                pairs.
 *
 * Threads. One thread drives an instance from open to deactivate ([control]). Several threads use
 * several instances. Only `poll` waits. All other calls return without waiting for the network, a
 * name service or a peer. Only `wake` may be called from any thread. A wire may have threads of its
 * own. They call nothing of the host except its log.
 *
 * Time is real: wires do not take part in virtual time. The host's clock stands at 0 for them, so
 * they read the system's clock. `activate` has no limits for a wire; its fields may all be 0.
 * `open` brings the bounds.
 *
 * Input from the network is hostile. Check each length, count and text of a peer against the limits
 * before you use it. A peer's actions may end only its own connection, whatever it
 * sends, withholds or breaks off. Texts of events are for people: lower case, with place, value and
 * limit. They never contain keys, certificates or payload.
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
#define MOORAGE_WIRE_ADDRESS_MAX 256 /* bytes of an address or identity, with the final 0 */

/* Bounds of an instance. Each is at least 1. A connection holds at most receive_bytes_max, and of
 * the data to send at most as much as one message. A constant comes on top; the wire's
 * documentation states it. */
typedef struct moorage_wire_limits {
    uint32_t size;
    uint32_t flags;              /* 0 */
    uint32_t connections_max;    /* above it connect fails and incoming connections are refused */
    uint32_t handshakes_max;     /* incoming ones under way at one time */
    uint32_t handshakes_per_s;   /* incoming ones begun; others are refused before costly work */
    uint32_t queue_messages_max; /* taken and not yet sent, per connection */
    uint64_t message_bytes_max[MOORAGE_WIRE_CHANNELS]; /* of one message, in either direction */
    uint64_t queue_bytes_max;   /* taken and not yet sent, per connection; a longer message is
                                 * taken if nothing else is queued */
    uint64_t receive_bytes_max; /* received or being received and not yet released, per
                                 * connection; at least the longest message. Above it the wire
                                 * stops reading, so the sender's queue fills: backpressure from
                                 * end to end */
    uint64_t connect_ns; /* until CONNECTED or ACCEPTED, with name lookup, TLS and greeting */
    uint64_t close_ns;   /* the time that `close` gives to queued messages */
} moorage_wire_limits;
MOORAGE_ASSERT(offsetof(moorage_wire_limits, message_bytes_max) == 24, "wire_limits layout");
MOORAGE_ASSERT(sizeof(moorage_wire_limits) == 72, "moorage_wire_limits layout");

/* The peer to connect to. Lent for the call. */
typedef struct moorage_wire_target {
    uint32_t size;
    int32_t channel;
    /* Addresses of one peer, in the wire's own form ("host:port"). The wire tries all of them at
     * nearly the same time and uses the first that answers. */
    const char *const *host_addresses;
    uint32_t address_count;
    uint32_t reserved; /* 0 */
    /* The identity that the peer must prove. A peer with another identity gets no connection. Null:
     * any peer that the wire lets in. A wire without identities refuses the call unless this is
     * null. Nodes leave it null so far; they compare the identity in CONNECTED. */
    const char *host_identity;
} moorage_wire_target;
MOORAGE_ASSERT(sizeof(moorage_wire_target) == 32, "moorage_wire_target layout");

/* One piece of a message to send. Array elements never grow. */
typedef struct moorage_wire_part {
    const void *host_data;
    uint64_t bytes;
    uint64_t memory; /* number of the registered memory that contains it, or 0 */
} moorage_wire_part;
MOORAGE_ASSERT(sizeof(moorage_wire_part) == 24, "moorage_wire_part layout");

/* The result of `send`. */
enum {
    MOORAGE_WIRE_DONE = 0,   /* taken; the host owns the bytes again, no SENT follows */
    MOORAGE_WIRE_TAKEN = 1,  /* taken; the bytes are borrowed until SENT or CLOSED */
    MOORAGE_WIRE_FULL = 2,   /* not taken: the queue is at a bound; WRITABLE follows once, when
                              * half of the queue is empty again */
    MOORAGE_WIRE_GONE = 3,   /* not taken: not connected yet, closed, or never existed */
    MOORAGE_WIRE_REFUSED = 4 /* not taken: no bytes, too many parts, or longer than `bytes` of
                              * CONNECTED or ACCEPTED; set_error says which */
};

/* Kinds of events. */
enum {
    MOORAGE_WIRE_CONNECTED = 1,  /* a connection that `connect` began */
    MOORAGE_WIRE_ACCEPTED = 2,   /* a peer connected to a listener */
    MOORAGE_WIRE_MESSAGE = 3,    /* lent to the host until `release` */
    MOORAGE_WIRE_SENT = 4,       /* the host owns the bytes of a TAKEN message again; this does
                                  * not say that the peer has it */
    MOORAGE_WIRE_WRITABLE = 5,   /* after FULL */
    MOORAGE_WIRE_CLOSED = 6,     /* a connection or listener ended; no event follows for its
                                  * number */
    MOORAGE_WIRE_TURNED_AWAY = 7 /* `count` incoming attempts that did not become connections,
                                  * since the last event with this reason; the text is about the
                                  * latest */
};

/* Why a connection or listener closed, or an attempt was turned away. */
enum {
    MOORAGE_WIRE_BY_HOST = 1,     /* `close` */
    MOORAGE_WIRE_BY_PEER = 2,     /* the peer said goodbye; all that it sent has been reported */
    MOORAGE_WIRE_LOST = 3,        /* reset, broken off, unanswered: the peer or the network path
                                   * died */
    MOORAGE_WIRE_UNREACHABLE = 4, /* no address of the target answered in time */
    MOORAGE_WIRE_STRANGER = 5,    /* no, wrong, expired or untrusted identity, on either side */
    MOORAGE_WIRE_MALFORMED = 6,   /* bytes that do not belong to this wire, or an unknown version */
    MOORAGE_WIRE_TOO_LONG = 7,    /* a message longer than this side takes */
    MOORAGE_WIRE_TOO_MANY = 8,    /* connections or handshakes */
    MOORAGE_WIRE_TOO_SLOW = 9     /* a handshake beyond connect_ns */
};

enum { MOORAGE_WIRE_SECURE = 1u }; /* flag: encrypted, and both sides have proved their identity */

/* One event. The wire owns the texts; they stay until the next `poll`. A missing text is "". Array
 * elements never grow. Fields that a kind does not name are 0 or "". */
typedef struct moorage_wire_event {
    int32_t kind;
    int32_t channel;     /* CONNECTED, ACCEPTED */
    int32_t reason;      /* CLOSED, TURNED_AWAY */
    uint32_t flags;      /* CONNECTED, ACCEPTED: MOORAGE_WIRE_SECURE */
    uint64_t connection; /* or listener: for CLOSED, and for TURNED_AWAY */
    uint64_t listener;   /* ACCEPTED: the listener */
    uint64_t user;       /* SENT: `user` of the message */
    uint64_t message;    /* MESSAGE: the number for `release` */
    /* MESSAGE: at least 1 byte, aligned to 8, read only. It outlives its connection. */
    const void *plugin_data;
    uint64_t bytes; /* MESSAGE: its length. CONNECTED, ACCEPTED: longest message that both sides
                     * take */
    const char *plugin_identity; /* CONNECTED, ACCEPTED: the proved identity of the peer, or "" */
    const char *plugin_address;  /* address of the peer, if known */
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
    /* Called once, after activate. The limits are lent. The wire reads the files that its
     * parameters name here, for example a certificate. Required. [control] */
    int32_t (*open)(moorage_plugin *plugin, const moorage_wire_limits *limits);
    /* Lets others connect to `host_address`. Writes the bound address into MOORAGE_WIRE_ADDRESS_MAX
     * bytes of the host; a port of 0 becomes a number. Writes the listener's number too. One
     * listener serves both channels. Required. [control] */
    int32_t (*listen)(moorage_plugin *plugin, const char *host_address, char *host_bound,
                      uint64_t *host_listener);
    /* Begins a connection and writes its number. A failure status concerns the call itself: an
     * address that cannot be read, or connections_max. An event says whether the peer answers.
     * Required. [control] */
    int32_t (*connect)(moorage_plugin *plugin, const moorage_wire_target *target,
                       uint64_t *host_connection);
    /* Sends the parts as one message, without waiting. The array is lent for the call. Returns
     * MOORAGE_WIRE_DONE .. REFUSED. `user` comes back with SENT. Required. [control] */
    uint32_t (*send)(moorage_plugin *plugin, uint64_t connection,
                     const moorage_wire_part *host_parts, uint32_t part_count, uint64_t user);
    /* Moves bytes. Writes up to `capacity` events, at least 1, and returns their number. Without an
     * event it waits up to `wait_ns` for one, or for `wake`. 0: it does not wait. MOORAGE_NEVER: it
     * waits without end. No connection may keep others from their turn. Required. [control] */
    uint32_t (*poll)(moorage_plugin *plugin, moorage_wire_event *host_events, uint32_t capacity,
                     uint64_t wait_ns);
    /* Ends the wait of a poll, or of the next poll if none waits. Many wakes may count as one.
     * Required. [any] */
    void (*wake)(moorage_plugin *plugin);
    /* Gives a lent message back, in any order, and at the latest before deactivate. deactivate ends
     * all open connections and listeners without waiting and without events. An unknown number has
     * no effect. Required. [control] */
    void (*release)(moorage_plugin *plugin, uint64_t message);
    /* Ends a connection or listener. Taken messages are still sent, for at most close_ns. No more
     * is received. CLOSED follows, after a SENT for all that was sent. If `at_once` is 1, queued
     * messages are dropped. An unknown number has no effect. Connections of a closed listener stay.
     * Required. [control] */
    void (*close)(moorage_plugin *plugin, uint64_t number, uint32_t at_once);
    /* Sends no faster than this on the connection from now on. 0: no limit. Null: the wire cannot,
     * and the host spreads its sends. Nodes call neither this function nor the next two so far: a
     * node asks for weights one range at a time, and the asking node keeps the rate. [control] */
    void (*pace)(moorage_plugin *plugin, uint64_t connection, uint64_t bytes_per_s);
    /* Registers memory from which parts are sent often, until `forget`. Writes its number. Null:
     * the wire gains nothing by it. [control] */
    int32_t (*remember)(moorage_plugin *plugin, const void *host_memory, uint64_t bytes,
                        uint64_t *host_number);
    /* Ends a registration; no part of the memory is being sent. Null exactly if `remember` is null.
     * [control] */
    void (*forget)(moorage_plugin *plugin, uint64_t memory);
} moorage_wire;
MOORAGE_ASSERT(sizeof(moorage_wire) == 96, "moorage_wire layout");

#ifdef __cplusplus
}
#endif
#endif
