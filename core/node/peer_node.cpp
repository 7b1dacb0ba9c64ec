// peer_node.cpp - hands what comes to whom it is for.
#include "core/node/peer_node.h"

namespace moorage::core {

peer_node::peer_node(const node_parts &of)
    : plan_(*of.plan),
      own_(of.own),
      model_(*of.of),
      links_(*of.over, plan_, own_, *this),
      holder_(*of.of, *of.pool, plan_, own_.server, links_) {}

void peer_node::turn(uint64_t wait_ns) {
    links_.turn(holder_.pending() ? 0 : wait_ns);
    if (holder_.pending()) holder_.compute();
}

void peer_node::serve(const std::function<bool()> &over) {
    constexpr uint64_t look_ns = 100'000'000;
    while (!over()) turn(look_ns);
    links_.drain();
    const uint64_t end_ns = steady_ns() + drain_ns;
    while ((holder_.pending() || !links_.idle()) && steady_ns() < end_ns) turn(look_ns / 10);
    links_.each([&](link &one) {
        if (one.stands == link::stand::ready) links_.close(one);
    });
    // For the wire to say so.
    for (int i = 0; i < 10 && links_.count_open() != 0; ++i) links_.turn(look_ns / 10);
}

bool peer_node::arrived(link &from, const frame &of, uint64_t lent) {
    switch (of.header.kind) {
        case message_kind::refusal:
            links_.refused(from, of);
            return false;
        case message_kind::pong:
            return false;
        case message_kind::goodbye:
            if (from.dialed && answers_) answers_->gone(from.server);
            return false;
        default:
            break;
    }
    if (!from.dialed) return holder_.arrived(from, of, lent);
    if (of.header.kind != message_kind::reply && of.header.kind != message_kind::failed)
        links_.refuse(from, refusal_reason::unexpected, "it was not asked for that");
    else if (answers_)
        answers_->answered(from, of);
    return false;
}

void peer_node::gone(link &which) {
    if (!which.dialed) return holder_.gone(which);
    if (answers_) answers_->gone(which.server);
}

}  // namespace moorage::core
