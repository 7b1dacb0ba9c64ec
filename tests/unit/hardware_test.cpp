// hardware_test.cpp - goal: profiles and model shapes load, hold the published figures, and report
// faults of a broken file. Method: the bundled files compared with figures written out here and
// with the derived sizes in the shared data; a good text with one key at a time removed, spoilt or
// left without a source.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "core/base/json.h"
#include "core/config/hardware.h"
#include "core/config/profile_file.h"

namespace hardware_test {

using namespace moorage::core;
namespace fs = std::filesystem;

namespace {

bool holds(const std::string &text, const std::string &part) {
    const bool found = text.find(part) != std::string::npos;
    if (!found) MESSAGE("\"" << text << "\" lacks \"" << part << "\"");
    return found;
}

hardware_profile loaded(const std::string &name) {
    auto profile = load_hardware({name, "", "", ""});
    REQUIRE_MESSAGE(profile.ok(), (profile ? "" : profile.failure().text));
    return *profile;
}

// A key, its value as written, and whether it is a figure, which needs a source.
struct line {
    std::string key, value;
    bool figure = true;
};

std::string written(const std::vector<line> &lines, const std::string &without_key = "",
                    const std::string &without_source = "") {
    std::string keys, sources = "[sources]\n";
    for (const line &entry : lines) {
        if (entry.key != without_key) keys += entry.key + " = " + entry.value + "\n";
        if (entry.figure && entry.key != without_source)
            sources += entry.key + " = \"[G] for the test\"\n";
    }
    return keys + sources;
}

const std::vector<line> device_lines = {{"kind", "\"device\"", false},
                                        {"name", "\"a device\"", false},
                                        {"memory_bytes", "24_000_000_000"},
                                        {"reserved_bytes", "0"},
                                        {"memory_bytes_per_s", "1008e9"},
                                        {"memory_efficiency", "0.8"},
                                        {"flops_per_s", "165e12"},
                                        {"flops_efficiency", "1"},
                                        {"launch_ns", "3000"},
                                        {"sync_ns", "0"},
                                        {"layer_ns", "\"7 ns\""},
                                        {"attention_kernels", "10"},
                                        {"expert_kernels", "2"},
                                        {"unified_memory", "false"},
                                        {"link", "\"l\"", false},
                                        {"node", "\"n\"", false}};
const std::vector<line> link_lines = {{"kind", "\"link\"", false},
                                      {"name", "\"a link\"", false},
                                      {"h2d_bytes_per_s", "25e9"},
                                      {"d2h_bytes_per_s", "24_000_000_000"},
                                      {"issue_ns", "7000"}};
const std::vector<line> node_lines = {
    {"kind", "\"node\"", false},     {"name", "\"a node\"", false},
    {"memory_bytes", "64000000000"}, {"memory_bytes_per_s", "119.5e9"},
    {"cpu_bytes_per_s", "110.3e9"},  {"cpu_flops_per_s", "2e12"},
    {"cpu_issue_ns", "5000"}};

// hidden 4, intermediate 6, 3 matrices, 2 bytes: 144 bytes an expert; embedding 10 x 4 x 2 = 80.
std::vector<line> shape_lines() {
    return {{"kind", "\"model\"", false},
            {"name", "\"tiny\"", false},
            {"aliases", "[\"t\"]", false},
            {"layers", "3", false},
            {"moe_layers", "2", false},
            {"experts", "5", false},
            {"top_k", "5", false},
            {"hidden", "4", false},
            {"moe_intermediate", "6", false},
            {"matrices", "3", false},
            {"weight_bytes", "2", false},
            {"expert_bytes", "144", false},
            {"non_expert_bytes", "500", false},
            {"dense_bytes", "420", false},
            {"kv_token_layer_bytes", "16", false},
            {"vocabulary", "10", false}};
}
const std::string shape_sources = "geometry = \"[G] made up\"\nsizes = \"[D] counted\"\n";

std::vector<line> with_value(std::vector<line> lines, const std::string &key,
                             const std::string &value) {
    for (line &entry : lines)
        if (entry.key == key) entry.value = value;
    return lines;
}

// Every key of a good file is needed, every figure needs a source, and nothing else may be there.
template <class Value>
void check_file(const std::vector<line> &lines,
                result<Value> (*parse)(std::string_view, std::string_view)) {
    const auto good = parse(written(lines), "a.toml");
    REQUIRE_MESSAGE(good.ok(), (good ? "" : good.failure().text));
    for (const line &entry : lines) {
        CAPTURE(entry.key);
        const auto missing = parse(written(lines, entry.key), "a.toml");
        REQUIRE_FALSE(missing.ok());
        CHECK(holds(missing.failure().text, entry.key));
        CHECK(holds(missing.failure().text, "a.toml"));
        if (!entry.figure) continue;
        const auto unsourced = parse(written(lines, "", entry.key), "a.toml");
        REQUIRE_FALSE(unsourced.ok());
        CHECK(holds(unsourced.failure().text, "[sources] " + entry.key));
        if (entry.value == "false") continue;
        for (const char *bad : {"-1", "nan", "inf", "-inf", "\"1\"", "true", "1e300", "[1]"}) {
            CAPTURE(bad);
            const auto spoilt = parse(written(with_value(lines, entry.key, bad)), "a.toml");
            REQUIRE_FALSE(spoilt.ok());
            CHECK(holds(spoilt.failure().text, entry.key));
        }
    }
    const auto extra = parse("memory_byte = 1\n" + written(lines), "a.toml");
    REQUIRE_FALSE(extra.ok());
    CHECK(holds(extra.failure().text, "a.toml:1: unknown key memory_byte"));
    const auto extra_source = parse(written(lines) + "colour = \"[G] red\"\n", "a.toml");
    REQUIRE_FALSE(extra_source.ok());
    CHECK(holds(extra_source.failure().text, "unknown key colour in [sources]"));
}

}  // namespace

TEST_CASE("each kind of profile needs all its keys, in range, each with a source") {
    check_file(device_lines, parse_device);
    check_file(link_lines, parse_link);
    check_file(node_lines, parse_node);

    const auto device = parse_device(written(device_lines), "a.toml");
    REQUIRE(device.ok());
    CHECK(device->name == "a device");
    CHECK(device->memory_bytes == 24'000'000'000ull);
    CHECK(device->memory_bytes_per_s == 1008e9);
    CHECK(device->flops_efficiency == 1.0);
    CHECK(device->layer_ns == 7);
    CHECK_FALSE(device->unified_memory);
    const auto node = parse_node(written(node_lines), "a.toml");
    REQUIRE(node.ok());
    CHECK(node->cpu_bytes_per_s == 110.3e9);
}

TEST_CASE("figures that cannot be true are refused") {
    const auto device = [](const std::string &key, const std::string &value) {
        return parse_device(written(with_value(device_lines, key, value)), "a.toml");
    };
    CHECK(device("memory_efficiency", "1.0").ok());
    CHECK_FALSE(device("memory_efficiency", "1.0000001").ok());
    CHECK_FALSE(device("memory_efficiency", "0").ok());
    CHECK(device("memory_efficiency", "0.001").ok());
    // A device of a billionth of its speed is a slip of the pen.
    CHECK_FALSE(device("memory_efficiency", "1e-9").ok());
    CHECK_FALSE(device("flops_efficiency", "1e-12").ok());
    for (const char *rate : {"logits_per_s", "greedy_logits_per_s"}) {
        std::vector<line> lines = device_lines;
        lines.push_back({rate, "1000"});
        CHECK(parse_device(written(lines), "a.toml").ok());
        lines.back().value = "5";
        CHECK_FALSE(parse_device(written(lines), "a.toml").ok());
    }
    CHECK(device("reserved_bytes", "23_999_999_999").ok());
    CHECK(holds(device("reserved_bytes", "24_000_000_000").failure().text, "has to be left"));
    CHECK(holds(device("kind", "\"link\"").failure().text, "kind is the text \"link\""));
    CHECK(holds(device("unified_memory", "0").failure().text, "true or false"));
    CHECK(holds(device("link", "\"\"").failure().text, "link"));
    std::vector<line> few = device_lines;
    few.push_back({"few_tokens", "6"});
    CHECK(holds(parse_device(written(few), "a.toml").failure().text,
                "few_flops_per_s has to be given, too"));
    few.push_back({"few_flops_per_s", "1e11"});
    CHECK(parse_device(written(few), "a.toml").ok());
    const auto slowed = [](const std::string &value, bool is_host = false) {
        std::vector<line> lines = device_lines;
        lines.push_back({"busy_link_slowdown", value});
        if (is_host) lines.push_back({"is_host", "true"});
        return parse_device(written(lines), "a.toml");
    };
    REQUIRE(slowed("0.21").ok());
    CHECK(slowed("0.21")->busy_link_slowdown == 0.21);
    CHECK(slowed("0.001").ok());
    CHECK(slowed("0.0", true).ok());
    CHECK_FALSE(slowed("-0.1").ok());
    CHECK_FALSE(slowed("4.1").ok());
    CHECK(holds(slowed("0.2105").failure().text, "three places"));
    CHECK(holds(slowed("0.21", true).failure().text, "is_host is true"));
    const auto node =
        parse_node(written(with_value(node_lines, "cpu_bytes_per_s", "120e9")), "a.toml");
    REQUIRE_FALSE(node.ok());
    CHECK(holds(node.failure().text, "ceiling"));
    std::string unmarked = written(link_lines);
    unmarked.replace(unmarked.find("[G]"), 3, "(G)");
    CHECK(holds(parse_link(unmarked, "a.toml").failure().text, "begins with a mark"));
    CHECK(
        holds(parse_link("sources = 3\n" + written(link_lines), "a.toml").failure().text, "TOML"));
}

TEST_CASE("a shape's sizes have to agree with each other") {
    const auto shape = [](const std::string &key, const std::string &value) {
        return parse_shape(written(with_value(shape_lines(), key, value)) + shape_sources,
                           "a.toml");
    };
    const auto good = shape("", "");
    REQUIRE_MESSAGE(good.ok(), (good ? "" : good.failure().text));
    CHECK(good->shape.moe_layers == 2);
    CHECK(good->aliases == std::vector<std::string>{"t"});
    CHECK(shape("dense_bytes", "500").ok());  // tied embedding
    CHECK(shape("top_k", "5").ok());
    const std::vector<std::pair<std::string, std::string>> wrong = {
        {"moe_layers", "4"},     {"top_k", "6"},         {"expert_bytes", "146"},
        {"expert_bytes", "142"}, {"dense_bytes", "501"}, {"dense_bytes", "410"},
        {"matrices", "2"},       {"matrices", "4"},      {"weight_bytes", "0.5"},
        {"layers", "0"},         {"vocabulary", "11"}};
    for (const auto &example : wrong) {
        CAPTURE(example.first);
        CHECK_FALSE(shape(example.first, example.second).ok());
    }
    CHECK(shape("expert_bytes", "145").ok());  // biases: within 1 %
}

TEST_CASE("the bundled devices hold the published figures") {
    // Memory rate in GB/s, dense 16-bit tensor rate with float32 accumulation in TFLOPS, link in
    // GB/s.
    const struct {
        const char *id;
        double memory, flops, link_low, link_high;
        int gigabytes;
    } published[] = {{"rtx_3080_ti", 912, 68, 24, 26, 12},
                     {"rtx_3090", 936, 71, 24, 26, 24},
                     {"rtx_4060_ti_16gb", 288, 44, 12, 13, 16},
                     {"rtx_4090", 1008, 165.2, 25, 26, 24},
                     {"rtx_a4000", 448, 76.7, 24, 26, 16},
                     {"rtx_a6000", 768, 154.8, 24, 26.3, 48},
                     {"a100_40gb", 1555, 312, 25, 26, 40},
                     {"a100_80gb", 2039, 312, 25, 26, 80},
                     {"h100_sxm", 3350, 989, 55, 57.1, 80},
                     {"h200_sxm", 4800, 989, 55, 57, 141},
                     {"l40s", 864, 362, 25, 26, 48},
                     {"jetson_agx_orin_64gb", 204.8, 42.5, 204.8, 204.8, 64}};
    for (const auto &row : published) {
        CAPTURE(row.id);
        const hardware_profile profile = loaded(row.id);
        CHECK(profile.id == row.id);
        CHECK(profile.device.memory_bytes_per_s == doctest::Approx(row.memory * 1e9));
        CHECK(profile.device.flops_per_s == doctest::Approx(row.flops * 1e12));
        CHECK(profile.link.h2d_bytes_per_s >= row.link_low * 1e9);
        CHECK(profile.link.h2d_bytes_per_s <= row.link_high * 1e9);
        const auto bytes = static_cast<double>(profile.device.memory_bytes);
        CHECK(bytes >= 0.98 * row.gigabytes * 1e9);
        CHECK(bytes <= 1.08 * row.gigabytes * 1e9);
        CHECK(profile.device.unified_memory == (std::string(row.id) == "jetson_agx_orin_64gb"));
        // Reading host memory over the link cannot beat reading it on the spot.
        CHECK((profile.device.unified_memory ||
               profile.link.h2d_bytes_per_s < profile.node.memory_bytes_per_s));
    }
}

TEST_CASE("the bundled hosts hold the published figures") {
    const hardware_profile rome = loaded("a100_40gb");
    CHECK(rome.node.cpu_bytes_per_s == doctest::Approx(110.3e9));
    CHECK(rome.node.memory_bytes_per_s == doctest::Approx(119.5e9));
    const hardware_profile a6000 = loaded("rtx_a6000");
    CHECK(a6000.node.cpu_bytes_per_s == doctest::Approx(140e9));
    CHECK(a6000.node.memory_bytes_per_s == doctest::Approx(160e9));
    const hardware_profile measured = loaded("h200_sxm_measured");
    CHECK(measured.link.h2d_bytes_per_s == doctest::Approx(55.5e9));
    CHECK(measured.link.issue_ns == 7300);
    CHECK(measured.node.cpu_bytes_per_s == doctest::Approx(134e9));
}

TEST_CASE("every bundled file loads, and link and node can be replaced") {
    const std::vector<std::string> profiles = known_profiles();
    CHECK(profiles.size() >= 13);
    for (const std::string &name : profiles) loaded(name);
    for (const std::string &name : known_shapes()) {
        CAPTURE(name);
        CHECK(load_shape(name, "").ok());
    }
    for (const char *kind : {"link", "node"})
        for (const auto &file :
             fs::directory_iterator(fs::path(MOORAGE_SOURCE_DIR) / "hw_profiles" / kind)) {
            if (file.path().extension() != ".toml") continue;
            const std::string name = file.path().stem().string();
            CAPTURE(name);
            const bool link = std::string(kind) == "link";
            CHECK(load_hardware({"rtx_4090", link ? name : "", link ? "" : name, ""}).ok());
        }
    for (const char *name : {"nvme_gen3", "nvme_gen4", "nvme_gen5", "sata_ssd"}) {
        const auto with_disk = load_hardware({"rtx_4090", "", "", "", name});
        REQUIRE(with_disk.ok());
        CHECK(with_disk->disk.read_bytes_per_s > 0.5e9);
    }
    CHECK(loaded("rtx_4090").disk.name.empty());
    const auto unknown = load_hardware({"rtx_4090", "", "", "", "nvme_gen"});
    REQUIRE_FALSE(unknown.ok());
    CHECK(holds(unknown.failure().text, "[hardware] disk nvme_gen"));
    const auto slow = load_hardware({"rtx_4090", "pcie3_x16", "i9_10900x", ""});
    REQUIRE(slow.ok());
    CHECK(slow->link.h2d_bytes_per_s == doctest::Approx(12.3e9));
    CHECK(slow->node.name.find("10900X") != std::string::npos);
    CHECK(slow->device.name == "NVIDIA RTX 4090");
}

TEST_CASE("unknown names get the nearest known") {
    const auto message = [](const hardware_choice &choice) {
        const auto profile = load_hardware(choice);
        REQUIRE_FALSE(profile.ok());
        CHECK(profile.failure().usage);
        return profile.failure().text;
    };
    CHECK(holds(message({"rtx_4900", "", "", ""}), "[hardware] profile rtx_4900"));
    CHECK(holds(message({"rtx_a600", "", "", ""}), "did you mean rtx_a6000"));
    CHECK(holds(message({"gpu", "", "", ""}), "h200_sxm"));
    CHECK(holds(message({"rtx_4090", "pcie4x16", "", ""}), "did you mean pcie4_x16"));
    CHECK(holds(message({"rtx_4090", "", "epyc_rome_64", ""}), "did you mean epyc_rome_64c"));
    CHECK(holds(message({"./absent.toml", "", "", ""}), "absent.toml: no such file"));
    CHECK(holds(message({"hw_profiles/link/pcie4_x8.toml", "", "", MOORAGE_SOURCE_DIR}),
                "a file of kind \"device\" is needed"));
    CHECK(holds(load_shape("mixtral_8x7", "").failure().text, "did you mean mixtral_8x7b"));
}

TEST_CASE("names are looked up beside the configuration, then in MOORAGE_DATA_PATH") {
    const fs::path folder =
        fs::temp_directory_path() / ("moorage_hardware_test_" + std::to_string(getpid()));
    const auto put = [&](const std::string &root, const std::string &name) {
        fs::create_directories(folder / root / "hw_profiles/device");
        std::ofstream(folder / root / "hw_profiles/device/rtx_4090.toml")
            << written(with_value(with_value(with_value(device_lines, "name", "\"" + name + "\""),
                                             "link", "\"pcie4_x8\""),
                                  "node", "\"ddr5_desktop\""));
    };
    put("beside", "beside");
    put("listed", "listed");
    CHECK(loaded("rtx_4090").device.name == "NVIDIA RTX 4090");
    const std::string list = "/nonexistent::" + (folder / "listed").string();
    setenv("MOORAGE_DATA_PATH", list.c_str(), 1);
    CHECK(loaded("rtx_4090").device.name == "listed");
    CHECK(loaded("rtx_3090").device.name == "NVIDIA RTX 3090");
    const auto beside = load_hardware({"rtx_4090", "", "", folder / "beside"});
    REQUIRE(beside.ok());
    CHECK(beside->device.name == "beside");
    const auto path = load_hardware({"listed/hw_profiles/device/rtx_4090.toml", "", "", folder});
    unsetenv("MOORAGE_DATA_PATH");
    REQUIRE(path.ok());
    CHECK(path->device.name == "listed");
    CHECK(path->id == "rtx_4090");
    fs::remove_all(folder);
}

TEST_CASE("a trace's model name finds its shape, and its counts are compared") {
    const struct {
        const char *model;
        uint32_t layers, experts, top_k;
        const char *name;
    } traces[] = {{"DeepSeek-V2-Lite (ESFT vanilla)", 26, 64, 6, "DeepSeek-V2-Lite"},
                  {"qwen15moe-shape", 24, 60, 4, "Qwen1.5-MoE-A2.7B"},
                  {"mixtral-shape", 32, 8, 2, "Mixtral-8x7B"},
                  {"llamamoe-shape", 32, 16, 4, "LLaMA-MoE-3.5B(4/16)"},
                  {"gpt-oss-20b", 24, 32, 4, "gpt-oss-20b"},
                  {"GPT-OSS-20B", 24, 32, 4, "gpt-oss-20b"},
                  {"demo", 8, 24, 4, "demo"}};
    for (const auto &row : traces) {
        CAPTURE(row.model);
        const auto shape = shape_for_trace(row.model, row.layers, row.experts, row.top_k, "");
        REQUIRE_MESSAGE(shape.ok(), (shape ? "" : shape.failure().text));
        CHECK(shape->name == row.name);
        for (const uint32_t wrong_size : {0u, 1u, 2u}) {
            const auto wrong =
                shape_for_trace(row.model, row.layers + (wrong_size == 0),
                                row.experts + (wrong_size == 1), row.top_k + (wrong_size == 2), "");
            REQUIRE_FALSE(wrong.ok());
            CHECK(holds(wrong.failure().text, "[source] shape"));
            CHECK(holds(wrong.failure().text, std::to_string(row.experts + (wrong_size == 1))));
        }
    }
    CHECK(holds(shape_for_trace("", 1, 1, 1, "").failure().text, "does not name its model"));
    CHECK_FALSE(shape_for_trace("some other model", 1, 1, 1, "").ok());
}

TEST_CASE("sizes of well-known models, worked out by hand") {
    // Mixtral-8x7B: 3 x 4096 x 14336 weights an expert; key and value of 8 heads of 128.
    const auto mixtral = load_shape("Mixtral-8x7B", "");
    REQUIRE(mixtral.ok());
    CHECK(mixtral->expert_bytes == 3ull * 4096 * 14336 * 2);
    CHECK(mixtral->kv_token_layer_bytes == 2 * 8 * 128 * 2);
    // Attention 2 x 4096^2 + 2 x 4096 x 1024, gate 4096 x 8, two norms; last norm; two embeddings.
    const uint64_t layer = 2ull * 4096 * 4096 + 2ull * 4096 * 1024 + 4096 * 8;
    CHECK(static_cast<double>(mixtral->non_expert_bytes) ==
          doctest::Approx(2.0 * (32 * layer + 2ull * 32000 * 4096)).epsilon(0.002));
    CHECK(mixtral->non_expert_bytes - mixtral->dense_bytes == 2ull * 32000 * 4096);
    // DeepSeek's latent attention caches 512 + 64 values a token, for any number of heads.
    CHECK(load_shape("deepseek_v2_lite", "")->kv_token_layer_bytes == 1152);
    CHECK(load_shape("deepseek_v3", "")->kv_token_layer_bytes == 1152);
    // The demo model has 9,284,800 weights in its files.
    const auto demo = load_shape("demo", "");
    REQUIRE(demo.ok());
    CHECK(demo->non_expert_bytes + 8 * 24 * demo->expert_bytes == 2 * 9'284'800);
}

TEST_CASE("all shapes agree with the sizes derived from the published configurations") {
    std::ifstream file(fs::path(MOORAGE_SOURCE_DIR) / "tests/data/shapes.json");
    const json shapes = json::parse(file);
    CHECK(shapes.size() == 25);
    for (const json &entry : shapes) {
        const auto name = entry["name"].get<std::string>();
        CAPTURE(name);
        const auto shape = load_shape(name, "");
        REQUIRE_MESSAGE(shape.ok(), (shape ? "" : shape.failure().text));
        CHECK(shape->name == name);
        CHECK(shape->layers == entry["L"]);
        CHECK(shape->moe_layers == entry["Lm"]);
        CHECK(shape->experts == entry["E"]);
        CHECK(shape->top_k == entry["k"]);
        CHECK(shape->hidden == entry["h"]);
        CHECK(shape->moe_intermediate == entry["I"]);
        CHECK(shape->expert_bytes == 2 * entry["exp"].get<uint64_t>());
        const auto gigabytes = [](uint64_t bytes) { return static_cast<double>(bytes) / 1e9; };
        CHECK(gigabytes(shape->non_expert_bytes) == doctest::Approx(entry["nonGB"].get<double>()));
        CHECK(gigabytes(shape->dense_bytes) == doctest::Approx(entry["denseGB"].get<double>()));
        // All weights together equal the published number.
        const double total =
            gigabytes(shape->non_expert_bytes +
                      uint64_t{shape->moe_layers} * shape->experts * shape->expert_bytes) /
            2;
        CHECK(total == doctest::Approx(entry["official"].get<double>()).epsilon(0.02));
    }
}

}  // namespace hardware_test
