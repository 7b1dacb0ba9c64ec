// gguf_fuzz.cpp - feeds any bytes to the readers of GGUF files: header, configuration, tokenizer.
// Checks beside the sanitizers: tensors lie in the file, none in another, and have the bytes of
// their shapes. Arrays of numbers can be read. A configuration has no more layers than allowed. The
// ids of a text are tokens. A refusal is one line of text.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "core/model/gguf_config.h"
#include "core/model/gguf_tokenizer.h"
#include "core/model/weight_values.h"

using namespace moorage::core;

namespace {

void require(bool holds) {
    if (!holds) std::abort();
}

void require_line(const error &failure) {
    require(!failure.text.empty());
    require(failure.text.find('\n') == std::string::npos);
}

void check_tensors(const gguf_files &files, std::span<const std::byte> file) {
    std::vector<std::span<const std::byte>> payloads;
    volatile float sum = 0;
    for (const gguf_tensor &tensor : files.tensors()) {
        require(tensor.bytes.data() >= file.data());
        require(tensor.bytes.data() + tensor.bytes.size() <= file.data() + file.size());
        require(tensor.bytes.size() ==
                tensor.values() / format_of(tensor.type).block * format_of(tensor.type).bytes);
        payloads.push_back(tensor.bytes);
        const auto width = static_cast<uint32_t>(std::min<uint64_t>(tensor.shape.back(), 1 << 20));
        const matrix row = packed_matrix(tensor.type, 1, width / 256 * 256, tensor.bytes.data());
        for (uint32_t i = 0; i < row.columns; ++i) sum = sum + weight_at(row, 0, i);
    }
    std::ranges::sort(payloads, {}, [](const auto &bytes) { return bytes.data(); });
    for (size_t i = 1; i < payloads.size(); ++i)
        require(payloads[i - 1].data() + payloads[i - 1].size() <= payloads[i].data());
}

void check_numbers(const gguf_metadata &metadata) {
    volatile double sum = 0;
    for (const auto &[key, value] : metadata)
        if (const auto *list = std::get_if<gguf_numbers>(&value))
            for (uint64_t i = 0; i < list->count; ++i) sum = sum + list->at(i);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const std::span<const std::byte> file = std::as_bytes(std::span(data, size));
    const auto files = gguf_files::parse(file, "fuzz.gguf");
    if (!files) {
        require_line(files.failure());
        return 0;
    }
    check_tensors(*files, file);
    check_numbers(files->metadata());
    const auto config = read_gguf_config(*files);
    if (config)
        require(config->layers >= 1 && config->moe.size() == config->layers);
    else
        require_line(config.failure());
    const auto words = open_gguf_tokenizer(*files);
    if (!words) {
        require_line(words.failure());
        return 0;
    }
    if (*words == nullptr) return 0;
    const auto ids = (*words)->encode("To be,  or 12345 n\xc3\xb6t <s>\n", {});
    if (ids)
        for (const int32_t id : *ids)
            require(id >= 0 && static_cast<uint32_t>(id) < (*words)->size());
    return 0;
}
