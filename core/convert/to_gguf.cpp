// to_gguf.cpp - keys and tensors: copied from a GGUF file, or made from a directory's model.
#include "core/convert/to_gguf.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <utility>

#include "core/base/atomic_file.h"
#include "core/base/log.h"
#include "core/base/mapped_file.h"
#include "core/base/safetensors.h"
#include "core/base/text.h"
#include "core/convert/gguf_metadata.h"
#include "core/convert/parts.h"
#include "core/convert/words.h"
#include "core/convert/write.h"
#include "core/model/config_difference.h"
#include "core/model/gguf_config.h"
#include "core/model/gguf_weights.h"
#include "core/model/named_parts.h"

namespace moorage::core {

namespace {

// The content of a file. `kept` holds vectors that exist nowhere else.
struct gguf_plan {
    gguf_keys keys;
    std::vector<target_tensor> tensors;
    std::deque<std::vector<float>> kept;
    recipe_model model;
};

recipe_model rules_of(const model_config &config, bool tied) {
    const attention_config &of = config.attention;
    const uint32_t keys = of.kind == attention_kind::latent ? 1 : of.kv_heads;
    return {config.layers, config.experts, of.heads / keys, tied};
}

void put_format(const recipe &how, gguf_keys &keys) {
    constexpr uint32_t quantization_version = 2;
    keys.number("general.file_type", how.file_type);
    if (format_of(how.base).block > 1)
        keys.number("general.quantization_version", quantization_version);
}

// The parts of a model under their names in GGUF files.
class gguf_parts {
public:
    gguf_parts(const model &of, const recipe &how, gguf_plan &plan)
        : of_(of),
          config_(of.config()),
          row_(gguf_architecture_of(config_.architecture)),
          how_(how),
          plan_(plan) {}

    void add(const named_part &part) {
        const std::string name = part.kind == part_kind::experts || part.kind == part_kind::latent
                                     ? std::string()
                                     : gguf_tensor_name(part.name, row_.mlp_norm);
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
        if (config_.tied_embedding && !row_.ties)
            add("output.weight", rows_of(of_.weights().embedding));
    }
    void add_factors() {
        const rotation_factors factors = rotation_factors_of(config_);
        add_kept("rope_freqs.weight", factors.both);
        add_kept("rope_factors_short.weight", factors.of_short);
        add_kept("rope_factors_long.weight", factors.of_long);
    }

private:
    // The layer of a name that begins with "model.layers.3.".
    const layer_weights &layer_of(const std::string &name) const {
        constexpr size_t number = std::string_view("model.layers.").size();
        return of_.weights().layers[std::stoul(name.substr(number))];
    }

    void add(const std::string &name, source_rows from) {
        const chosen_type chosen = choose_type(how_, plan_.model, name, from.shape);
        plan_.tensors.push_back(make_target(name, chosen.type, std::move(from)));
    }
    void add_kept(const std::string &name, std::vector<float> values) {
        if (values.empty()) return;
        plan_.kept.push_back(std::move(values));
        add(name, row_of(plan_.kept.back()));
    }

    // The number of heads of a query or key matrix that the file has reordered; 0: it is none.
    uint32_t heads_of(const std::string &name) const {
        if (!row_.neighbours || config_.rope.interleaved) return 0;
        if (name.find(".attn_q.") != std::string::npos) return config_.attention.heads;
        return name.find(".attn_k.") != std::string::npos ? config_.attention.kv_heads : 0;
    }
    void add_matrix(const std::string &name, const matrix &of) {
        if (const uint32_t heads = heads_of(name))
            return add(name, turned(of, heads, turning::to_neighbours));
        source_rows from = rows_of(of);
        if (of.rows == 1) from.shape = {of.columns};  // the gate of the shared expert
        add(name, std::move(from));
    }
    void add_vector(const std::string &name, std::span<const float> of) {
        if (const uint32_t heads = heads_of(name))
            return add_kept(name, turned(of, heads, turning::to_neighbours));
        add(name, row_of(of));
    }

    void add_experts(const std::string &block, const std::vector<mlp_weights> &of) {
        add(block + "ffn_gate_exps.weight", stacked(of, &mlp_weights::gate));
        add(block + "ffn_up_exps.weight", stacked(of, &mlp_weights::up));
        add(block + "ffn_down_exps.weight", stacked(of, &mlp_weights::down));
        if (!config_.expert_bias) return;
        add(block + "ffn_gate_exps.bias", stacked(of, &mlp_weights::gate_bias));
        add(block + "ffn_up_exps.bias", stacked(of, &mlp_weights::up_bias));
        add(block + "ffn_down_exps.bias", stacked(of, &mlp_weights::down_bias));
    }
    void add_latent(const std::string &prefix) {
        const attention_weights &of = layer_of(prefix).attention;
        const std::string whole = gguf_tensor_name(prefix + "kv_b_proj.weight", row_.mlp_norm);
        const std::string block = whole.substr(0, whole.rfind("attn_kv_b"));
        add(block + "attn_k_b.weight", keys_half(of, config_.attention));
        add(block + "attn_v_b.weight", values_half(of, config_.attention));
    }

    const model &of_;
    const model_config &config_;
    const gguf_architecture &row_;
    const recipe &how_;
    gguf_plan &plan_;
};

status plan_directory(const model &of, const std::vector<named_part> &parts, const recipe &how,
                      gguf_plan &plan) {
    const model_config &config = of.config();
    const std::string place = of.directory().string();
    if (config.attention.kind == attention_kind::latent && !config.rope.interleaved)
        return error{
            format("{}: rope_interleave is false; GGUF files of this architecture turn "
                   "neighbours",
                   place)};
    plan.model =
        rules_of(config, config.tied_embedding && gguf_architecture_of(config.architecture).ties);
    plan.keys.text("general.architecture", gguf_architecture_of(config.architecture).name);
    plan.keys.text("general.type", "model");
    const auto path = of.directory().lexically_normal();
    plan.keys.text("general.name",
                   (path.has_filename() ? path : path.parent_path()).filename().string());
    put_config(config, plan.keys);
    put_format(how, plan.keys);
    if (const status done = put_words(of, plan.keys); !done) return done;
    gguf_parts made(of, how, plan);
    for (const named_part &part : parts) made.add(part);
    made.add_head();
    made.add_factors();
    return success();
}

// Keeps everything but the formats of tensors.
void plan_gguf(const gguf_files &from, const model_config &config, const recipe &how,
               gguf_plan &plan) {
    plan.model = rules_of(config, config.tied_embedding);
    for (const gguf_key &key : from.keys())
        if (!key.name.starts_with("split.") && key.name != "general.file_type" &&
            key.name != "general.quantization_version" && key.name != "general.alignment")
            plan.keys.copy(key);
    put_format(how, plan.keys);
    for (const gguf_tensor &one : from.tensors()) {
        if (!one.other_type.empty()) {
            log_warning(
                format("{}: tensor {} is of type {}, which no part needs and nothing here "
                       "writes; it is left out",
                       *one.file, shown(one.name), one.other_type));
            continue;
        }
        const uint64_t columns = one.shape.back();
        source_rows rows =
            rows_of(packed_matrix(one.type, static_cast<uint32_t>(one.values() / columns),
                                  static_cast<uint32_t>(columns), one.bytes.data()));
        rows.shape = one.shape;
        const chosen_type chosen = choose_type(how, plan.model, one.name, one.shape);
        plan.tensors.push_back(make_target(one.name, chosen.type, std::move(rows)));
    }
}

// Fails if a format with blocks was asked for and the experts, most of the weights, cannot have it.
status check_experts(const convert_request &what, const recipe &how, const gguf_plan &plan) {
    if (format_of(how.base).block == 1) return success();
    for (const target_tensor &one : plan.tensors) {
        if (one.type != weight_type::f16 || one.name.find("_exps.weight") == std::string::npos)
            continue;
        const weight_type wanted = choose_type(how, plan.model, one.name, one.shape).wanted;
        return error{
            format("{}: tensor {} has rows of {} values, which are no whole blocks of {} "
                   "({} values) nor of 32; bf16, f16 and f32 fit",
                   what.in.string(), one.name, one.shape.back(), name_of(wanted),
                   format_of(wanted).block)};
    }
    return success();
}

convert_report report_of(const recipe &how, const gguf_plan &plan) {
    convert_report report;
    for (const target_tensor &one : plan.tensors) {
        convert_count &count = report.formats[name_of(one.type)];
        ++count.tensors;
        count.bytes += one.bytes();
        report.bytes += one.bytes();
        const chosen_type chosen = choose_type(how, plan.model, one.name, one.shape);
        report.replaced += chosen.type != chosen.wanted;
    }
    return report;
}

std::string difference_of_ends(const model &is, const model &made) {
    std::vector<int32_t> ends = is.generation().end_ids, read = made.generation().end_ids;
    std::ranges::sort(ends);
    std::ranges::sort(read);
    if (ends == read) return {};
    return format("eos_token_id is [{}] and would be [{}]", fmt::join(ends, ", "),
                  fmt::join(read, ", "));
}

// Checks that the file with vectors but without matrices opens and agrees with the source.
status check_draft(const model &of, const std::string &draft, const convert_request &what) {
    const auto made = open_model(draft);
    if (!made)
        return error{format("{}: as a GGUF file: {}", what.in.string(), made.failure().text)};
    std::string difference = difference_of(of.config(), (*made)->config());
    if (difference.empty()) difference = difference_of_ends(of, **made);
    if (difference.empty()) return success();
    return error{format("{}: GGUF files of {} cannot say it: {}", what.in.string(),
                        gguf_architecture_of(of.config().architecture).name, difference)};
}

status write_plan(const convert_request &what, const gguf_plan &plan, const model &of,
                  thread_pool &pool) {
    // This also holds for a further part of a split model.
    if (mapped_file_has(what.out))
        return error{format("{}: is what is read; name another file to write", what.out.string()),
                     true};
    const gguf_layout layout = lay_out(plan.keys, plan.tensors);
    if (const status room = check_room(what.out, layout.bytes); !room) return room;
    result<atomic_file> file = atomic_file::create(what.out);
    if (!file) return file.failure();
    file->write_at(0, std::as_bytes(std::span(layout.header)));
    constexpr std::byte end{};
    file->write_at(layout.bytes - 1, {&end, 1});
    for (const bool vectors : {true, false}) {
        for (size_t i = 0; i < plan.tensors.size(); ++i) {
            const target_tensor &one = plan.tensors[i];
            if ((one.shape.size() == 1) != vectors) continue;
            if (const status done = write_tensor(one, layout.offsets[i], *file, pool); !done)
                return error{format("{}: {}", what.in.string(), done.failure().text)};
        }
        // The keys of a GGUF file are copied unchanged.
        if (!vectors || is_gguf(what.in)) continue;
        if (const status done = file->written(); !done) return done;
        if (const status fine = check_draft(of, file->draft(), what); !fine) return fine;
    }
    if (const status same = mapped_files_unchanged(); !same) return same;
    return file->commit();
}

}  // namespace

result<convert_report> convert_to_gguf(const convert_request &what, const recipe &how,
                                       thread_pool &pool) {
    // A source that cannot be opened is not converted, whatever kind of file it is.
    std::vector<named_part> parts;
    const result<std::unique_ptr<model>> source = open_model(what.in, parts);
    if (!source) return source.failure();
    gguf_plan plan;
    std::optional<gguf_files> files;
    if (is_gguf(what.in)) {
        result<gguf_files> opened = gguf_files::open(what.in);
        if (!opened) return opened.failure();
        files.emplace(std::move(*opened));
        plan_gguf(*files, (*source)->config(), how, plan);
    } else if (const status done = plan_directory(**source, parts, how, plan); !done) {
        return done.failure();
    }
    if (const status fits = check_experts(what, how, plan); !fits) return fits.failure();
    if (const status done = write_plan(what, plan, **source, pool); !done) return done.failure();
    return report_of(how, plan);
}

}  // namespace moorage::core
