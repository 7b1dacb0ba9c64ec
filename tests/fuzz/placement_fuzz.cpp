// placement_fuzz.cpp - feeds any bytes to the readers of arrivals and of frequency files.
//
// The first byte chooses the reader. Checks beside the sanitizers: accepted input keeps its
// promises, and a refusal is one line of text.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>

#include "tools/placement/activation.h"
#include "tools/placement/arrivals.h"

using namespace moorage::core;

namespace {

void require(bool holds) {
    if (!holds) std::abort();
}

void check_refusal(const error &failure) {
    require(!failure.text.empty());
    require(failure.text.find('\n') == std::string::npos);
}

void read_times(std::string_view text) {
    const auto arrivals = parse_arrivals(text, "fuzz.csv");
    if (!arrivals) return check_refusal(arrivals.failure());
    require(!arrivals->empty());
    double last = 0;
    for (arrival arrival : *arrivals) {
        require(std::isfinite(arrival.at_s) && arrival.at_s >= last && arrival.output_tokens > 0);
        last = arrival.at_s;
        complete_lengths(0, arrival);
        require(arrival.input_tokens > 0 && passes_of(arrival) > 0);
    }
}

void read_frequencies(std::span<const std::byte> bytes) {
    const auto file = frequency_file::from_bytes(bytes, "fuzz.safetensors");
    if (!file) return check_refusal(file.failure());
    const auto mixed = file->read({});
    require(mixed.ok());
    require(mixed->frequency.size() == size_t{file->layers()} * file->experts());
    for (const double frequency : mixed->frequency) require(frequency >= 0 && frequency <= 1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    if (data[0] % 2 == 0)
        read_times({reinterpret_cast<const char *>(data) + 1, size - 1});
    else
        read_frequencies(std::as_bytes(std::span(data + 1, size - 1)));
    return 0;
}
