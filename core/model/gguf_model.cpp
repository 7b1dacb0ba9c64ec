// gguf_model.cpp - opens the files, reads the configuration from the metadata, maps weights, counts
// sizes.
#include "core/model/gguf_model.h"

#include <utility>

#include "core/base/finite.h"
#include "core/base/log.h"
#include "core/base/safetensors.h"
#include "core/base/text.h"
#include "core/model/architectures.h"
#include "core/model/gguf_config.h"
#include "core/model/gguf_ends.h"
#include "core/model/gguf_reader.h"
#include "core/model/gguf_weights.h"
#include "core/model/unread.h"
#include "core/model/weight_values.h"

namespace moorage::core {

namespace {

class gguf_model final : public model {
public:
    static result<std::unique_ptr<model>> open(const std::filesystem::path &path,
                                               std::vector<named_part> *parts) {
        result<gguf_files> files = gguf_files::open(path);
        if (!files) return files.failure();
        std::unique_ptr<gguf_model> opened(new gguf_model(std::move(*files)));
        opened->directory_ = path;
        result<model_config> config = read_gguf_config(opened->files_);
        if (!config) return config.failure();
        opened->config_ = std::move(*config);
        if (const status done = opened->bind(parts); !done) return done.failure();
        if (const status done = opened->read_generation(); !done) return done.failure();
        return std::unique_ptr<model>(std::move(opened));
    }

    std::string find_non_finite_weight() const override {
        for (const gguf_tensor &tensor : files_.tensors()) {
            if (!tensor.used) continue;
            std::vector<float> row(tensor.shape.back());
            const uint64_t rows = tensor.values() / row.size();
            const matrix weights =
                packed_matrix(tensor.type, static_cast<uint32_t>(rows),
                              static_cast<uint32_t>(row.size()), tensor.bytes.data());
            for (uint32_t number = 0; number < rows; ++number) {
                read_row(weights, number, row);
                if (const size_t odd = first_non_finite(row); odd != row.size())
                    return format("{}: tensor {} holds {} in row {} at {}", *tensor.file,
                                  tensor.name, row[odd], number, odd);
            }
        }
        return {};
    }

private:
    explicit gguf_model(gguf_files files) : files_(std::move(files)) {}

    status bind(std::vector<named_part> *parts) {
        const architecture &arch = *find_architecture(config_.architecture);
        gguf_weights supply(config_, files_, gguf_mlp_norm(files_), owned_);
        weights_ = weight_binding(config_, arch, supply, parts).bind();
        if (supply.failed()) return supply.failure();
        config_.part_unit = part_unit_of(config_, weights_);
        sizes_ = sizes_of(config_, weights_, supply);
        sizes_.parameters = supply.parameters();
        std::vector<stored> tensors;
        const bool has_long = files_.find("rope_factors_long.weight") != nullptr;
        for (const gguf_tensor &tensor : files_.tensors())
            tensors.push_back({&tensor.name, tensor.file, tensor.shape, tensor.bytes, tensor.used,
                               unread_in_gguf(tensor.name, has_long),
                               layer_of(tensor.name, "blk.")});
        return count_tensors(files_.file_count(), tensors);
    }

    // Decoding is greedy unless the file gives sampling settings.
    status read_generation() {
        gguf_reader reader(files_, "tokenizer.ggml.");
        generation_.begin_id = reader.id("bos_token_id", config_.vocabulary).value_or(-1);
        for (const char *key : {"eos_token_id", "eot_token_id", "eom_token_id"})
            if (const auto end = reader.id(key, config_.vocabulary);
                end && std::ranges::find(generation_.end_ids, *end) == generation_.end_ids.end())
                generation_.end_ids.push_back(*end);
        if (reader.failed()) return reader.failure();
        for (const int32_t id : named_ends_of(files_.metadata(), config_.vocabulary))
            if (std::ranges::find(generation_.end_ids, id) == generation_.end_ids.end())
                generation_.named_end_ids.push_back(id);
        return success();
    }

    gguf_files files_;
    owned_weights owned_;
};

}  // namespace

result<std::unique_ptr<model>> open_gguf_model(const std::filesystem::path &path,
                                               std::vector<named_part> *parts) {
    return gguf_model::open(path, parts);
}

}  // namespace moorage::core
