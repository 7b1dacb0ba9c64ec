// trace_fuzz.cpp - fuzz target of the trace reader. Any bytes give an error, or a trace. All its
// values can be read, and its future agrees with a plain search.
//
// The mutator knows one thing about the format: the first eight bytes are the length of the header.
// Half of the time it changes only the header or only the data, and corrects the length. Otherwise
// nearly every mutation would fail at the length.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "core/source/future.h"
#include "core/source/trace.h"
#include "core/source/trace_stats.h"
#include "moorage/base.h"

using namespace moorage::core;

extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t size_max);

namespace {

void require(bool condition) {
    if (!condition) std::abort();
}

void read_values(const trace &trace) {
    std::vector<float> row(trace.experts());
    std::vector<uint32_t> chosen(uint64_t{trace.layers()} * trace.top_k());
    for (uint64_t token = 0; token < trace.tokens(); ++token) {
        trace.read_experts(token, 1, chosen.data());
        for (uint32_t layer = 0; layer < trace.layers(); ++layer) {
            for (uint32_t k = 0; k < trace.top_k(); ++k) {
                require(trace.expert(token, layer, k) < trace.experts());
                require(trace.expert(token, layer, k) ==
                        chosen[uint64_t{layer} * trace.top_k() + k]);
                if (trace.has_weights()) require(std::isfinite(trace.weight(token, layer, k)));
            }
            for (uint32_t k = 0; k < trace.predictions(); ++k) {
                require(trace.predicted(token, layer, k) < trace.experts());
                if (trace.has_prediction_scores())
                    require(std::isfinite(trace.prediction_score(token, layer, k)));
            }
            if (trace.has_gate_scores()) trace.gate_scores(token, layer, row.data());
        }
        if (trace.has_token_ids()) trace.token_id(token);
    }
    require(trace.request_offsets().back() == trace.tokens());
}

// In serial order, the cursor's next use is the place where the page is found next.
void follow_future(const trace &trace) {
    const uint64_t row = uint64_t{trace.layers()} * trace.top_k();
    const future coming(trace);
    future_cursor cursor(coming, order::serial);
    std::vector<uint64_t> expected(uint64_t{trace.layers()} * trace.experts(), 0);
    for (uint64_t step = 0; step < trace.tokens() * row; ++step) {
        const uint32_t layer = static_cast<uint32_t>(step % row / trace.top_k());
        const uint32_t rank = static_cast<uint32_t>(step % trace.top_k());
        const uint32_t page = layer * trace.experts() + trace.expert(step / row, layer, rank);
        require(expected[page] == 0 || expected[page] == step);
        const uint64_t next = cursor.next_use(page, step, nullptr);
        require(next > step);
        expected[page] = next;
    }
    for (const uint64_t next : expected) require(next == 0 || next == MOORAGE_NEVER);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const auto *bytes = reinterpret_cast<const std::byte *>(data);
    const auto opened = trace::from_bytes("fuzz", {bytes, bytes + size});
    if (!opened) {
        require(!opened.failure().text.empty());
        return 0;
    }
    read_values(*opened);
    // A few bytes may claim millions of experts; their tables would only slow the search down.
    if (uint64_t{opened->layers()} * opened->experts() > 1 << 16) return 0;
    follow_future(*opened);
    require(measure(*opened).distinct.size() == opened->layers());
    return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max,
                                          unsigned seed) {
    uint64_t length = 0;
    if (size >= 8) std::memcpy(&length, data, 8);
    const uint32_t way = seed % 4;
    if (way < 2 || size < 8 || length > size - 8) return LLVMFuzzerMutate(data, size, size_max);
    std::vector<uint8_t> header(data + 8, data + 8 + length), rest(data + 8 + length, data + size);
    std::vector<uint8_t> &part = way == 2 ? header : rest;
    const size_t room = size_max - size + part.size(), old_size = part.size();
    part.resize(std::max(room, old_size));
    part.resize(LLVMFuzzerMutate(part.data(), old_size, room));
    length = header.size();
    std::memcpy(data, &length, 8);
    std::copy(header.begin(), header.end(), data + 8);
    std::copy(rest.begin(), rest.end(), data + 8 + header.size());
    return 8 + header.size() + rest.size();
}
