// measurement.cpp - reads rows by the names of their columns.
#include "core/validate/measurement.h"

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

    void read(const char *column, std::string &out) { out = table_.cell(row_, column); }
    void read(const char *column, double &out, double max, double min = 0) {
        const auto value = table_.number(row_, column, unknown, max, min);
        if (value)
            out = *value;
        else
            keep(value.failure().text);
    }
    void fail(const std::string &what) { keep(format("{}: {}", table_.place(row_), what)); }

private:
    void keep(const std::string &why) {
        if (unreadable_.empty()) unreadable_ = why;
    }

    const csv_table &table_;
    size_t row_;
    std::string &unreadable_;
};

void read_machine(row_reader &row, measurement &one) {
    row.read("gpu", one.gpu);
    row.read("gpu_count", one.gpu_count, count_max);
    row.read("cpu_model", one.cpu_model);
    row.read("sockets", one.sockets, count_max);
    row.read("cores_per_socket", one.cores, count_max);
    row.read("threads", one.threads, count_max);
    row.read("memory_type", one.memory_type);
    row.read("memory_channels", one.memory_channels, count_max);
    row.read("memory_gb_s", one.memory_gb_s, rate_max, rate_min);
    row.read("link_gen", one.link_gen);
    row.read("link_width", one.link_width);
    row.read("link_basis", one.link_basis);
    row.read("link_memory", one.link_memory);
    row.read("link_gb_s", one.link_gb_s, rate_max, rate_min);
    row.read("copy_piece", one.copy_piece);
}

void read_model(row_reader &row, measurement &one) {
    row.read("model_shape", one.model_shape);
    row.read("bits_experts", one.expert_bits, 64, bits_min);
    row.read("bits_dense", one.dense_bits, 64, bits_min);
    row.read("bits_head", one.head_bits, 64, bits_min);
    row.read("expert_bytes", one.expert_bytes, bytes_max);
    row.read("dense_bytes_per_token", one.dense_bytes, bytes_max);
    row.read("head_bytes", one.head_bytes, bytes_max);
    row.read("top_k", one.top_k, count_max);
}

void read_work(row_reader &row, measurement &one) {
    row.read("engine", one.engine);
    row.read("engine_version", one.engine_version);
    row.read("graphs", one.graphs);
    row.read("residency_kind", one.residency);
    row.read("residency_value", one.residency_value, bytes_max);
    row.read("miss_action", one.miss_action);
    row.read("host_layers", one.host_layers, count_max);
    row.read("hit_rate", one.hit_rate, 1);
    row.read("context_tokens", one.context_tokens, tokens_max);
    row.read("measured_tokens", one.measured_tokens, tokens_max);
    row.read("prompt_tokens", one.prompt_tokens, tokens_max);
    row.read("batch", one.batch, tokens_max);
    row.read("microbatch", one.microbatch, tokens_max);
}

void read_figure(row_reader &row, measurement &one) {
    std::string phase;
    row.read("phase", phase);
    row.read("tpot_ms", one.step_ms, time_ms_max, time_ms_min);
    row.read("prefill_tokens_per_s", one.prompt_tokens_per_s, rate_max, time_ms_min);
    one.prompt = phase == "prefill";
    if (!one.prompt && phase != "decode")
        row.fail(format("phase {}: decode or prefill is needed", shown(phase)));
    if ((one.prompt ? one.prompt_tokens_per_s : one.step_ms) <= 0)
        row.fail(format("{} of a row of {}: a number above 0 is needed",
                        one.prompt ? "prefill_tokens_per_s" : "tpot_ms", phase));
}

status need_columns(const csv_table &table, std::initializer_list<const char *> columns) {
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
    if (const status done =
            need_columns(table, {"id", "phase", "model_shape", "gpu", "engine", "residency_kind"});
        !done)
        return done.failure();
    std::vector<measurement> all;
    std::set<std::string> ids;
    for (size_t at = 0; at < table.rows(); ++at) {
        measurement one;
        row_reader row(table, at, one.unreadable);
        one.place = table.place(at);
        row.read("id", one.id);
        row.read("group", one.group);
        row.read("quality", one.quality);
        row.read("emulable", one.emulable);
        read_figure(row, one);
        read_model(row, one);
        read_machine(row, one);
        read_work(row, one);
        if (one.id.empty()) return error{one.place + ": id is empty; pairs name rows by it", true};
        if (!ids.insert(one.id).second)
            return error{format("{}: id {} is there twice", one.place, shown(one.id)), true};
        all.push_back(std::move(one));
    }
    return all;
}

result<std::vector<measured_pair>> read_pairs(const csv_table &table) {
    if (const status done = need_columns(table, {"pair", "row_a", "row_b", "slowdown_b_over_a"});
        !done)
        return done.failure();
    std::vector<measured_pair> all;
    for (size_t at = 0; at < table.rows(); ++at) {
        measured_pair one;
        row_reader row(table, at, one.unreadable);
        std::string unit;
        row.read("pair", one.pair);
        row.read("row_a", one.row_a);
        row.read("row_b", one.row_b);
        row.read("effect", one.effect);
        row.read("strength", one.strength);
        row.read("unit", unit);
        row.read("slowdown_b_over_a", one.slowdown, time_ms_max, time_ms_min);
        one.per_token = unit == "ms a token";
        if (one.slowdown <= 0) row.fail("slowdown_b_over_a: a number above 0 is needed");
        all.push_back(std::move(one));
    }
    return all;
}

}  // namespace moorage::core
