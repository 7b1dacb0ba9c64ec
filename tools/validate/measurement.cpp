// measurement.cpp - reads rows by the names of their columns.
#include "tools/validate/measurement.h"

#include <set>

#include "core/base/safetensors.h"
#include "core/base/text.h"

namespace moorage::core {

namespace {

constexpr double bytes_max = 1e13, tokens_max = 1 << 24, count_max = 1 << 20, rate_max = 1e9;
constexpr double time_ms_max = 1e9, time_ms_min = 1e-9, bits_min = 0.1, rate_min = 1e-3;

// The cells of one row. The first one that cannot be read is noted in `unreadable`.
class row_reader {
public:
    row_reader(const csv_table &table, size_t row, std::string &unreadable)
        : table_(table), row_(row), unreadable_(unreadable) {}

    void read(const char *column, std::string &target) { target = table_.cell(row_, column); }
    void read(const char *column, double &target, double max, double min = 0) {
        const auto value = table_.number(row_, column, unknown, max, min);
        if (value)
            target = *value;
        else
            note(value.failure().text);
    }
    void fail(const std::string &problem) {
        note(format("{}: {}", table_.row_location(row_), problem));
    }

private:
    void note(const std::string &reason) {
        if (unreadable_.empty()) unreadable_ = reason;
    }

    const csv_table &table_;
    size_t row_;
    std::string &unreadable_;
};

void read_machine(row_reader &row, measurement &figure) {
    row.read("gpu", figure.gpu);
    row.read("gpu_count", figure.gpu_count, count_max);
    row.read("cpu_model", figure.cpu_model);
    row.read("sockets", figure.sockets, count_max);
    row.read("cores_per_socket", figure.cores, count_max);
    row.read("threads", figure.threads, count_max);
    row.read("memory_type", figure.memory_type);
    row.read("memory_channels", figure.memory_channels, count_max);
    row.read("memory_gb_s", figure.memory_gb_s, rate_max, rate_min);
    row.read("link_gen", figure.link_gen);
    row.read("link_width", figure.link_width);
    row.read("link_basis", figure.link_basis);
    row.read("link_memory", figure.link_memory);
    row.read("link_gb_s", figure.link_gb_s, rate_max, rate_min);
    row.read("copy_piece", figure.copy_piece);
}

void read_model(row_reader &row, measurement &figure) {
    row.read("model_shape", figure.model_shape);
    row.read("bits_experts", figure.expert_bits, 64, bits_min);
    row.read("bits_dense", figure.dense_bits, 64, bits_min);
    row.read("bits_head", figure.head_bits, 64, bits_min);
    row.read("expert_bytes", figure.expert_bytes, bytes_max);
    row.read("dense_bytes_per_token", figure.dense_bytes, bytes_max);
    row.read("head_bytes", figure.head_bytes, bytes_max);
    row.read("top_k", figure.top_k, count_max);
}

void read_work(row_reader &row, measurement &figure) {
    row.read("engine", figure.engine);
    row.read("engine_version", figure.engine_version);
    row.read("graphs", figure.graphs);
    row.read("residency_kind", figure.residency);
    row.read("residency_value", figure.residency_value, bytes_max);
    row.read("miss_action", figure.miss_action);
    row.read("host_layers", figure.host_layers, count_max);
    row.read("hit_rate", figure.hit_rate, 1);
    row.read("context_tokens", figure.context_tokens, tokens_max);
    row.read("measured_tokens", figure.measured_tokens, tokens_max);
    row.read("prompt_tokens", figure.prompt_tokens, tokens_max);
    row.read("batch", figure.batch, tokens_max);
    row.read("microbatch", figure.microbatch, tokens_max);
}

void read_figure(row_reader &row, measurement &figure) {
    std::string phase;
    row.read("phase", phase);
    row.read("tpot_ms", figure.step_ms, time_ms_max, time_ms_min);
    row.read("prefill_tokens_per_s", figure.prompt_tokens_per_s, rate_max, time_ms_min);
    figure.prompt = phase == "prefill";
    if (!figure.prompt && phase != "decode")
        row.fail(format("phase {}: decode or prefill is needed", printable(phase)));
    if ((figure.prompt ? figure.prompt_tokens_per_s : figure.step_ms) <= 0)
        row.fail(format("{} of a row of {}: a number above 0 is needed",
                        figure.prompt ? "prefill_tokens_per_s" : "tpot_ms", phase));
}

status require_columns(const csv_table &table, std::initializer_list<const char *> columns) {
    for (const char *column : columns)
        if (!table.has(column))
            return error{format("{}: no column {}; docs/validate.md describes the columns",
                                table.name(), column),
                         true};
    if (table.rows() == 0) return error{table.name() + ": no rows below the first line", true};
    return success();
}

}  // namespace

result<std::vector<measurement>> read_measurements(const csv_table &table) {
    if (const status done = require_columns(
            table, {"id", "phase", "model_shape", "gpu", "engine", "residency_kind"});
        !done)
        return done.failure();
    std::vector<measurement> figures;
    std::set<std::string> ids;
    for (size_t index = 0; index < table.rows(); ++index) {
        measurement figure;
        row_reader row(table, index, figure.unreadable);
        figure.place = table.row_location(index);
        row.read("id", figure.id);
        row.read("group", figure.group);
        row.read("quality", figure.quality);
        row.read("emulable", figure.emulable);
        read_figure(row, figure);
        read_model(row, figure);
        read_machine(row, figure);
        read_work(row, figure);
        if (figure.id.empty())
            return error{figure.place + ": id is empty; pairs name rows by it", true};
        if (!ids.insert(figure.id).second)
            return error{format("{}: id {} is there twice", figure.place, printable(figure.id)),
                         true};
        figures.push_back(std::move(figure));
    }
    return figures;
}

result<std::vector<measured_pair>> read_pairs(const csv_table &table) {
    if (const status done = require_columns(table, {"pair", "row_a", "row_b", "slowdown_b_over_a"});
        !done)
        return done.failure();
    std::vector<measured_pair> pairs;
    for (size_t index = 0; index < table.rows(); ++index) {
        measured_pair pair;
        row_reader row(table, index, pair.unreadable);
        std::string unit;
        row.read("pair", pair.pair);
        row.read("row_a", pair.row_a);
        row.read("row_b", pair.row_b);
        row.read("effect", pair.effect);
        row.read("strength", pair.strength);
        row.read("unit", unit);
        row.read("slowdown_b_over_a", pair.slowdown, time_ms_max, time_ms_min);
        pair.per_token = unit == "ms a token";
        if (pair.slowdown <= 0) row.fail("slowdown_b_over_a: a number above 0 is needed");
        pairs.push_back(std::move(pair));
    }
    return pairs;
}

}  // namespace moorage::core
