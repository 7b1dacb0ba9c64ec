// model.cpp - opens a directory: configuration, shards, weights, sizes, and generation settings.
#include "core/model/model.h"

#include <charconv>
#include <new>
#include <utility>

#include "core/base/finite.h"
#include "core/base/foreign_file.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/mapped_file.h"
#include "core/base/safetensors.h"
#include "core/base/text.h"
#include "core/config/shape_config.h"
#include "core/model/architectures.h"
#include "core/model/config_reader.h"
#include "core/model/gguf.h"
#include "core/model/gguf_model.h"
#include "core/model/named_parts.h"
#include "core/model/odd_weight.h"
#include "core/model/shards.h"
#include "core/model/stored_weights.h"

namespace moorage::core {

namespace {

namespace fs = std::filesystem;

constexpr size_t unused_names_max = 8, end_ids_max = 64, settings_bytes_max = 1 << 20;

result<std::string> read_text(const fs::path &path) {
    const result<mapped_file> mapped = mapped_file::open(path);
    if (!mapped) return mapped.failure();
    if (mapped->bytes().size() > settings_bytes_max)
        return error{format("{}: {} bytes are more than the {} that such a file may have",
                            path.string(), mapped->bytes().size(), settings_bytes_max)};
    if (const std::string foreign = non_text_problem(mapped->bytes()); !foreign.empty())
        return error{format("{}: {}", path.string(), foreign)};
    return std::string(reinterpret_cast<const char *>(mapped->bytes().data()),
                       mapped->bytes().size());
}

// One id or a list of ids; -1 and null mean none.
std::vector<int32_t> read_ids(config_reader &reader, const char *key, uint32_t vocabulary) {
    std::vector<int32_t> ids;
    const json *value = reader.find({key});
    if (value == nullptr || *value == -1) return ids;
    if (!value->is_array()) {
        ids.push_back(static_cast<int32_t>(reader.count({key}, 0, vocabulary - 1)));
        return ids;
    }
    for (const uint32_t id : reader.counts({key}, vocabulary - 1, end_ids_max))
        ids.push_back(static_cast<int32_t>(id));
    return ids;
}

void read_generation(config_reader &reader, uint32_t vocabulary, generation_config &generation) {
    if (std::vector<int32_t> ids = read_ids(reader, "eos_token_id", vocabulary); !ids.empty())
        generation.end_ids = std::move(ids);
    if (const std::vector<int32_t> ids = read_ids(reader, "bos_token_id", vocabulary); !ids.empty())
        generation.begin_id = ids.front();
    generation.sample = reader.flag({"do_sample"}, generation.sample);
    generation.temperature = reader.number({"temperature"}, 0, 1e6, generation.temperature);
    generation.top_p = reader.number({"top_p"}, 0, 1, generation.top_p);
    // -1 also means 0: any number of tokens.
    const json *top_k = reader.find({"top_k"});
    generation.top_k = top_k != nullptr && *top_k == -1
                           ? 0
                           : reader.count({"top_k"}, 0, UINT32_MAX, generation.top_k);
}

class model_directory final : public model {
public:
    static result<std::unique_ptr<model>> open(const fs::path &directory,
                                               std::vector<named_part> *parts) {
        result<shards> found = shards::open(directory);
        if (!found) return found.failure();
        std::unique_ptr<model_directory> opened(new model_directory(std::move(*found)));
        opened->directory_ = directory;
        if (const status done = opened->read_settings(); !done) return done.failure();
        if (const status done = opened->bind(parts); !done) return done.failure();
        return std::unique_ptr<model>(std::move(opened));
    }

    std::string find_non_finite_weight() const override {
        for (const stored_tensor &tensor : shards_.tensors())
            if (tensor.used)
                if (const std::string odd = non_finite_text(*tensor.entry); !odd.empty())
                    return format("{}: {}", *tensor.file, odd);
        return {};
    }

private:
    explicit model_directory(shards opened) : shards_(std::move(opened)) {}

    status read_settings() {
        const fs::path path = directory_ / "config.json";
        const result<std::string> text = read_text(path);
        if (!text) return text.failure();
        result<model_config> parsed = parse_model_config(*text, path.string());
        if (!parsed) return parsed.failure();
        const result<json> root = parse_object(*text, path.string());
        if (!root) return root.failure();
        config_ = std::move(*parsed);
        config_reader reader(*root, path.string());
        generation_.end_ids = read_ids(reader, "eos_token_id", config_.vocabulary);
        if (const auto ids = read_ids(reader, "bos_token_id", config_.vocabulary); !ids.empty())
            generation_.begin_id = ids.front();
        if (reader.failed()) return reader.failure();

        const fs::path settings = directory_ / "generation_config.json";
        std::error_code code;
        if (!fs::exists(settings, code)) return success();
        const result<std::string> generation_text = read_text(settings);
        if (!generation_text) return generation_text.failure();
        const result<json> generation = parse_object(*generation_text, settings.string());
        if (!generation) return generation.failure();
        config_reader generation_reader(*generation, settings.string());
        read_generation(generation_reader, config_.vocabulary, generation_);
        if (generation_reader.failed()) return generation_reader.failure();
        return success();
    }

    status bind(std::vector<named_part> *parts) {
        const architecture &arch = *find_architecture(config_.architecture);
        stored_weights supply(config_, arch, shards_, owned_);
        weights_ = weight_binding(config_, arch, supply, parts).bind();
        if (const status found = shards_.check_found(); !found) return found;
        if (supply.failed()) return supply.failure();

        config_.part_unit = part_unit_of(config_, weights_);
        sizes_ = sizes_of(config_, weights_, supply);
        sizes_.parameters = supply.parameters();
        std::vector<stored> tensors;
        for (const stored_tensor &tensor : shards_.tensors())
            tensors.push_back({&tensor.entry->name, tensor.file, tensor.entry->shape,
                               tensor.entry->bytes, tensor.used,
                               unread_in_directory(tensor.entry->name, config_.tied_embedding),
                               layer_of(tensor.entry->name, "model.layers.")});
        return count_tensors(shards_.file_count(), tensors);
    }

    shards shards_;
    owned_weights owned_;
};

}  // namespace

std::optional<uint64_t> model::layer_of(std::string_view name, std::string_view prefix) {
    if (!name.starts_with(prefix)) return std::nullopt;
    uint64_t layer = 0;
    const char *const end = name.data() + name.size();
    const auto read = std::from_chars(name.data() + prefix.size(), end, layer);
    return read.ec == std::errc() ? std::optional(layer) : std::nullopt;
}

status model::count_tensors(uint32_t files, const std::vector<stored> &tensors) {
    const uint64_t layers = config_.layers, mtp_layers = config_.mtp_layers;
    file_count_ = files;
    tensor_count_ = static_cast<uint32_t>(tensors.size());
    const std::string *surprising = nullptr;
    for (const stored &tensor : tensors) {
        sizes_.total_bytes += tensor.bytes.size();
        if (tensor.used) continue;
        sizes_.unused_bytes += tensor.bytes.size();
        if (sizes_.unused.size() < unused_names_max) sizes_.unused.push_back(*tensor.name);
        if (tensor.unread == unread_kind::expected) continue;
        const bool is_beyond = tensor.layer && *tensor.layer >= layers;
        if (is_beyond && *tensor.layer >= layers + mtp_layers)
            return error{format("{}: tensor {} is of layer {}; layers 0 to {} are counted (by {})",
                                directory_.string(), printable(*tensor.name), *tensor.layer,
                                layers + mtp_layers - 1,
                                is_gguf(directory_)
                                    ? "block_count"
                                    : "num_hidden_layers and num_nextn_predict_layers")};
        if (is_beyond || is_zero_bias(*tensor.name, tensor.bytes)) continue;
        if (tensor.unread == unread_kind::changes)
            return error{
                format("{}: tensor {} of shape {} is read by no part of {}, and without it "
                       "another model would be computed; take a model of a supported "
                       "architecture, or remove the tensor if it has no effect",
                       *tensor.file, printable(*tensor.name), shape_text(tensor.shape),
                       config_.architecture)};
        if (surprising == nullptr) surprising = tensor.name;
    }
    if (surprising != nullptr)
        log_warning(format("{}: some tensors are used by no part of {}, for example {}",
                           directory_.string(), config_.architecture, printable(*surprising)));
    return success();
}

std::vector<const mlp_weights *> experts_of(const model &model) {
    std::vector<const mlp_weights *> experts;
    for (const uint32_t layer : model.config().moe_layers())
        for (const mlp_weights &expert : model.weights().layers[layer].experts)
            experts.push_back(&expert);
    return experts;
}

namespace {

result<std::unique_ptr<model>> open_any(const fs::path &directory, std::vector<named_part> *parts) {
    try {
        return is_gguf(directory) ? open_gguf_model(directory, parts)
                                  : model_directory::open(directory, parts);
    } catch (const std::bad_alloc &) {
        return error{format("{}: not enough memory to open it", directory.string())};
    }
}

}  // namespace

result<std::unique_ptr<model>> open_model(const fs::path &directory) {
    return open_any(directory, nullptr);
}

result<std::unique_ptr<model>> open_model(const fs::path &directory,
                                          std::vector<named_part> &parts) {
    return open_any(directory, &parts);
}

std::string find_non_finite_weight(const model &model) { return model.find_non_finite_weight(); }

result<model_config> config_of_shape(const std::string &name, const fs::path &base) {
    const result<std::string> text = load_shape_config(name, base);
    if (!text) return text.failure();
    return parse_model_config(*text, format("model shape {}: [config]", name));
}

model_shape shape_of(const model &model, const std::string &name) {
    const model_config &config = model.config();
    const model_sizes &sizes = model.sizes();
    model_shape shape;
    shape.name = name;
    shape.layers = config.layers;
    shape.moe_layers = static_cast<uint32_t>(config.moe_layers().size());
    shape.experts = config.experts;
    shape.top_k = config.top_k;
    shape.hidden = config.hidden;
    shape.moe_intermediate = config.moe_intermediate;
    shape.part_unit = config.part_unit;
    shape.matrices = 3;
    shape.expert_bytes = sizes.expert_bytes;
    shape.weight_bytes =
        static_cast<double>(sizes.expert_bytes) / (3.0 * config.hidden * config.moe_intermediate);
    shape.non_expert_bytes = sizes.shared_bytes + sizes.attention_bytes + sizes.dense_bytes +
                             sizes.router_bytes + sizes.embedding_bytes + sizes.head_bytes;
    // A token reads one row of the embedding. If it is tied, a token also reads all of it as the
    // head.
    shape.dense_bytes =
        shape.non_expert_bytes - (config.tied_embedding ? 0 : sizes.embedding_bytes);
    shape.kv_token_layer_bytes = config.kv_token_layer_bytes(/*value_bytes=*/2);
    shape.vocabulary = config.vocabulary;
    return shape;
}

}  // namespace moorage::core
