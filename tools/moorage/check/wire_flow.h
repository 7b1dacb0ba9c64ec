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
    wire_event connected{}, accepted{};
};

// The end that connects, and the one that listens.
class wire_pair {
public:
    static core::result<std::unique_ptr<wire_pair>> make(
        const test_input &input, const moorage_wire_limits &limits = usual_wire_limits());
    static core::result<std::unique_ptr<wire_pair>> make(const test_input &input,
                                                         const moorage_wire_limits &near,
                                                         const moorage_wire_limits &far);

    core::result<wire_link> connect(int32_t channel = MOORAGE_WIRE_CALLS);
    // Polls both once. Events go to `take`, which releases messages itself.
    void poll_both(const std::function<void(wire_end &, const wire_event &)> &take);
    // Waits for `count` events of one kind at `awaited_end`. Other events are dropped, and messages
    // are released.
    core::result<std::vector<wire_event>> await_events(wire_end &awaited_end, int32_t kind,
                                                       size_t count = 1);
    std::string broken_rule() const;

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
    wire_flow(wire_end &sender, uint64_t send_connection, uint64_t receive_connection,
              uint64_t seed, uint64_t count, sizes message_sizes)
        : sender_(sender),
          send_connection_(send_connection),
          receive_connection_(receive_connection),
          seed_(seed),
          count_(count),
          sizes_(std::move(message_sizes)) {}

    // Sends up to `most` messages; stops at FULL.
    void send(uint64_t most, uint32_t parts = 1);
    // Takes an event of either end; true if it belongs to this flow. A message is compared and
    // stays lent.
    bool handle_event(wire_end &end, const wire_event &event);

    bool all_sent() const { return next_ == count_; }
    bool all_arrived() const { return arrived_ == count_; }
    uint64_t sent() const { return next_; }
    uint64_t arrived() const { return arrived_; }
    bool full() const { return full_; }
    uint64_t taken_bytes() const { return taken_bytes_; }
    size_t borrowed() const { return borrowed_.size(); }
    const std::string &fault_text() const { return fault_text_; }
    // The text of CLOSED at the sending end; "" while it is open.
    const std::string &close_text() const { return close_text_; }

private:
    void overwrite(std::vector<unsigned char> bytes);

    wire_end &sender_;
    const uint64_t send_connection_, receive_connection_, seed_, count_;
    const sizes sizes_;
    uint64_t next_ = 0, arrived_ = 0, taken_bytes_ = 0;
    bool full_ = false;
    std::map<uint64_t, std::vector<unsigned char>> borrowed_;  // by user
    std::deque<std::vector<unsigned char>> overwritten_;       // the last ones, overwritten
    std::string fault_text_, close_text_;
};

}  // namespace moorage::check
