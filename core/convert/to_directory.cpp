// to_directory.cpp - writes config.json, tokenizer.json, the files beside them, and one safetensors
// file.
#include "core/convert/to_directory.h"

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
#include "core/convert/gguf_metadata.h"
#include "core/convert/parts.h"
#include "core/convert/words.h"
#include "core/convert/write.h"
#include "core/model/architectures.h"
#include "core/model/config_difference.h"
#include "core/model/gguf_config.h"
#include "core/model/gguf_reader.h"
#include "core/model/named_parts.h"

namespace moorage::core {

namespace {

namespace fs = std::filesystem;

// The model's parts under their publishers' names.
class directory_parts {
public:
    directory_parts(const model &of, weight_type type, std::vector<target_tensor> &out)
        : of_(of),
          config_(of.config()),
          row_(*find_architecture(config_.architecture)),
          type_(type),
          out_(out) {}

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
                           whole_kv_b(layer_of(part.name).attention, config_.attention));
        }
    }

private:
    const layer_weights &layer_of(const std::string &name) const {
        constexpr size_t number = std::string_view("model.layers.").size();
        return of_.weights().layers[std::stoul(name.substr(number))];
    }

    // Vectors, routers and tensors without blocks keep their precision.
    void add_exactly(const std::string &name, source_rows from) {
        out_.push_back(make_target(name, weight_type::f32, std::move(from)));
    }
    void add(const std::string &name, source_rows from) {
        if (type_ != weight_type::fp8) {
            out_.push_back(make_target(name, type_, std::move(from)));
            return;
        }
        constexpr std::string_view ending = ".weight";
        const auto blocks = [](uint64_t count) { return (count + 127) / 128; };
        target_tensor codes = make_target(name, weight_type::fp8, from);
        codes.form = row_form::fp8_codes;
        target_tensor scales =
            make_target(name.substr(0, name.size() - ending.size()) + ".weight_scale_inv",
                        weight_type::f32, std::move(from));
        scales.shape = {blocks(codes.shape[0]), blocks(codes.shape[1])};
        scales.form = row_form::fp8_scales;
        out_.push_back(std::move(codes));
        out_.push_back(std::move(scales));
    }

    // GGUF files of some architectures have reordered queries and keys.
    uint32_t heads_of(const std::string &name) const {
        const bool turned_there = config_.attention.kind == attention_kind::grouped &&
                                  config_.rope.interleaved && !row_.interleaved;
        if (!turned_there) return 0;
        if (name.find(".q_proj.") != std::string::npos) return config_.attention.heads;
        return name.find(".k_proj.") != std::string::npos ? config_.attention.kv_heads : 0;
    }
    void add_matrix(const std::string &name, const matrix &of) {
        const uint32_t heads = heads_of(name);
        source_rows from = heads != 0 ? turned(of, heads, turning::to_halves) : rows_of(of);
        const bool router = name.ends_with(std::string(row_.tensors.router) + ".weight");
        if (router || of.rows == 1) return add_exactly(name, std::move(from));
        const bool table = name.starts_with("model.embed_tokens") || name.starts_with("lm_head");
        if (table && type_ == weight_type::fp8) {
            out_.push_back(make_target(name, weight_type::bf16, std::move(from)));
            return;
        }
        add(name, std::move(from));
    }
    void add_vector(const std::string &name, std::span<const float> of) {
        if (const uint32_t heads = heads_of(name)) {
            kept_.push_back(turned(of, heads, turning::to_halves));
            of = kept_.back();
        }
        add_exactly(name, row_of(of));
    }

    void add_experts(const std::string &layer, const std::vector<mlp_weights> &of) {
        const tensor_names &names = row_.tensors;
        if (names.expert == nullptr) return add_fused(layer, of);
        for (size_t i = 0; i < of.size(); ++i) {
            const std::string prefix = format("{}{}.{}.", layer, names.expert, i);
            add(prefix + names.gate + ".weight", rows_of(of[i].gate));
            add(prefix + names.up + ".weight", rows_of(of[i].up));
            add(prefix + names.down + ".weight", rows_of(of[i].down));
        }
    }
    void add_fused(const std::string &layer, const std::vector<mlp_weights> &of) {
        const std::string in = layer + row_.tensors.fused_in, out = layer + row_.tensors.fused_out;
        add(in, row_.tensors.turned ? alternating(of) : joined(of));
        add(out, row_.tensors.turned ? transposed_down(of) : stacked(of, &mlp_weights::down));
        if (!config_.expert_bias) return;
        add_exactly(in + "_bias", alternating_bias(of));
        add_exactly(out + "_bias", stacked(of, &mlp_weights::down_bias));
    }

    const model &of_;
    const model_config &config_;
    const architecture &row_;
    const weight_type type_;
    std::vector<target_tensor> &out_;
    std::deque<std::vector<float>> kept_;
};

std::string type_name(const target_tensor &of) {
    if (of.form == row_form::fp8_codes) return "F8_E4M3";
    std::string name = name_of(of.type);
    for (char &letter : name) letter = static_cast<char>(std::toupper(letter));
    return name;
}

// The header, preceded by its length.
std::string header_of(const std::vector<target_tensor> &tensors) {
    json root = json::object();
    root["__metadata__"] = {{"format", "pt"}};
    std::string text = json_line(root);
    text.pop_back();
    uint64_t at = 0;
    for (const target_tensor &one : tensors) {
        const json entry = {{"dtype", type_name(one)},
                            {"shape", one.shape},
                            {"data_offsets", {at, at + one.bytes()}}};
        text += format(",{}:{}", json_quoted(one.name), json_line(entry));
        at += one.bytes();
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

result<json> read_config(const convert_request &what, const model &of) {
    if (is_gguf(what.in)) {
        const auto files = gguf_files::open(what.in);
        if (!files) return files.failure();
        result<json> words = gguf_config_words(*files);
        if (!words) return words;
        const generation_config &ends = of.generation();
        if (!ends.end_ids.empty()) (*words)["eos_token_id"] = ends.end_ids.front();
        if (ends.begin_id >= 0) (*words)["bos_token_id"] = ends.begin_id;
        return words;
    }
    const auto file = mapped_file::open(what.in / "config.json");
    if (!file) return file.failure();
    return read_json({reinterpret_cast<const char *>(file->bytes().data()), file->bytes().size()});
}

result<std::string> config_text(const convert_request &what, const model &of, weight_type type) {
    result<json> config = read_config(what, of);
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
    std::string text = bare_odd_numbers(config->dump(2) + "\n");
    const auto again = parse_model_config(text, "config.json");
    if (!again) return again.failure();
    if (const std::string difference = difference_of(of.config(), *again); !difference.empty())
        return error{format("{}: config.json cannot say it: {}", what.in.string(), difference)};
    return text;
}

// The files about the tokenizer and about generation.
result<std::vector<side_file>> side_files(const convert_request &what, const model &of) {
    std::vector<side_file> files;
    if (is_gguf(what.in)) {
        const auto opened = gguf_files::open(what.in);
        if (!opened) return opened.failure();
        result<std::string> words = words_of(*opened);
        if (!words) return words.failure();
        if (!words->empty()) files.push_back({"tokenizer.json", std::move(*words)});
        std::vector<int32_t> end_ids = of.generation().end_ids;
        const std::vector<int32_t> &named_ids = of.generation().named_end_ids;
        end_ids.insert(end_ids.end(), named_ids.begin(), named_ids.end());
        if (!end_ids.empty()) {
            const json ends = {{"eos_token_id", end_ids}};
            files.push_back({"generation_config.json", ends.dump(2) + "\n"});
        }
        gguf_reader in(*opened, "tokenizer.");
        if (const auto text = in.text("chat_template"))
            files.push_back({"chat_template.jinja", std::string(*text)});
        if (in.failed()) return in.failure();
        return files;
    }
    for (const char *name : {"tokenizer.json", "tokenizer_config.json", "generation_config.json",
                             "special_tokens_map.json", "chat_template.jinja", "tokenizer.model"}) {
        const auto file = mapped_file::open(what.in / name);
        if (file)
            files.push_back(
                {name,
                 {reinterpret_cast<const char *>(file->bytes().data()), file->bytes().size()}});
    }
    return files;
}

status write_side(const fs::path &path, const side_file &one) {
    result<atomic_file> file = atomic_file::create(path);
    if (!file) return file.failure();
    file->write(std::as_bytes(std::span(one.text)));
    return file->commit();
}

status write_weights(const convert_request &what, const fs::path &path,
                     const std::vector<target_tensor> &tensors, thread_pool &pool) {
    const std::string header = header_of(tensors);
    uint64_t at = header.size(), bytes = at;
    if (header.size() > header_bytes_max)
        return error{format("{}: {} tensors make a header of {} bytes; {} is the limit",
                            what.in.string(), tensors.size(), header.size(), header_bytes_max)};
    for (const target_tensor &one : tensors) bytes += one.bytes();
    if (const status room = check_room(path, bytes); !room) return room;
    result<atomic_file> file = atomic_file::create(path);
    if (!file) return file.failure();
    file->write_at(0, std::as_bytes(std::span(header)));
    for (const target_tensor &one : tensors) {
        if (const status done = write_tensor(one, at, *file, pool); !done)
            return error{format("{}: {}", what.in.string(), done.failure().text)};
        at += one.bytes();
    }
    if (const status same = mapped_files_unchanged(); !same) return same;
    return file->commit();
}

status write_all(const convert_request &what, const std::vector<side_file> &files,
                 const std::vector<target_tensor> &tensors, thread_pool &pool) {
    result<atomic_directory> directory = atomic_directory::create(what.out);
    if (!directory) return directory.failure();
    for (const side_file &one : files)
        if (const status done = write_side(directory->file(one.name), one); !done) return done;
    const fs::path weights = directory->file("model.safetensors");
    if (const status done = write_weights(what, weights, tensors, pool); !done) return done;
    return directory->commit();
}

}  // namespace

result<convert_report> convert_to_directory(const convert_request &what, weight_type type,
                                            thread_pool &pool) {
    std::vector<named_part> parts;
    const auto opened = open_model(what.in, parts);
    if (!opened) return opened.failure();
    const model &of = **opened;
    if (type == weight_type::fp8 &&
        find_architecture(of.config().architecture)->tensors.expert == nullptr)
        return error{
            format("{}: experts of {} lie in one tensor, which fp8 is not written to; bf16, "
                   "f16 and f32 are",
                   what.in.string(), of.config().architecture)};
    result<std::string> config = config_text(what, of, type);
    if (!config) return config.failure();
    result<std::vector<side_file>> files = side_files(what, of);
    if (!files) return files.failure();
    files->push_back({"config.json", std::move(*config)});
    std::vector<target_tensor> tensors;
    directory_parts made(of, type, tensors);
    for (const named_part &part : parts) made.add(part);
    if (const status done = write_all(what, *files, tensors, pool); !done) return done.failure();
    convert_report report;
    for (const target_tensor &one : tensors) {
        convert_count &count =
            report.formats[one.form == row_form::fp8_codes ? "fp8" : name_of(one.type)];
        ++count.tensors;
        count.bytes += one.bytes();
        report.bytes += one.bytes();
    }
    return report;
}

}  // namespace moorage::core
