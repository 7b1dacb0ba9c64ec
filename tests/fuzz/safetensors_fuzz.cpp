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
    for (const std::byte value : bytes) sum += static_cast<uint64_t>(value);
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
    for (const tensor &tensor : parsed->tensors) {
        require(names.insert(tensor.name).second);
        uint64_t bits = bits_of(tensor.type);
        for (const uint64_t dimension : tensor.shape) bits *= dimension;
        require(bits == 8 * tensor.bytes.size());
        require(tensor.bytes.data() >= file.data());
        require(tensor.bytes.data() + tensor.bytes.size() <= file.data() + file.size());
        require(end == nullptr || tensor.bytes.data() == end);
        end = tensor.bytes.data() + tensor.bytes.size();
        sum = sum + sum_of(tensor.bytes);
        require(parsed->find(tensor.name) == &tensor);
    }
    require(end == nullptr || end == file.data() + file.size());
    return 0;
}
