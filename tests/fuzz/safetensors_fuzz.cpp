// safetensors_fuzz.cpp - feeds any bytes to the reader of safetensors headers. Checks beside the
// sanitizers: tensors lie one behind the other in the file and have the bytes of their shapes.
// Every byte can be read. A refusal is one line of text.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <span>
#include <string>

#include "core/base/safetensors.h"

using namespace moorage::core;

namespace {

void require(bool holds) {
    if (!holds) std::abort();
}

uint64_t sum_of(std::span<const std::byte> bytes) {
    uint64_t sum = 0;
    for (const std::byte one : bytes) sum += static_cast<uint64_t>(one);
    return sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const std::span<const std::byte> file = std::as_bytes(std::span(data, size));
    const auto parsed = parse_safetensors(file, "fuzz.safetensors");
    if (!parsed) {
        require(!parsed.failure().text.empty());
        require(parsed.failure().text.find('\n') == std::string::npos);
        return 0;
    }
    std::set<std::string> names;
    const std::byte *end = nullptr;
    volatile uint64_t sum = 0;
    for (const tensor &one : parsed->tensors) {
        require(names.insert(one.name).second);
        uint64_t bits = bits_of(one.type);
        for (const uint64_t dimension : one.shape) bits *= dimension;
        require(bits == 8 * one.bytes.size());
        require(one.bytes.data() >= file.data());
        require(one.bytes.data() + one.bytes.size() <= file.data() + file.size());
        require(end == nullptr || one.bytes.data() == end);
        end = one.bytes.data() + one.bytes.size();
        sum = sum + sum_of(one.bytes);
        require(parsed->find(one.name) == &one);
    }
    require(end == nullptr || end == file.data() + file.size());
    return 0;
}
