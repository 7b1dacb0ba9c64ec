// wire_flow.h - two connected ends of a wire, and messages between them that are compared.
#pragma once

#include <deque>
#include <functional>

#include "tools/moorage/check/wire_end.h"

namespace moorage::check {

// Both ends of one connection.
struct wire_link {
    uint64_t near = 0, far = 0;  // at the end that connected, at the other
    uint64_t bytes_max = 0;
    heard connected{}, accepted{};
};

// The end that connects, and the one that listens.
class wire_pair {
public:
    static core::result<std::unique_ptr<wire_pair>> make(
        const subject &of, const moorage_wire_limits &limits = usual_wire_limits());
    static core::result<std::unique_ptr<wire_pair>> make(const subject &of,
                                                         const moorage_wire_limits &near,
                                                         const moorage_wire_limits &far);

    core::result<wire_link> meet(int32_t channel = MOORAGE_WIRE_CALLS);
    // Polls both once. Events go to `take`, which releases messages itself.
    void turn(const std::function<void(wire_end &, const heard &)> &take);
    // Waits for `count` events of one kind at `at`. Other events are dropped, and messages are
    // released.
    core::result<std::vector<heard>> await(wire_end &at, int32_t kind, size_t count = 1);
    std::string broken() const;

    std::unique_ptr<wire_end> near, far;
    std::string address;  // address of the far end
    uint64_t listener = 0;
};

// Message `index` of a flow. Flow and index determine its bytes.
std::vector<unsigned char> message_of(uint64_t flow, uint64_t index, uint64_t bytes);

// Messages one way over one connection. The memory of each is overwritten as soon as the wire gives
// it back.
class wire_flow {
public:
    using sizes = std::function<uint64_t(uint64_t index)>;
    wire_flow(wire_end &from, uint64_t out, uint64_t into, uint64_t seed, uint64_t count, sizes of)
        : from_(from), out_(out), into_(into), seed_(seed), count_(count), sizes_(std::move(of)) {}

    // Sends up to `most` messages; stops at FULL.
    void send(uint64_t most, uint32_t parts = 1);
    // Takes an event of either end; true if it belongs to this flow. A message is compared and
    // stays lent.
    bool hear(wire_end &at, const heard &one);

    bool all_sent() const { return next_ == count_; }
    bool all_arrived() const { return arrived_ == count_; }
    uint64_t sent() const { return next_; }
    uint64_t arrived() const { return arrived_; }
    bool full() const { return full_; }
    uint64_t taken_bytes() const { return taken_bytes_; }
    size_t borrowed() const { return borrowed_.size(); }
    const std::string &wrong() const { return wrong_; }
    // The text of CLOSED at the sending end; "" while it is open.
    const std::string &ended() const { return ended_; }

private:
    void take_back(std::vector<unsigned char> bytes);

    wire_end &from_;
    const uint64_t out_, into_, seed_, count_;
    const sizes sizes_;
    uint64_t next_ = 0, arrived_ = 0, taken_bytes_ = 0;
    bool full_ = false;
    std::map<uint64_t, std::vector<unsigned char>> borrowed_;  // by user
    std::deque<std::vector<unsigned char>> taken_back_;        // the last ones, overwritten
    std::string wrong_, ended_;
};

}  // namespace moorage::check
