// random.h - integer random streams that are the same on every machine and compiler.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace moorage::core {

__extension__ using uint128 = unsigned __int128;

// splitmix64 (Steele, Lea, Flood 2014). Spreads a seed; also good enough for a few numbers by
// itself.
class seed_stream {
public:
    explicit seed_stream(uint64_t seed) : state_(seed) {}
    uint64_t next() {
        uint64_t mixed = state_ += 0x9e3779b97f4a7c15u;
        mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9u;
        mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
        return mixed ^ mixed >> 31;
    }

private:
    uint64_t state_;
};

// xoshiro256** 1.0 (Blackman, Vigna 2018).
class random_stream {
public:
    // Streams of one seed with different names are independent.
    random_stream(uint64_t seed, uint64_t name) {
        seed_stream spread(seed_stream(seed).next() ^ seed_stream(~name).next());
        for (uint64_t &word : state_) word = spread.next();
    }
    // Starts from a published state. Requires: not all 0.
    explicit random_stream(const std::array<uint64_t, 4> &state) : state_(state) {}
    uint64_t next() {
        const uint64_t drawn = std::rotl(state_[1] * 5, 7) * 9, shifted = state_[1] << 17;
        state_[2] ^= state_[0];
        state_[3] ^= state_[1];
        state_[1] ^= state_[2];
        state_[0] ^= state_[3];
        state_[2] ^= shifted;
        state_[3] = std::rotl(state_[3], 45);
        return drawn;
    }
    // Uniform below `limit`, with a bias of at most limit / 2^64. Requires: limit > 0.
    uint64_t below(uint64_t limit) {
        return static_cast<uint64_t>(static_cast<uint128>(next()) * limit >> 64);
    }
    // Uniform in [0, 1), a multiple of 2^-53.
    double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }

private:
    std::array<uint64_t, 4> state_;
};

}  // namespace moorage::core
