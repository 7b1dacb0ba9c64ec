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
    uint64_t add(Thing object) {
        reserve();
        const uint32_t place = free_.back();
        free_.pop_back();
        slots_[place].object = std::move(object);
        slots_[place].used = true;
        ++count_;
        return number(place);
    }
    // Null if no object has the number.
    Thing *find(uint64_t key) {
        const uint64_t place = key & place_mask;
        if (place >= slots_.size() || !slots_[place].used ||
            number(static_cast<uint32_t>(place)) != key)
            return nullptr;
        return &slots_[place].object;
    }
    void remove(uint64_t key) {
        if (!find(key)) return;
        const auto place = static_cast<uint32_t>(key & place_mask);
        slots_[place].object = Thing{};
        slots_[place].used = false;
        ++slots_[place].uses;
        --count_;
        free_.push_back(place);
    }
    size_t count() const { return count_; }
    template <class Work>
    void for_each(Work &&work) {
        for (slot &slot : slots_)
            if (slot.used) work(slot.object);
    }

private:
    // Kind in 2 bits, 34 bits of uses, 28 bits of place.
    static constexpr uint64_t place_mask = (uint64_t{1} << 28) - 1;
    struct slot {
        Thing object{};
        uint64_t uses = 1;
        bool used = false;
    };
    uint64_t number(uint32_t place) const { return Kind << 62 | slots_[place].uses << 28 | place; }

    std::vector<slot> slots_;
    std::vector<uint32_t> free_;
    size_t count_ = 0;
};

}  // namespace tcp_wire
