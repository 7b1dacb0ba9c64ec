// random_prompts.h - the prompts of beside_llama --errors: the same ones for both halves.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

class random_prompts {
public:
    random_prompts(uint32_t length, uint32_t vocabulary) : ids_(length), vocabulary_(vocabulary) {}
    const std::vector<int32_t> &next() {
        for (int32_t &id : ids_) id = static_cast<int32_t>(random_() % vocabulary_);
        return ids_;
    }

private:
    std::mt19937 random_{1};
    std::vector<int32_t> ids_;
    const uint32_t vocabulary_;
};
