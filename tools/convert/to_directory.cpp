// to_directory.cpp - writes config.json, tokenizer.json, the files beside them, and one safetensors
// file.
#include "tools/convert/to_directory.h"

#include <algorithm>
#include <cctype>
#include <deque>
#include <memory>
#include <utility>

#include "core/base/atomic_directory.h"
#include "core/base/atomic_file.h"
#include "core/base/json.h"
#include "core/base/mapped_file.h"
#include "core/base/safetensors.h"
#include "core/base/text.h"
#include "tools/convert/gguf_metadata.h"
#include "tools/convert/parts.h"
#include "tools/convert/words.h"
#include "tools/convert/write.h"
#include "core/model/architectures.h"
#include "core/model/config_difference.h"
#include "core/model/gguf_config.h"
#include "core/model/gguf_reader.h"
#include "core/model/named_parts.h"

namespace moorage::core {

namespace {

namespace fs = std::filesystem;

// The model's parts under their publishers' names.
class directory_collector {
public:
    directory_collector(const model &source, weight_type type, std::vector<target_tensor> &tensors)
        : source_(source),
          config_(source.config()),
          arch_(*find_architecture(config_.architecture)),
          type_(type),
          tensors_(tensors) {}

    void add(const named_part &part) {
        switch (part.kind) {
            case part_kind::matrix:
                return add_matrix(part.name, part.weights);
            case part_kind::vector:
                return add_vector(part.name, part.values);
            case part_kind::experts:
                return add_experts(part.name, layer_of(part.name).experts);
            case part_kind::latent:
                return add(part.name + "kv_b_proj.weight",
                           joined_kv_b_rows(layer_of(part.name).attention, config_.attention));
        }
    }

private:
    const layer_weights &layer_of(const std::string &name) const {
        constexpr size_t number = std::string_view("model.layers.").size();
        return source_.weights().layers[std::stoul(name.substr(number))];
    }

    // Vectors, routers and tensors without blocks keep their precision.
    void add_exactly(const std::string &name, source_rows rows) {
        tensors_.push_back(make_target(name, weight_type::f32, std::move(rows)));
    }
    void add(const std::string &name, source_rows rows) {
        if (type_ != weight_type::fp8) {
            tensors_.push_back(make_target(name, type_, std::move(rows)));
            return;
        }
        constexpr std::string_view ending = ".weight";
        const auto blocks = [](uint64_t count) { return (count + 127) / 128; };
        target_tensor codes = make_target(name, weight_type::fp8, rows);
        codes.form = row_form::fp8_codes;
        target_tensor scales =
            make_target(name.substr(0, name.size() - ending.size()) + ".weight_scale_inv",
                        weight_type::f32, std::move(rows));
        scales.shape = {blocks(codes.shape[0]), blocks(codes.shape[1])};
        scales.form = row_form::fp8_scales;
        tensors_.push_back(std::move(codes));
        tensors_.push_back(std::move(scales));
    }

    // GGUF files of some architectures have reordered queries and keys.
    uint32_t heads_of(const std::string &name) const {
        const bool is_reordered = config_.attention.kind == attention_kind::grouped &&
                                  config_.rope.interleaved && !arch_.interleaved;
        if (!is_reordered) return 0;
        if (name.find(".q_proj.") != std::string::npos) return config_.attention.heads;
        return name.find(".k_proj.") != std::string::npos ? config_.attention.kv_heads : 0;
    }
    void add_matrix(const std::string &name, const matrix &weights) {
        const uint32_t heads = heads_of(name);
        source_rows rows =
            heads != 0 ? reorder_heads(weights, heads, head_order::to_halves) : rows_of(weights);
        const bool is_router = name.ends_with(std::string(arch_.tensors.router) + ".weight");
        if (is_router || weights.rows == 1) return add_exactly(name, std::move(rows));
        const bool is_table = name.starts_with("model.embed_tokens") || name.starts_with("lm_head");
        if (is_table && type_ == weight_type::fp8) {
            tensors_.push_back(make_target(name, weight_type::bf16, std::move(rows)));
            return;
        }
        add(name, std::move(rows));
    }
    void add_vector(const std::string &name, std::span<const float> values) {
        if (const uint32_t heads = heads_of(name)) {
            owned_vectors_.push_back(reorder_heads(values, heads, head_order::to_halves));
            values = owned_vectors_.back();
        }
        add_exactly(name, single_row_of(values));
    }

    void add_experts(const std::string &layer, const std::vector<mlp_weights> &experts) {
        const tensor_names &names = arch_.tensors;
        if (names.expert == nullptr) return add_fused(layer, experts);
        for (size_t i = 0; i < experts.size(); ++i) {
            const std::string prefix = format("{}{}.{}.", layer, names.expert, i);
            add(prefix + names.gate + ".weight", rows_of(experts[i].gate));
            add(prefix + names.up + ".weight", rows_of(experts[i].up));
            add(prefix + names.down + ".weight", rows_of(experts[i].down));
        }
    }
    void add_fused(const std::string &layer, const std::vector<mlp_weights> &experts) {
        const std::string gate_up_name = layer + arch_.tensors.fused_in,
                          down_name = layer + arch_.tensors.fused_out;
        add(gate_up_name,
            arch_.tensors.transposed ? alternate_gate_up(experts) : join_gate_up(experts));
        add(down_name, arch_.tensors.transposed ? transpose_down(experts)
                                                : stack_experts(experts, &mlp_weights::down));
        if (!config_.expert_bias) return;
        add_exactly(gate_up_name + "_bias", alternate_bias(experts));
        add_exactly(down_name + "_bias", stack_experts(experts, &mlp_weights::down_bias));
    }

    const model &source_;
    const model_config &config_;
    const architecture &arch_;
    const weight_type type_;
    std::vector<target_tensor> &tensors_;
    std::deque<std::vector<float>> owned_vectors_;
};

std::string type_name(const target_tensor &tensor) {
    if (tensor.form == row_form::fp8_codes) return "F8_E4M3";
    std::string name = name_of(tensor.type);
    for (char &letter : name) letter = static_cast<char>(std::toupper(letter));
    return name;
}

// The header, preceded by its length.
std::string header_of(const std::vector<target_tensor> &tensors) {
    json root = json::object();
    root["__metadata__"] = {{"format", "pt"}};
    std::string text = json_line(root);
    text.pop_back();
    uint64_t offset_bytes = 0;
    for (const target_tensor &tensor : tensors) {
        const json entry = {{"dtype", type_name(tensor)},
                            {"shape", tensor.shape},
                            {"data_offsets", {offset_bytes, offset_bytes + tensor.bytes()}}};
        text += format(",{}:{}", json_quoted(tensor.name), json_line(entry));
        offset_bytes += tensor.bytes();
    }
    text += '}';
    text.resize((text.size() + 7) / 8 * 8, ' ');
    const uint64_t length = text.size();
    return std::string(reinterpret_cast<const char *>(&length), sizeof length) + text;
}

// A small file beside the weights.
struct side_file {
    std::string name, text;
};

result<json> read_config(const convert_request &request, const model &source) {
    if (is_gguf(request.source)) {
        const auto files = gguf_files::open(request.source);
        if (!files) return files.failure();
        result<json> config = gguf_config_json(*files);
        if (!config) return config;
        const generation_config &generation = source.generation();
        if (!generation.end_ids.empty()) (*config)["eos_token_id"] = generation.end_ids.front();
        if (generation.begin_id >= 0) (*config)["bos_token_id"] = generation.begin_id;
        return config;
    }
    const auto file = mapped_file::open(request.source / "config.json");
    if (!file) return file.failure();
    return read_json({reinterpret_cast<const char *>(file->bytes().data()), file->bytes().size()});
}

result<std::string> config_text(const convert_request &request, const model &source,
                                weight_type type) {
    result<json> config = read_config(request, source);
    if (!config) return config.failure();
    const bool fp8 = type == weight_type::fp8;
    config->erase("quantization_config");
    config->erase("torch_dtype");
    config->erase("num_nextn_predict_layers");  // these layers' weights are not written
    (*config)["dtype"] = type == weight_type::f32   ? "float32"
                         : type == weight_type::f16 ? "float16"
                                                    : "bfloat16";
    if (fp8)
        (*config)["quantization_config"] = {{"quant_method", "fp8"},
                                            {"fmt", "e4m3"},
                                            {"activation_scheme", "dynamic"},
                                            {"weight_block_size", {128, 128}}};
    std::string text = unquote_non_finite_numbers(config->dump(2) + "\n");
    const auto reread = parse_model_config(text, "config.json");
    if (!reread) return reread.failure();
    if (const std::string difference = difference_of(source.config(), *reread); !difference.empty())
        return error{
            format("{}: config.json cannot say it: {}", request.source.string(), difference)};
    return text;
}

// The files about the tokenizer and about generation.
result<std::vector<side_file>> side_files(const convert_request &request, const model &source) {
    std::vector<side_file> files;
    if (is_gguf(request.source)) {
        const auto opened = gguf_files::open(request.source);
        if (!opened) return opened.failure();
        result<std::string> tokenizer_text = tokenizer_json_of(*opened);
        if (!tokenizer_text) return tokenizer_text.failure();
        if (!tokenizer_text->empty())
            files.push_back({"tokenizer.json", std::move(*tokenizer_text)});
        std::vector<int32_t> end_ids = source.generation().end_ids;
        const std::vector<int32_t> &named_ids = source.generation().named_end_ids;
        end_ids.insert(end_ids.end(), named_ids.begin(), named_ids.end());
        if (!end_ids.empty()) {
            const json generation = {{"eos_token_id", end_ids}};
            files.push_back({"generation_config.json", generation.dump(2) + "\n"});
        }
        gguf_reader reader(*opened, "tokenizer.");
        if (const auto text = reader.text("chat_template"))
            files.push_back({"chat_template.jinja", std::string(*text)});
        if (reader.failed()) return reader.failure();
        return files;
    }
    for (const char *name : {"tokenizer.json", "tokenizer_config.json", "generation_config.json",
                             "special_tokens_map.json", "chat_template.jinja", "tokenizer.model"}) {
        const auto file = mapped_file::open(request.source / name);
        if (file)
            files.push_back(
                {name,
                 {reinterpret_cast<const char *>(file->bytes().data()), file->bytes().size()}});
    }
    return files;
}

status write_side_file(const fs::path &path, const side_file &content) {
    result<atomic_file> file = atomic_file::create(path);
    if (!file) return file.failure();
    file->write(std::as_bytes(std::span(content.text)));
    return file->commit();
}

status write_weights(const convert_request &request, const fs::path &path,
                     const std::vector<target_tensor> &tensors, thread_pool &pool) {
    const std::string header = header_of(tensors);
    uint64_t offset_bytes = header.size(), bytes = offset_bytes;
    if (header.size() > header_bytes_max)
        return error{format("{}: {} tensors make a header of {} bytes; {} is the limit",
                            request.source.string(), tensors.size(), header.size(),
                            header_bytes_max)};
    for (const target_tensor &tensor : tensors) bytes += tensor.bytes();
    if (const status space = check_free_space(path, bytes); !space) return space;
    result<atomic_file> file = atomic_file::create(path);
    if (!file) return file.failure();
    file->write_at(0, std::as_bytes(std::span(header)));
    for (const target_tensor &tensor : tensors) {
        if (const status done = write_tensor(tensor, offset_bytes, *file, pool); !done)
            return error{format("{}: {}", request.source.string(), done.failure().text)};
        offset_bytes += tensor.bytes();
    }
    if (const status same = mapped_files_unchanged(); !same) return same;
    return file->commit();
}

status write_all(const convert_request &request, const std::vector<side_file> &files,
                 const std::vector<target_tensor> &tensors, thread_pool &pool) {
    result<atomic_directory> directory = atomic_directory::create(request.target);
    if (!directory) return directory.failure();
    for (const side_file &file : files)
        if (const status done = write_side_file(directory->file(file.name), file); !done)
            return done;
    const fs::path weights = directory->file("model.safetensors");
    if (const status done = write_weights(request, weights, tensors, pool); !done) return done;
    return directory->commit();
}

}  // namespace

result<convert_report> convert_to_directory(const convert_request &request, weight_type type,
                                            thread_pool &pool) {
    std::vector<named_part> parts;
    const auto opened = open_model(request.source, parts);
    if (!opened) return opened.failure();
    const model &source = **opened;
    if (type == weight_type::fp8 &&
        find_architecture(source.config().architecture)->tensors.expert == nullptr)
        return error{
            format("{}: experts of {} lie in one tensor, which fp8 is not written to; bf16, "
                   "f16 and f32 are",
                   request.source.string(), source.config().architecture)};
    result<std::string> config = config_text(request, source, type);
    if (!config) return config.failure();
    result<std::vector<side_file>> files = side_files(request, source);
    if (!files) return files.failure();
    files->push_back({"config.json", std::move(*config)});
    std::vector<target_tensor> tensors;
    directory_collector collector(source, type, tensors);
    for (const named_part &part : parts) collector.add(part);
    if (const status done = write_all(request, *files, tensors, pool); !done) return done.failure();
    convert_report report;
    for (const target_tensor &tensor : tensors) {
        convert_count &count =
            report.formats[tensor.form == row_form::fp8_codes ? "fp8" : name_of(tensor.type)];
        ++count.tensors;
        count.bytes += tensor.bytes();
        report.bytes += tensor.bytes();
    }
    return report;
}

}  // namespace moorage::core
