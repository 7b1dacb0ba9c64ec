// numbers.hpp - objects by numbers that are never used twice: table index, and use of that index.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace tcp_wire {

// `Kind` keeps the numbers of several tables apart.
template <class Thing, uint64_t Kind>
class numbered {
public:
    // Reserves memory for one more. The next `add` then needs none; `remove` never does.
    void reserve() {
        if (!free_.empty()) return;
        if (slots_.size() == slots_.capacity()) slots_.reserve(2 * slots_.size() + 8);
        free_.reserve(slots_.capacity());
        free_.push_back(static_cast<uint32_t>(slots_.size()));
        slots_.push_back({});
    }
    uint64_t add(Thing thing) {
        reserve();
        const uint32_t at = free_.back();
        free_.pop_back();
        slots_[at].thing = std::move(thing);
        slots_[at].used = true;
        ++count_;
        return number(at);
    }
    // Null if no object has the number.
    Thing *find(uint64_t of) {
        const uint64_t at = of & place_mask;
        if (at >= slots_.size() || !slots_[at].used || number(static_cast<uint32_t>(at)) != of)
            return nullptr;
        return &slots_[at].thing;
    }
    void remove(uint64_t of) {
        if (!find(of)) return;
        const auto at = static_cast<uint32_t>(of & place_mask);
        slots_[at].thing = Thing{};
        slots_[at].used = false;
        ++slots_[at].uses;
        --count_;
        free_.push_back(at);
    }
    size_t count() const { return count_; }
    template <class Work>
    void each(Work &&work) {
        for (slot &one : slots_)
            if (one.used) work(one.thing);
    }

private:
    // Kind in 2 bits, 34 bits of uses, 28 bits of place.
    static constexpr uint64_t place_mask = (uint64_t{1} << 28) - 1;
    struct slot {
        Thing thing{};
        uint64_t uses = 1;
        bool used = false;
    };
    uint64_t number(uint32_t at) const { return Kind << 62 | slots_[at].uses << 28 | at; }

    std::vector<slot> slots_;
    std::vector<uint32_t> free_;
    size_t count_ = 0;
};

}  // namespace tcp_wire
