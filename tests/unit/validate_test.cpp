// Goal: published measurements are read as docs/validate.md says. They are emulated as worked out
// by hand to the nanosecond, or listed with a reason. Method: the toy machine and toy engine as
// files in a folder; tables that break one rule each; the bundled measurements compared with the
// limits of the emulator.
#include "tools/validate/validation.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <doctest/doctest.h>

#include "core/base/json.h"
#include "tools/validate/emulated_figure.h"
#include "toy_engine.h"
#include "toy_machine.h"

namespace validate_test {

using namespace moorage::core;

namespace {

bool holds(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
}

std::string replaced(std::string text, const std::string &old_text, const std::string &new_text) {
    const size_t position = text.find(old_text);
    REQUIRE(position != std::string::npos);
    return text.replace(position, old_text.size(), new_text);
}

// 2 layers of 4 experts, of which a token uses one; 16 bits. Attention of a layer takes 222 ns with
// one cached token (engine_test.cpp works out 221), an expert 250, the head 25.
constexpr const char *shape_toml = R"(kind = "model"
name = "toy"
aliases = []
layers = 2
moe_layers = 2
experts = 4
top_k = 1
hidden = 5
moe_intermediate = 5000
matrices = 2
weight_bytes = 2
expert_bytes = 100_000
non_expert_bytes = 60_000
dense_bytes = 50_000
kv_token_layer_bytes = 250
vocabulary = 1000
[sources]
geometry = "[G] toy"
sizes = "[G] toy"
)";

class toy_data {
public:
    toy_data() {
        for (const char *kind : {"device", "link", "node", "engine"})
            std::filesystem::create_directories(folder_ / "hw_profiles" / kind);
        std::filesystem::create_directories(folder_ / "configs/models");
        std::string device = replaced(toy::device_toml, "flops_per_s = 1e18", "flops_per_s = 4e12");
        device = replaced(device, "link.toml", "toy");
        device = replaced(device, "node.toml", "toy");
        device = replaced(device, "[sources]\n",
                          "vector_flops_per_s = 2e12\nkernel_ns = 10\n[sources]\n"
                          "vector_flops_per_s = \"[G]\"\nkernel_ns = \"[G]\"\n");
        std::string node = replaced(toy::node_toml, "[sources]\n",
                                    "memory_theory_bytes_per_s = 100e9\n[sources]\n"
                                    "memory_theory_bytes_per_s = \"[G]\"\n");
        folder_.write("hw_profiles/device/toy.toml", device);
        folder_.write("hw_profiles/link/toy.toml", toy::link_toml);
        folder_.write("hw_profiles/node/toy.toml", node);
        folder_.write("hw_profiles/engine/toy.toml", toy::engine_text());
        folder_.write("hw_profiles/engine/toy_2.toml",
                      replaced(toy::engine_text(), "layer_ns = \"7 ns\"", "layer_ns = 107"));
        folder_.write("configs/models/toy.toml", shape_toml);
    }
    setting_sources sources() const { return {folder_.path(), {}}; }

private:
    toy::folder folder_;
};

constexpr const char *columns =
    "id,group,phase,tpot_ms,prefill_tokens_per_s,quality,emulable,model_shape,gpu,cpu_model,engine,"
    "engine_version,residency_kind,residency_value,miss_action,hit_rate,context_tokens,"
    "prompt_tokens,microbatch,batch\n";

csv_table table_of(const std::string &text) {
    auto table = csv_table::parse(text, "rows.csv");
    REQUIRE_MESSAGE(table.ok(), (table ? "" : table.failure().text));
    return std::move(table).value();
}

validation validated(const std::string &rows, const std::string &pairs = "") {
    const toy_data data;
    const csv_table table = table_of(columns + rows);
    const csv_table pair_table = table_of("pair,row_a,row_b,unit,slowdown_b_over_a\n" + pairs);
    const auto found = validate(table, pairs.empty() ? nullptr : &pair_table, data.sources());
    REQUIRE_MESSAGE(found.ok(), (found ? "" : found.failure().text));
    return *found;
}

uint64_t emulated_ns(const std::string &row) {
    const validation found = validated(row);
    REQUIRE_MESSAGE(found.rows[0].is_emulated(), found.rows[0].reason);
    return static_cast<uint64_t>(std::llround(found.rows[0].emulated_ms * 1e6));
}

std::string refusal(const std::string &text) {
    const auto table = csv_table::parse(text, "rows.csv");
    if (!table) return table.failure().text;
    const auto rows = read_measurements(*table);
    REQUIRE_FALSE(rows.ok());
    CHECK(rows.failure().usage);
    return rows.failure().text;
}

}  // namespace

TEST_CASE("rows small enough for pencil and paper") {
    const std::string decode = "a,g,decode,0.001,,A,yes,toy,toy,toy,toy,,";
    // 2 x (222 + 250) + 25
    CHECK(emulated_ns(decode + "resident,,,,0,,,1\n") == 969);
    // The host decides (100), three copies (100 each) of 100,000 bytes at 10 a ns, then the expert.
    CHECK(emulated_ns(decode + "none,0,load,,0,,,1\n") == 2 * (322 + 10'300 + 250) + 25);
    // One layer of two: half of what the host decides falls to each; 60 + 100,000 bytes at 50 a ns.
    CHECK(emulated_ns(decode + "cpu_layers,1,cpu,,0,,,1\n") == 2 * 272 + 2'060 + 250 + 25);
    // 32 requests in 16 steps, of which a quarter miss: 8 loads.
    CHECK(emulated_ns(decode + "slots_per_layer,2,load,0.75,0,,,1\n") ==
          2 * (322 + 250) + 25 + 8 * 10'300 / 16);
    // 41 tokens are cached instead of one.
    CHECK(emulated_ns(decode + "resident,,,,40,,,1\n") == 969 + 2 * 40);
    // The file of the version: 100 more in each layer. 2.7 begins with 2.
    CHECK(emulated_ns("a,g,decode,1,,A,yes,toy,toy,toy,toy,2.7,resident,,,,0,,,1\n") == 1'169);
    // A prompt of two tokens in one pass: 363 of a layer (engine_test.cpp, and 1.5 for the cached
    // tokens, rounded up), two experts of the 1.75 that two tokens ask for, and 1,000 once.
    const uint64_t of_two = 2 * (363 + 2 * 250) + 25 + 1'000;
    CHECK(emulated_ns("a,g,prefill,,1000,A,yes,toy,toy,toy,toy,,resident,,,,0,2,2,1\n") ==
          (of_two + 1) / 2);
    // One token a pass is decode but for what a prompt costs once; the second looks back on two.
    CHECK(emulated_ns("a,g,prefill,,1000,A,yes,toy,toy,toy,toy,,resident,,,,0,2,1,1\n") ==
          (2 * 969 + 2 + 1'000) / 2);
}

TEST_CASE("ratios are of speeds, slowdowns of pairs are of times a token") {
    const validation found = validated(
        "fast,g,decode,0.001938,,A,yes,toy,toy,toy,toy,,resident,,,,0,,,1\n"
        "slow,g,decode,0.021769,,A,yes,toy,toy,toy,toy,,none,0,load,,0,,,1\n"
        "other,g,decode,1,,A,no: format unpublished,toy,toy,toy,toy,,resident,,,,0,,,1\n",
        "P1,fast,slow,tpot_ms,11.2327\nP2,fast,other,tpot_ms,2\nP3,fast,gone,tpot_ms,2\n");
    CHECK(found.emulated_count() == 2);
    CHECK(found.rows[0].ratio() == doctest::Approx(2.0));
    CHECK(found.rows[1].ratio() == doctest::Approx(1.0));
    CHECK(holds(found.rows[2].reason, "format unpublished"));
    CHECK(found.pairs[0].emulated == doctest::Approx(21'769.0 / 969));
    CHECK(found.pairs[0].ratio() == doctest::Approx(2.0).epsilon(0.001));
    CHECK(holds(found.pairs[1].reason, "other"));
    CHECK(holds(found.pairs[2].reason, "gone is not in the file"));
    // 2.0 and 1.0 of the figures' speeds; a row that was not emulated is none.
    CHECK(found.rows_beyond(0.5).size() == 1);
    CHECK(found.rows_beyond(0.5)[0]->figure.id == "fast");
    CHECK(found.rows_beyond(1.001).empty());
    const auto sums = found.summaries();
    REQUIRE(sums.size() == 3);  // resident, PCIe, all
    CHECK(sums[2].rows == 2);
    CHECK(sums[2].median == doctest::Approx(0.5));  // between 0 and 1
    CHECK(sums[2].worst_id == "fast");
    const json report_json = to_json(found);
    CHECK(report_json["rows"][2]["ratio"].is_null());
    CHECK(report_json["rows"][0]["published"] == 0.001938);
    CHECK(report_json["summary"]["emulated"] == 2);
    CHECK(report_json["pairs"].size() == 3);
    CHECK(report_json["rows"][2].contains("class"));
    CHECK(report_json["rows"][2]["class"].is_null());
    CHECK(report_json["rows"][2]["assumed"].is_null());
    CHECK(holds(to_text(found), "not emulated"));
    CHECK(holds(to_text(found), "pairs not compared"));
    CHECK(holds(to_text(found), "row gone is not in the file"));
    CHECK(holds(to_html(found, "moorage validate"), "\"published_ms\":"));
}

TEST_CASE("what cannot be expressed is listed with the reason") {
    const auto reason = [](const std::string &row) {
        const validation found = validated(row);
        CHECK_FALSE(found.rows[0].is_emulated());
        return found.rows[0].reason;
    };
    const std::string head = "a,g,decode,1,,A,yes,";
    CHECK(holds(reason(head + "other,toy,toy,toy,,resident,,,,0,,,1\n"), "geometry"));
    CHECK(holds(reason(head + "toy,gtx_1,toy,toy,,resident,,,,0,,,1\n"), "gtx_1"));
    CHECK(holds(reason(head + "toy,toy,toy,none_such,,resident,,,,0,,,1\n"), "none_such"));
    CHECK(holds(reason(head + "toy,toy,toy,toy,,layer_split,,cpu,,0,,,1\n"), "layer_split"));
    CHECK(
        holds(reason(head + "toy,toy,toy,toy,,slots_per_layer,,load,,0,,,1\n"), "residency_value"));
    CHECK(holds(reason(head + "toy,toy,toy,toy,,none,0,,,0,,,1\n"), "miss_action"));
    // Assumptions are said.
    const validation found = validated(head + "toy,toy,unheard_of,toy,,none,0,cpu,,0,,,1\n");
    REQUIRE(found.rows[0].is_emulated());
    REQUIRE(found.rows[0].assumed.size() == 1);
    CHECK(holds(found.rows[0].assumed[0], "unheard_of"));
}

TEST_CASE("memory that is filled with experts is that of all GPUs, beside weights and cache") {
    const toy_data data;
    measurement figure;
    figure.model_shape = figure.gpu = figure.engine = "toy";
    figure.residency = "fill_memory";
    figure.miss_action = "cpu";
    // 8 experts of 100 MB (5,000 x 10 weights of 16,000 bits); 1 GB a GPU, 60,000 bytes of the
    // rest.
    figure.expert_bytes = 1e8;
    const auto share = [&](double gpus, double context, double batch) {
        figure.gpu_count = gpus;
        figure.context_tokens = context;
        figure.batch = batch;
        const auto setting = make_setting(figure, data.sources());
        REQUIRE_MESSAGE(setting.ok(), (setting ? "" : setting.failure().text));
        return setting->hit_share;
    };
    CHECK(share(1, 0, 1) == 1);
    // A cached token has 2 layers of 250 bytes: a million of them half a GB.
    CHECK(share(1, 1e6, 1) == doctest::Approx((1e9 - 60'000 - 500e6) / 800e6));
    CHECK(share(1, 5e5, 2) == doctest::Approx((1e9 - 60'000 - 500e6) / 800e6));
    CHECK(share(1, 3e6, 1) == 0);
    CHECK(share(2, 3e6, 1) == doctest::Approx((2e9 - 60'000 - 1'500e6) / 800e6));
    CHECK(share(3, 3e6, 1) == 1);

    figure.residency = "resident";
    const auto doubts = [&](double gpus) {
        figure.gpu_count = gpus;
        const auto setting = make_setting(figure, data.sources());
        REQUIRE_MESSAGE(setting.ok(), (setting ? "" : setting.failure().text));
        return setting->assumed;
    };
    figure.context_tokens = 1e6;
    CHECK(std::ranges::count_if(doubts(1), [](const std::string &doubt) {
              return holds(doubt, "all experts resident, as the row says: 0.8 GB") &&
                     holds(doubt, "1 GPU has 0.5 GB");
          }) == 1);
    CHECK(std::ranges::none_of(doubts(2),
                               [](const std::string &doubt) { return holds(doubt, "resident"); }));
}

TEST_CASE("a value that cannot be is its row's error, with column and limits") {
    const std::string header =
        "id,phase,tpot_ms,prefill_tokens_per_s,model_shape,gpu,engine,residency_kind,"
        "residency_value,miss_action,gpu_count,threads,bits_experts,top_k,batch,prompt_tokens\n";
    const auto reason = [&](const std::string &row) {
        const toy_data data;
        const csv_table table = table_of(header + row + "\n");
        const auto found = validate(table, nullptr, data.sources());
        REQUIRE_MESSAGE(found.ok(), (found ? "" : found.failure().text));
        return found->rows[0].reason;
    };
    const std::string head = "a,decode,1,,toy,toy,toy,";
    CHECK(reason(head + "resident,,,1,8,16,1,1,") == "");
    CHECK(reason(head + "slots_per_layer,5,cpu,,,,,,") ==
          "rows.csv:2: residency_value 5: a number from 0 to 4 is needed");
    CHECK(reason(head + "slots_per_layer,4,cpu,,,,,,") == "");
    CHECK(holds(reason(head + "slots_total,9,cpu,,,,,,"),
                "residency_value 9: a whole number from 0 to 8"));
    CHECK(holds(reason(head + "experts_share,1.5,cpu,,,,,,"), "a number from 0 to 1"));
    CHECK(holds(reason(head + "cpu_layers,3,cpu,,,,,,"), "a whole number from 0 to 2"));
    CHECK(holds(reason(head + "cpu_layers,1.5,cpu,,,,,,"), "residency_value 1.5"));
    CHECK(holds(reason(head + "resident,,,0,,,,,"), "gpu_count 0: a whole number from 1"));
    CHECK(holds(reason(head + "resident,,,,100000,,,,"), "threads 100000: a whole number from 1"));
    CHECK(holds(reason(head + "resident,,,,,0,,,"), "bits_experts 0: a number from 0.1 to 64"));
    CHECK(holds(reason(head + "resident,,,,,,0,,"), "top_k 0: a whole number from 1 to 4"));
    CHECK(holds(reason(head + "resident,,,,,,2.5,,"), "top_k 2.5"));
    CHECK(holds(reason(head + "resident,,,,,,5,,"), "top_k 5"));
    CHECK(holds(reason(head + "resident,,,,,,,0,"), "batch 0: a whole number from 1 to 1048576"));
    CHECK(holds(reason(head + "resident,,,,,,,1.5,"), "batch 1.5"));
    CHECK(holds(reason(head + "resident,,,,,,,1048577,"), "batch 1048577"));
    CHECK(
        holds(reason("a,prefill,,9,toy,toy,toy,resident,,,,,,,,1048577"), "prompt_tokens 1048577"));
    CHECK(reason("a,decode,1,,toy,,toy,resident,,,,,,,,") ==
          "rows.csv:2: gpu is empty: it is not published");
    CHECK(reason("a,decode,1,,toy,toy,,resident,,,,,,,,") ==
          "rows.csv:2: engine is empty: it is not published");
}

TEST_CASE("a cell that nobody can read costs its row alone") {
    const std::string row = "a,g,decode,1,,A,yes,toy,toy,toy,toy,,resident,,,,0,,,1\n";
    const std::string second_row = replaced(row, "a,g", "b,g");
    const auto reason = [&](const std::string &old_text, const std::string &new_text) {
        const validation found =
            validated(replaced(row, old_text, new_text) + second_row, "p,a,b,,1\n");
        REQUIRE(found.rows.size() == 2);
        CHECK_FALSE(found.rows[0].is_emulated());
        CHECK(found.rows[1].is_emulated());
        CHECK(holds(found.pairs[0].reason, "row a: " + found.rows[0].reason));
        const json shown = to_json(found);
        CHECK(shown["rows"][0]["published"].is_null());
        CHECK(shown["rows"][1]["published"] == 1);
        CHECK(shown["summary"]["emulated"] == 1);
        CHECK(holds(to_text(found), "not emulated"));
        return found.rows[0].reason;
    };
    CHECK(holds(reason("decode", "dream"), "rows.csv:2: phase"));
    CHECK(holds(reason("decode", "dream"), "decode or prefill"));
    CHECK(holds(reason(",1,,A", ",0,,A"),
                "rows.csv:2: tpot_ms of a row of decode: a number above 0"));
    CHECK(holds(reason(",1,,A", ",,,A"), "tpot_ms of a row of decode"));
    CHECK(reason(",1,,A", ",nan,,A") ==
          "rows.csv:2: tpot_ms nan: a number from 1e-09 to 1e+09 is needed, or nothing");
    for (const char *bad : {",-1,,A", ",1e99,,A", ",1x,,A"})
        CHECK(holds(reason(",1,,A", bad), "rows.csv:2: tpot_ms"));
    CHECK(holds(reason(",0,,,1\n", ",~4k,,,1\n"), "rows.csv:2: context_tokens ~4k"));

    const validation found = validated(row + second_row, "p,a,b,,fast\nq,a,b,,1\n");
    CHECK(holds(found.pairs[0].reason, "rows.csv:2: slowdown_b_over_a fast"));
    CHECK(found.pairs[1].is_emulated());
    CHECK(to_json(found)["pairs"][0]["published"].is_null());
}

TEST_CASE("a host's memory is what the row states, else what its file says") {
    const toy_data data;
    measurement figure;
    figure.model_shape = figure.gpu = figure.engine = "toy";
    figure.residency = "resident";
    const auto memory = [&](const char *cpu, const char *type, double channels) {
        figure.cpu_model = cpu;
        figure.memory_type = type;
        figure.memory_channels = channels;
        const auto setting = make_setting(figure, data.sources());
        REQUIRE_MESSAGE(setting.ok(), (setting ? "" : setting.failure().text));
        return setting->hardware.node.memory_theory_bytes_per_s / 1e9;
    };
    CHECK(memory("unheard_of", "ddr5_6000", 2) == doctest::Approx(96));
    CHECK(memory("unheard_of", "ddr4", 8) == doctest::Approx(204.8));
    CHECK(memory("toy", "ddr5_6000", 2) == doctest::Approx(96));
    CHECK(memory("toy", "ddr5", 2) == doctest::Approx(100));  // the file's
    figure.memory_gb_s = 60;
    figure.sockets = 2;
    CHECK(memory("toy", "ddr5_6000", 2) == doctest::Approx(30));
}

TEST_CASE("what is out of all proportion is listed, not computed") {
    const toy_data data;
    const csv_table shapes = table_of(
        "shape,layers,moe_layers,experts,top_k,hidden,moe_intermediate,matrices,vocabulary,"
        "expert_bytes,bits_experts\nbig,4096,4096,65536,4,1,1,3,1,10000000000000,1\n");
    const auto read = read_shapes(shapes, "");
    REQUIRE(read.ok());
    const csv_table single_row = table_of(
        columns + std::string("a,g,decode,1,,A,yes,big,toy,toy,toy,,none,0,load,,0,,,1\n"));
    const auto big = validate(single_row, nullptr, {data.sources().base, *read});
    REQUIRE(big.ok());
    CHECK(holds(big->rows[0].reason, "limit"));
    CHECK_FALSE(read_shapes(table_of("shape,layers\nx,1e9\n"), "").ok());
}

TEST_CASE("independent tokens ask for as many experts as chance says") {
    for (const uint32_t tokens : {2, 5, 100}) {
        CHECK(distinct_experts(32, 4, tokens, 1) ==
              doctest::Approx(32 * (1 - std::pow(1 - 4.0 / 32, tokens))));
        // Only 16 of the 32 are ever used.
        CHECK(distinct_experts(32, 4, tokens, 0.5) ==
              doctest::Approx(16 * (1 - std::pow(1 - 4.0 / 16, tokens))));
    }
    CHECK(distinct_experts(32, 4, 1, 0.5) == 4);
    CHECK(distinct_experts(4, 4, 9, 1) == 4);
    CHECK(distinct_experts(32, 4, 9, 0.01) == 4);
}

TEST_CASE("tables that are none are refused in words") {
    const std::string row = "a,g,decode,1,,A,yes,toy,toy,toy,toy,,resident,,,,0,,,1\n";
    CHECK(holds(refusal(""), "no line"));
    CHECK(holds(refusal("id,phase\n"), "no column"));
    CHECK(holds(refusal(columns), "no rows"));
    CHECK(holds(refusal(std::string(columns) + "a,b\n"), "rows.csv:2: 2 cells"));
    CHECK(holds(refusal(columns + row + row), "rows.csv:3: id"));
    CHECK(holds(refusal("id,id\n"), "twice"));
    CHECK(holds(refusal(columns + replaced(row, "a,g", ",g")), "rows.csv:2: id is empty"));
    CHECK(holds(refusal(columns + replaced(row, "a,g", "\"a,g")), "quote"));
    CHECK(holds(refusal(columns + replaced(row, "a,g", "\"a\"b,g")), "quote"));
    CHECK(holds(refusal(columns + replaced(row, "a,g", "\x1b[2J,g")), "control"));
    CHECK(holds(refusal(columns + std::string(5000, 'x') + row), "limit"));
    CHECK(holds(refusal(std::string(300, ',') + "\n"), "more than"));
    const csv_table quoted = table_of("id,note\r\na,\"x, \"\"y\"\"\"\r\n");
    CHECK(quoted.cell(0, "note") == "x, \"y\"");
    CHECK(quoted.cell(0, "absent").empty());
}

TEST_CASE("the bundled measurements are met within the limits that are promised") {
    const std::filesystem::path folder =
        std::filesystem::path(MOORAGE_SOURCE_DIR) / "tests/data/published";
    const auto table = [&](const char *name) {
        std::ifstream input(folder / name);
        std::stringstream text;
        text << input.rdbuf();
        return table_of(text.str());
    };
    const csv_table rows = table("measurements.csv"), pairs = table("pairs.csv");
    const auto shapes = read_shapes(table("shapes.csv"), "");
    REQUIRE(shapes.ok());
    const auto found = validate(rows, &pairs, {"", *shapes});
    REQUIRE(found.ok());
    CHECK(found->rows.size() == 141);
    CHECK(found->emulated_count() >= 97);
    const error_summary overall = found->summaries().back();
    CHECK(overall.median <= 0.12);
    CHECK(overall.ninth_tenth <= 0.25);
    CHECK(found->pair_summary().ninth_tenth <= 0.3);
    CHECK(found->pair_summary().worst <= 0.6);
    for (const validated_row &row : found->rows)
        if (!row.is_emulated())
            CHECK_MESSAGE(holds(row.figure.emulable, "no"), row.figure.id << ": " << row.reason);
}

}  // namespace validate_test
