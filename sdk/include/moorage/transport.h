/* transport.h - interface moorage.transport/1: in what order and what pieces bytes cross a link.
 *
 * The host owns the links (a copy engine, a disk, an emulated one) and pulls: whenever a link falls
 * idle it asks `next` for a piece. So one policy serves every kind of link and never waits. Between
 * machines messages cross instead, over a wire (wire.h).
 */
#ifndef MOORAGE_TRANSPORT_H
#define MOORAGE_TRANSPORT_H

#include "step.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct moorage_transfer {
    uint32_t size;
    uint32_t flags; /* 0 */
    uint32_t id;    /* below limits.transfers_max; reused after the transfer ended */
    uint32_t link;  /* below limits.links: its ends are the stores of the transfer */
    int32_t cause;  /* class: MOORAGE_DEMAND before all others */
    uint32_t page;  /* or MOORAGE_NONE */
    uint64_t bytes; /* at least 1 */
} moorage_transfer;
MOORAGE_ASSERT(sizeof(moorage_transfer) == 32, "moorage_transfer layout");

typedef struct moorage_piece {
    uint32_t size;
    uint32_t id;    /* of the transfer it belongs to */
    uint64_t bytes; /* 1 .. what is left of the transfer */
} moorage_piece;
MOORAGE_ASSERT(sizeof(moorage_piece) == 16, "moorage_piece layout");

#define MOORAGE_INTERFACE_TRANSPORT "moorage.transport/1"
typedef struct moorage_transport {
    uint32_t size;
    uint32_t flags; /* 0 */
    /* A new transfer (borrowed). Required. [step] */
    void (*submit)(moorage_plugin *plugin, const moorage_transfer *transfer);
    /* What is left of it is not wanted any more; a piece under way still ends. Required. [step] */
    void (*cancel)(moorage_plugin *plugin, uint32_t id);
    /* Its class changed, for instance a prefetch that is now demanded. Required. [step] */
    void (*promote)(moorage_plugin *plugin, uint32_t id, int32_t cause);
    /* The link is idle: returns 1 and fills `piece`, or 0 when nothing waits for this link. The
     * host counts the bytes; a transfer ends with its last one. Required. [step] */
    uint32_t (*next)(moorage_plugin *plugin, uint32_t link, moorage_piece *piece);
} moorage_transport;
MOORAGE_ASSERT(sizeof(moorage_transport) == 40, "moorage_transport layout");

#ifdef __cplusplus
}
#endif
#endif
