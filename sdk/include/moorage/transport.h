/* transport.h - interface moorage.transport/1: the order and the pieces of bytes on a link.
 *
 * The host owns the links: a copy engine, a disk or an emulated link. When a link becomes idle, the
 * host asks `next` for a piece. So one policy serves every kind of link and never waits. Between
 * machines messages travel over a wire instead (wire.h).
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
    uint32_t link;  /* below limits.links; the ends of the link are the stores of the transfer */
    int32_t cause;  /* class; MOORAGE_DEMAND comes before all others */
    uint32_t page;  /* or MOORAGE_NONE */
    uint64_t bytes; /* at least 1 */
} moorage_transfer;
MOORAGE_ASSERT(sizeof(moorage_transfer) == 32, "moorage_transfer layout");

typedef struct moorage_piece {
    uint32_t size;
    uint32_t id;    /* id of the piece's transfer */
    uint64_t bytes; /* 1 .. rest of the transfer */
} moorage_piece;
MOORAGE_ASSERT(sizeof(moorage_piece) == 16, "moorage_piece layout");

#define MOORAGE_INTERFACE_TRANSPORT "moorage.transport/1"
typedef struct moorage_transport {
    uint32_t size;
    uint32_t flags; /* 0 */
    /* A new transfer (lent for the call). Required. [step] */
    void (*submit)(moorage_plugin *plugin, const moorage_transfer *transfer);
    /* The rest of transfer `id` is not wanted any more. A piece under way still ends. Required.
     * [step] */
    void (*cancel)(moorage_plugin *plugin, uint32_t id);
    /* The class of transfer `id` changed, for example if a prefetch is now demanded. Required.
     * [step] */
    void (*promote)(moorage_plugin *plugin, uint32_t id, int32_t cause);
    /* The link is idle. Returns 1 and fills `piece`, or returns 0 if nothing waits for this link.
     * The host counts the bytes; a transfer ends with its last byte. Required. [step] */
    uint32_t (*next)(moorage_plugin *plugin, uint32_t link, moorage_piece *piece);
} moorage_transport;
MOORAGE_ASSERT(sizeof(moorage_transport) == 40, "moorage_transport layout");

#ifdef __cplusplus
}
#endif
#endif
