// wire.h - how messages cross between machines, as nodes use it. Behind it is a plugin
// (sdk/include/moorage/wire.h), or a wire within one process in the tests.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/base/result.h"
#include "moorage/wire.h"

namespace moorage::core {

// Meanings, numbers and threads are as in the specification. It is already open.
class wire {
public:
    virtual ~wire() = default;
    // Returns the address that is bound.
    virtual result<std::string> listen(const std::string &address) = 0;
    // Returns the number of the connection that has begun.
    virtual result<uint64_t> connect(int32_t channel, std::span<const std::string> addresses) = 0;
    virtual uint32_t send(uint64_t connection, std::span<const moorage_wire_part> parts,
                          uint64_t user) = 0;
    virtual uint32_t poll(std::span<moorage_wire_event> events, uint64_t wait_ns) = 0;
    virtual void wake() = 0;
    virtual void release(uint64_t message) = 0;
    virtual void close(uint64_t number, bool at_once) = 0;
};

}  // namespace moorage::core
