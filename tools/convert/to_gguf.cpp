// to_gguf.cpp - keys and tensors: copied from a GGUF file, or made from a directory's model.
#include "tools/convert/to_gguf.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <utility>

#include "core/base/atomic_file.h"
#include "core/base/log.h"
#include "core/base/mapped_file.h"
#include "core/base/safetensors.h"
#include "core/base/text.h"
#include "tools/convert/gguf_metadata.h"
#include "tools/convert/parts.h"
#include "tools/convert/words.h"
#include "tools/convert/write.h"
#include "core/model/config_difference.h"
#include "core/model/gguf_config.h"
#include "core/model/gguf_weights.h"
#include "core/model/named_parts.h"

namespace moorage::core {

namespace {

// The content of a file. `owned_vectors` holds vectors that exist nowhere else.
struct gguf_plan {
    gguf_keys keys;
    std::vector<target_tensor> tensors;
    std::deque<std::vector<float>> owned_vectors;
    recipe_model model;
};

recipe_model recipe_model_of(const model_config &config, bool tied) {
    const attention_config &attention = config.attention;
    const uint32_t key_heads = attention.kind == attention_kind::latent ? 1 : attention.kv_heads;
    return {config.layers, config.experts, attention.heads / key_heads, tied};
}

void put_file_type(const recipe &recipe, gguf_keys &keys) {
    constexpr uint32_t quantization_version = 2;
    keys.number("general.file_type", recipe.file_type);
    if (format_of(recipe.base).block > 1)
        keys.number("general.quantization_version", quantization_version);
}

// The parts of a model under their names in GGUF files.
class gguf_collector {
public:
    gguf_collector(const model &source, const recipe &recipe, gguf_plan &plan)
        : source_(source),
          config_(source.config()),
          arch_(gguf_architecture_of(config_.architecture)),
          recipe_(recipe),
          plan_(plan) {}

    void add(const named_part &part) {
        const std::string name = part.kind == part_kind::experts || part.kind == part_kind::latent
                                     ? std::string()
                                     : gguf_tensor_name(part.name, arch_.mlp_norm);
        switch (part.kind) {
            case part_kind::matrix:
                return add_matrix(name, part.weights);
            case part_kind::vector:
                return add_vector(name, part.values);
            case part_kind::experts:
                return add_experts(gguf_block_name(part.name), layer_of(part.name).experts);
            case part_kind::latent:
                return add_latent(part.name);
        }
    }
    // If llama.cpp requires a head, the embedding is written twice.
    void add_head() {
        if (config_.tied_embedding && !arch_.can_omit_head)
            add("output.weight", rows_of(source_.weights().embedding));
    }
    void add_factors() {
        const rotation_factors factors = rotation_factors_of(config_);
        add_owned("rope_freqs.weight", factors.all_contexts);
        add_owned("rope_factors_short.weight", factors.short_contexts);
        add_owned("rope_factors_long.weight", factors.long_contexts);
    }

private:
    // The layer of a name that begins with "model.layers.3.".
    const layer_weights &layer_of(const std::string &name) const {
        constexpr size_t number = std::string_view("model.layers.").size();
        return source_.weights().layers[std::stoul(name.substr(number))];
    }

    void add(const std::string &name, source_rows rows) {
        const chosen_type chosen = choose_type(recipe_, plan_.model, name, rows.shape);
        plan_.tensors.push_back(make_target(name, chosen.type, std::move(rows)));
    }
    void add_owned(const std::string &name, std::vector<float> values) {
        if (values.empty()) return;
        plan_.owned_vectors.push_back(std::move(values));
        add(name, single_row_of(plan_.owned_vectors.back()));
    }

    // The number of heads of a query or key matrix that the file has reordered; 0: it is none.
    uint32_t heads_of(const std::string &name) const {
        if (!arch_.rotates_neighbours || config_.rope.interleaved) return 0;
        if (name.find(".attn_q.") != std::string::npos) return config_.attention.heads;
        return name.find(".attn_k.") != std::string::npos ? config_.attention.kv_heads : 0;
    }
    void add_matrix(const std::string &name, const matrix &weights) {
        if (const uint32_t heads = heads_of(name))
            return add(name, reorder_heads(weights, heads, head_order::to_neighbours));
        source_rows rows = rows_of(weights);
        if (weights.rows == 1) rows.shape = {weights.columns};  // the gate of the shared expert
        add(name, std::move(rows));
    }
    void add_vector(const std::string &name, std::span<const float> values) {
        if (const uint32_t heads = heads_of(name))
            return add_owned(name, reorder_heads(values, heads, head_order::to_neighbours));
        add(name, single_row_of(values));
    }

    void add_experts(const std::string &block, const std::vector<mlp_weights> &experts) {
        add(block + "ffn_gate_exps.weight", stack_experts(experts, &mlp_weights::gate));
        add(block + "ffn_up_exps.weight", stack_experts(experts, &mlp_weights::up));
        add(block + "ffn_down_exps.weight", stack_experts(experts, &mlp_weights::down));
        if (!config_.expert_bias) return;
        add(block + "ffn_gate_exps.bias", stack_experts(experts, &mlp_weights::gate_bias));
        add(block + "ffn_up_exps.bias", stack_experts(experts, &mlp_weights::up_bias));
        add(block + "ffn_down_exps.bias", stack_experts(experts, &mlp_weights::down_bias));
    }
    void add_latent(const std::string &prefix) {
        const attention_weights &attention = layer_of(prefix).attention;
        const std::string kv_b_name = gguf_tensor_name(prefix + "kv_b_proj.weight", arch_.mlp_norm);
        const std::string block = kv_b_name.substr(0, kv_b_name.rfind("attn_kv_b"));
        add(block + "attn_k_b.weight", key_half_rows(attention, config_.attention));
        add(block + "attn_v_b.weight", value_half_rows(attention, config_.attention));
    }

    const model &source_;
    const model_config &config_;
    const gguf_architecture &arch_;
    const recipe &recipe_;
    gguf_plan &plan_;
};

status plan_directory(const model &source, const std::vector<named_part> &parts,
                      const recipe &recipe, gguf_plan &plan) {
    const model_config &config = source.config();
    const std::string directory = source.directory().string();
    if (config.attention.kind == attention_kind::latent && !config.rope.interleaved)
        return error{
            format("{}: rope_interleave is false; GGUF files of this architecture turn "
                   "neighbours",
                   directory)};
    plan.model = recipe_model_of(
        config, config.tied_embedding && gguf_architecture_of(config.architecture).can_omit_head);
    plan.keys.text("general.architecture", gguf_architecture_of(config.architecture).name);
    plan.keys.text("general.type", "model");
    const auto path = source.directory().lexically_normal();
    plan.keys.text("general.name",
                   (path.has_filename() ? path : path.parent_path()).filename().string());
    put_config(config, plan.keys);
    put_file_type(recipe, plan.keys);
    if (const status done = put_tokenizer(source, plan.keys); !done) return done;
    gguf_collector collector(source, recipe, plan);
    for (const named_part &part : parts) collector.add(part);
    collector.add_head();
    collector.add_factors();
    return success();
}

// Keeps everything but the formats of tensors.
void plan_gguf(const gguf_files &files, const model_config &config, const recipe &recipe,
               gguf_plan &plan) {
    plan.model = recipe_model_of(config, config.tied_embedding);
    for (const gguf_key &key : files.keys())
        if (!key.name.starts_with("split.") && key.name != "general.file_type" &&
            key.name != "general.quantization_version" && key.name != "general.alignment")
            plan.keys.copy(key);
    put_file_type(recipe, plan.keys);
    for (const gguf_tensor &tensor : files.tensors()) {
        if (!tensor.other_type.empty()) {
            log_warning(
                format("{}: tensor {} is of type {}, which no part needs and nothing here "
                       "writes; it is left out",
                       *tensor.file, printable(tensor.name), tensor.other_type));
            continue;
        }
        const uint64_t columns = tensor.shape.back();
        source_rows rows =
            rows_of(packed_matrix(tensor.type, static_cast<uint32_t>(tensor.values() / columns),
                                  static_cast<uint32_t>(columns), tensor.bytes.data()));
        rows.shape = tensor.shape;
        const chosen_type chosen = choose_type(recipe, plan.model, tensor.name, tensor.shape);
        plan.tensors.push_back(make_target(tensor.name, chosen.type, std::move(rows)));
    }
}

// Fails if a format with blocks was asked for and the experts, most of the weights, cannot have it.
status check_experts(const convert_request &request, const recipe &recipe, const gguf_plan &plan) {
    if (format_of(recipe.base).block == 1) return success();
    for (const target_tensor &tensor : plan.tensors) {
        if (tensor.type != weight_type::f16 ||
            tensor.name.find("_exps.weight") == std::string::npos)
            continue;
        const weight_type wanted =
            choose_type(recipe, plan.model, tensor.name, tensor.shape).wanted;
        return error{
            format("{}: tensor {} has rows of {} values, which are no whole blocks of {} "
                   "({} values) nor of 32; bf16, f16 and f32 fit",
                   request.source.string(), tensor.name, tensor.shape.back(), name_of(wanted),
                   format_of(wanted).block)};
    }
    return success();
}

convert_report report_of(const recipe &recipe, const gguf_plan &plan) {
    convert_report report;
    for (const target_tensor &tensor : plan.tensors) {
        convert_count &count = report.formats[name_of(tensor.type)];
        ++count.tensors;
        count.bytes += tensor.bytes();
        report.bytes += tensor.bytes();
        const chosen_type chosen = choose_type(recipe, plan.model, tensor.name, tensor.shape);
        report.replaced += chosen.type != chosen.wanted;
    }
    return report;
}

std::string difference_of_ends(const model &source, const model &written) {
    std::vector<int32_t> source_ends = source.generation().end_ids,
                         written_ends = written.generation().end_ids;
    std::ranges::sort(source_ends);
    std::ranges::sort(written_ends);
    if (source_ends == written_ends) return {};
    return format("eos_token_id is [{}] and would be [{}]", fmt::join(source_ends, ", "),
                  fmt::join(written_ends, ", "));
}

// Checks that the file with vectors but without matrices opens and agrees with the source.
status check_draft(const model &source, const std::string &draft, const convert_request &request) {
    const auto written = open_model(draft);
    if (!written)
        return error{
            format("{}: as a GGUF file: {}", request.source.string(), written.failure().text)};
    std::string difference = difference_of(source.config(), (*written)->config());
    if (difference.empty()) difference = difference_of_ends(source, **written);
    if (difference.empty()) return success();
    return error{format("{}: GGUF files of {} cannot say it: {}", request.source.string(),
                        gguf_architecture_of(source.config().architecture).name, difference)};
}

status write_plan(const convert_request &request, const gguf_plan &plan, const model &source,
                  thread_pool &pool) {
    // This also holds for a further part of a split model.
    if (is_mapped_file(request.target))
        return error{
            format("{}: is what is read; name another file to write", request.target.string()),
            true};
    const gguf_layout layout = lay_out(plan.keys, plan.tensors);
    if (const status space = check_free_space(request.target, layout.bytes); !space) return space;
    result<atomic_file> file = atomic_file::create(request.target);
    if (!file) return file.failure();
    file->write_at(0, std::as_bytes(std::span(layout.header)));
    constexpr std::byte end{};
    file->write_at(layout.bytes - 1, {&end, 1});
    for (const bool vectors : {true, false}) {
        for (size_t i = 0; i < plan.tensors.size(); ++i) {
            const target_tensor &tensor = plan.tensors[i];
            if ((tensor.shape.size() == 1) != vectors) continue;
            if (const status done = write_tensor(tensor, layout.offsets[i], *file, pool); !done)
                return error{format("{}: {}", request.source.string(), done.failure().text)};
        }
        // The keys of a GGUF file are copied unchanged.
        if (!vectors || is_gguf(request.source)) continue;
        if (const status done = file->write_status(); !done) return done;
        if (const status fine = check_draft(source, file->draft_path(), request); !fine)
            return fine;
    }
    if (const status same = mapped_files_unchanged(); !same) return same;
    return file->commit();
}

}  // namespace

result<convert_report> convert_to_gguf(const convert_request &request, const recipe &recipe,
                                       thread_pool &pool) {
    // A source that cannot be opened is not converted, whatever kind of file it is.
    std::vector<named_part> parts;
    const result<std::unique_ptr<model>> source = open_model(request.source, parts);
    if (!source) return source.failure();
    gguf_plan plan;
    std::optional<gguf_files> files;
    if (is_gguf(request.source)) {
        result<gguf_files> opened = gguf_files::open(request.source);
        if (!opened) return opened.failure();
        files.emplace(std::move(*opened));
        plan_gguf(*files, (*source)->config(), recipe, plan);
    } else if (const status done = plan_directory(**source, parts, recipe, plan); !done) {
        return done.failure();
    }
    if (const status fits = check_experts(request, recipe, plan); !fits) return fits.failure();
    if (const status done = write_plan(request, plan, **source, pool); !done) return done.failure();
    return report_of(recipe, plan);
}

}  // namespace moorage::core
