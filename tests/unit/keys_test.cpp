// Goal: the parser follows the table of keys. Method: rules for every row; each bound tried on the
// parser from both sides; numbers with units in files, --set, clusters, profiles and parameters of
// policies compared with values worked out by hand; the example compared with the table.
#include "core/config/keys.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "core/config/document.h"
#include "core/config/profile_file.h"
#include "core/config/section.h"
#include "core/host/kinds.h"
#include "core/host/parameters.h"
#include "tests/unit/config_texts.h"

namespace keys_test {

using namespace moorage::core;
using namespace moorage::test;

namespace {

// With it every key of the sections below is of use.
const std::string whole_text =
    "[hardware]\nprofile = \"rtx_4090\"\ndisk = \"nvme_gen4\"\n"
    "[source]\nmodel = \"demo\"\n"
    "[emulator]\npolicy_time = \"declared\"\n";

bool is_section(const key_table &table) {
    return table.title.starts_with('[') && table.name.find("cluster") != 0;
}

std::string with_exponent(double value) { return format("{:.17e}", value); }

}  // namespace

TEST_CASE("every row says what it takes and means, once") {
    size_t rows = 0;
    for (const key_table &table : key_tables()) {
        CAPTURE(table.name);
        CHECK_FALSE(table.meaning.empty());
        std::set<std::string_view> names;
        for (const documented_key &entry : table.keys) {
            const config_key &key = *entry.key;
            CAPTURE(key.name);
            ++rows;
            CHECK(is_bare_key(key.name));
            CHECK(names.insert(key.name).second);
            CHECK_FALSE(key.meaning.empty());
            CHECK_FALSE(key.meaning.ends_with('.'));
            CHECK(key.meaning.find('|') == std::string_view::npos);  // of a page's tables
            CHECK_FALSE(text_of(key.accepted).empty());
            CHECK(key.accepted.least <= key.accepted.most);
            CHECK(key.accepted.low <= key.accepted.high);
            // Names that end in a unit mean it.
            if (const quantity_unit named = unit_of_name(key.name); named != quantity_unit::none)
                if (key.accepted.kind != value_kind::other)
                    if (key.name != "weight_bytes") CHECK(key.accepted.unit == named);
            if (key.accepted.kind == value_kind::word && entry.default_text.starts_with('"')) {
                const std::vector<std::string> words = words_of(key.accepted);
                const std::string usual =
                    entry.default_text.substr(1, entry.default_text.find('"', 1) - 1);
                CHECK(std::ranges::find(words, usual) != words.end());
            }
        }
    }
    CHECK(rows > 150);
}

TEST_CASE("the parser takes what a row's bounds hold, and nothing beyond") {
    for (const key_table &table : key_tables()) {
        if (!is_section(table) || table.name == "placement" || table.name == "cache.host") continue;
        for (const documented_key &entry : table.keys) {
            const value_shape &takes = entry.key->accepted;
            const std::string name = format("{}.{}", table.name, entry.key->name);
            CAPTURE(name);
            const std::string set = name + "=";
            if (takes.usual_high != 0) continue;  // below
            if (takes.kind == value_kind::whole || takes.kind == value_kind::amount) {
                // The pieces of a model's prompt are no longer than this.
                const uint64_t most = name == "run.prefill" ? 65536 : takes.most;
                accepted(whole_text, {set + std::to_string(takes.least)});
                accepted(whole_text, {set + std::to_string(most)});
                CHECK(holds(refused(whole_text,
                                    {set + std::to_string(static_cast<int64_t>(takes.least) - 1)}),
                            format("--set {}", name)));
                if (most < INT64_MAX)
                    CHECK(holds(refused(whole_text, {set + std::to_string(most + 1)}),
                                "choose from"));
            }
            if (takes.kind == value_kind::real) {
                const double inf = std::numeric_limits<double>::infinity();
                const std::string low = with_exponent(takes.low),
                                  below = with_exponent(std::nextafter(takes.low, -inf)),
                                  above = with_exponent(std::nextafter(takes.low, inf));
                if (takes.above_low)
                    CHECK(holds(refused(whole_text, {set + low}), "is needed"));
                else
                    accepted(whole_text, {set + low});
                CHECK(holds(refused(whole_text, {set + below}), "is needed"));
                accepted(whole_text, {set + above});
                accepted(whole_text, {set + with_exponent(takes.high)});
                CHECK(holds(
                    refused(whole_text, {set + with_exponent(std::nextafter(takes.high, inf))}),
                    "is needed"));
                for (const char *bad : {"nan", "inf", "NaN", "-inf"})
                    refused(whole_text, {set + bad});
            }
            if (takes.kind == value_kind::word) {
                const std::string devices = "hardware.devices=[\"a\", \"b\"]";  // for spread
                CHECK(holds(refused(whole_text, {devices, set + "xyzzy"}), "choose "));
                CHECK(holds(refused(whole_text, {devices, set + words_of(takes)[0] + "s"}),
                            "did you mean " + words_of(takes)[0]));
            }
        }
    }
}

namespace {

// The error of a section of one key for a value; "" if it takes the value.
std::string said_to(const config_key &key, const node &value) {
    section_reader section("x.toml", "[x]");
    section.add(config_value{std::string(key.name), value, "x.toml:1", std::nullopt});
    if (key.accepted.kind == value_kind::whole) {
        uint64_t read = 0;
        section.read(key, read);
    } else {
        double read = 0;
        section.read(key, read);
    }
    return section.failed() ? section.failure().text : "";
}
node plain_number(double value) {
    node literal;
    literal.type = node_type::number;
    literal.number = value;
    return literal;
}
node text_node(const std::string &text) {
    node literal;
    literal.type = node_type::text;
    literal.text = text;
    return literal;
}

}  // namespace

TEST_CASE("plain numbers are believed where a key's usually are; with their unit all are") {
    size_t rows = 0;
    for (const key_table &table : key_tables())
        for (const documented_key &entry : table.keys) {
            const value_shape &takes = entry.key->accepted;
            const bool counts = takes.unit != quantity_unit::none &&
                                takes.unit != quantity_unit::share &&
                                (takes.kind == value_kind::real || takes.kind == value_kind::whole);
            const bool of_hardware = table.name.find("cluster") == 0 || table.name == "device" ||
                                     table.name == "link" || table.name == "node" ||
                                     table.name == "disk" || table.name == "engine";
            const std::string name = format("{}.{}", table.name, entry.key->name);
            CAPTURE(name);
            if (of_hardware && counts && name != "engine.prompt_ns") CHECK(takes.usual_high != 0);
            if (takes.usual_high == 0) continue;
            ++rows;
            const bool whole = takes.kind == value_kind::whole;
            const double low = whole ? std::max(takes.usual_low, 1.0) : takes.usual_low;
            CHECK(said_to(*entry.key, plain_number(low)).empty());
            CHECK(said_to(*entry.key, plain_number(takes.usual_high)).empty());
            const std::string above = said_to(*entry.key, plain_number(takes.usual_high * 2));
            CHECK(holds(above, "they are believed"));
            CHECK(said_to(*entry.key, text_node(quantity_text(takes.usual_high * 2, takes.unit)))
                      .empty());
            if (takes.low == 0 && !takes.above_low && takes.least == 0)
                CHECK(said_to(*entry.key, plain_number(0)).empty());
            // The unit that is lost the most is one, and makes the number usual again.
            const auto likely = parse_quantity(format("1 {}", takes.likely), takes.unit);
            REQUIRE_MESSAGE(likely.ok(), std::string(takes.likely));
            if (takes.usual_low < 2) continue;
            const double below = whole ? 1 : takes.usual_low / 2;
            const std::string said = said_to(*entry.key, plain_number(below));
            CHECK(holds(said, format("did you mean \"{} ", below)));
            CHECK(said_to(*entry.key, text_node(quantity_text(below, takes.unit))).empty());
        }
    CHECK(rows > 60);
}

TEST_CASE("a number that lost its unit is given back the likely one") {
    const std::string sources =
        "[sources]\nh2d_bytes_per_s = \"[G] x\"\nd2h_bytes_per_s = \"[G] x\"\n"
        "issue_ns = \"[G] x\"\n";
    const auto link = [&](const std::string &rate, const std::string &issue) {
        const auto parsed =
            parse_link(format("kind = \"link\"\nname = \"x\"\nh2d_bytes_per_s = {}\n"
                              "d2h_bytes_per_s = 24e9\nissue_ns = {}\n{}",
                              rate, issue, sources),
                       "x.toml");
        return parsed.ok() ? "" : parsed.failure().text;
    };
    CHECK(link("25.3e9", "7000").empty());
    CHECK(link("25.3", "7000") ==
          "x.toml:3: link profile h2d_bytes_per_s is the number 25.3000; plain numbers are in "
          "bytes/s, and from 1 MB/s to 100 TB/s they are believed; did you mean \"25.3 GB/s\"; "
          "\"25.3 B/s\" is taken as it stands");
    CHECK(link("\"25.3 B/s\"", "7000").empty());
    CHECK(holds(link("900", "7000"), "did you mean \"900 GB/s\""));
    CHECK(holds(link("9e15", "7000"), "from 1 MB/s to 100 TB/s they are believed"));
    CHECK(holds(link("25e9", "7"), "did you mean \"7 us\""));
    CHECK(link("25e9", "0").empty());
    CHECK(link("25e9", "\"7 ns\"").empty());
    CHECK(holds(link("25e9", "700000000"), "from 10 ns to 100 ms they are believed"));
    const std::string text = R"(
[cluster]
[[cluster.models]]
name = "demo"
[[cluster.servers]]
name = "a"
count = 2
flops = 2e12
expert_memory_bytes = 0
workload = "w"
[[cluster.links]]
from = "*"
to = "*"
bits_per_s = 5e8
[[cluster.workloads]]
name = "w"
zipf = 1
poisson_s = 1
output_tokens = 5
)";
    // 0 is a size like any other: a server that holds no expert.
    CHECK(accepted(text).cluster->servers[0].expert_memory_bytes == 0u);
    const std::pair<const char *, const char *> slips[] = {
        {"cluster.servers.expert_memory_bytes=24", "\"24 GB\""},
        {"cluster.servers.flops=312", "\"312 TFLOP/s\""},
        {"cluster.servers.load_bytes_per_s=25.3", "\"25.3 GB/s\""},
        {"cluster.links.bits_per_s=10", "\"10 Gbit/s\""},
        {"cluster.links.latency_s=20", "\"20 ms\""},
        {"cluster.local_bits_per_s=400", "\"400 Gbit/s\""},
        {"cluster.workloads.poisson_s=5e7", ""},
        {"placement.migration_bytes_per_s=2", "\"2 GB/s\""}};
    for (const auto &[setting, meant] : slips) {
        const std::string set = setting;
        CAPTURE(set);
        const std::string said = refused(text, {set});
        CHECK(holds(said, "they are believed"));
        CHECK(holds(said, *meant == 0 ? "" : format("did you mean {}", meant)));
    }
    CHECK(accepted(text, {"cluster.links.bits_per_s=10 bit/s"}).cluster->links[0].bits_per_s == 10);
}

TEST_CASE("sizes, shares and times with units, in a file and in --set") {
    CHECK(accepted(least, {"memory.bytes=5 GiB"}).bytes == 5'368'709'120u);
    CHECK(accepted(least, {"memory.bytes=\"5 GiB\""}).bytes == 5'368'709'120u);
    CHECK(accepted(least, {"memory.bytes=2.5e9"}).bytes == 2'500'000'000u);
    CHECK(accepted(least, {"memory.bytes=0.3 GiB"}).bytes == 322'122'547u);  // to the nearest
    CHECK(holds(refused(least, {"memory.bytes=1.6 B"}), "an integer from 1"));
    CHECK(accepted(least, {}).call_limit_ms == 10'000);
    CHECK(accepted(least, {"plugins.call_limit_ms=2 s"}).call_limit_ms == 2000);
    CHECK(accepted(least, {"run.guard_margin=2%"}).guard_margin == 0.02);
    CHECK(accepted(least, {"router.substitution_max=12.5 %"}).substitution_max == 0.125);
    CHECK(accepted(least, {"memory.split=50%"}).split == 0.5);
    CHECK(accepted(least, {"emulator.policy_time=declared", "emulator.policy_call_ns=1.5 us"})
              .policy_call_ns == 1500);
    const std::string text =
        "[hardware]\nprofile = \"h\"\n[source]\ntrace = \"t\"\n[memory]\nbytes = \"20 GB\"\n"
        "split = \"25%\"\n";
    CHECK(accepted(text).bytes == 20'000'000'000u);
    CHECK(accepted(text).split == 0.25);
}

TEST_CASE("experts are counted, or a share of all") {
    const run_config quarter = accepted(least, {"memory.experts=25%"});
    CHECK(quarter.experts_share == 0.25);
    CHECK_FALSE(quarter.experts.has_value());
    CHECK(quarter.sizes_cache());
    CHECK(accepted(least, {"memory.experts=10 %"}).experts_share == 0.1);
    CHECK(accepted(least, {"memory.experts=100%"}).experts_share == 1);
    const run_config host = accepted(least, {"hardware.disk=nvme_gen4", "memory.host_experts=50%"});
    CHECK(host.host_experts_share == 0.5);
    CHECK(host.reads_disk());
    CHECK(holds(refused(least, {"memory.experts=0%"}), "above 0 % and at most 100 %"));
    CHECK(holds(refused(least, {"memory.experts=150%"}), "above 0 % and at most 100 %"));
    CHECK(holds(refused(least, {"memory.experts=-3%"}), "above 0 % and at most 100 %"));
    CHECK(holds(refused(least, {"memory.experts=\"96\""}), "its unit is missing"));
    CHECK(holds(refused(least, {"memory.experts=0.25"}), "[memory] experts is the number 0.25"));
    CHECK(holds(refused(least, {"memory.experts=many"}), "a number comes first"));
    // Experts are counted; their bytes are another key.
    CHECK(holds(refused(least, {"memory.experts=5GB"}),
                "it counts experts; for their size say bytes = \"5GB\""));
    CHECK(holds(refused(least, {"hardware.disk=nvme_gen4", "memory.host_experts=5 GiB"}),
                "for their size say host_bytes = \"5 GiB\""));
}

TEST_CASE("numbers with wrong units name place, key, what is wrong and the nearest") {
    const auto bytes = [](const std::string &value) {
        return refused(least, {"memory.bytes=" + value});
    };
    CHECK(holds(bytes("5 GiBs"),
                "--set memory.bytes: [memory] bytes is the text \"5 GiBs\"; GiBs "
                "is no unit of it; did you mean GiB"));
    CHECK(holds(bytes("5 Gbit/s"), "Gbit/s is no unit of it"));
    CHECK(holds(bytes("NaN"), "a number comes first"));
    CHECK(holds(bytes("nan"), "choose from 1"));  // TOML has one
    CHECK(holds(bytes("1e400 B"), "too large"));
    CHECK(holds(bytes("1e290 GB"), "choose from 1 to 1125899906842624"));
    CHECK(holds(bytes("2048 TiB"), "choose from 1 to 1125899906842624"));
    CHECK(holds(bytes("-5 GiB"), "choose from 1"));
    CHECK(holds(bytes("0.2 B"), "an integer from 1"));
    // Values that rounding would change; 0 means no limit.
    for (const char *text : {"0.4", "1.5", "0.4 ms"})
        CHECK(holds(refused(least, {format("plugins.call_limit_ms={}", text)}),
                    "an integer from 0 to 86400000"));
    CHECK(accepted(least, {"plugins.call_limit_ms=1.5 s"}).call_limit_ms == 1500);
    CHECK(holds(bytes("\"5\""), "its unit is missing"));
    CHECK(holds(refused(least, {"run.tokens=5 GB"}), "an integer from 0"));  // it has none
    CHECK(holds(refused(least + "[run]\nguard_margin = \"2 percent\"\n"), "conf/run.toml:8"));
}

TEST_CASE("rates, times and lengths of a cluster with units") {
    const std::string text = R"(
[cluster]
duration_s = "10 min"
local_bits_per_s = "1 GB/s"
[[cluster.models]]
name = "demo"
expert_bytes = "1.5 MiB"
[[cluster.servers]]
name = "a"
count = 2
flops = "2 TFLOP/s"
expert_memory_bytes = "5 GB"
load_bytes_per_s = "8 Gbit/s"
workload = "w"
[[cluster.links]]
from = "*"
to = "*"
bits_per_s = "500 Mbit/s"
latency_s = "250 us"
[[cluster.workloads]]
name = "w"
zipf = 1
poisson_s = "500 ms"
input_tokens = 5
output_tokens = 5
[placement]
interval_s = "5 min"
migration_bytes_per_s = "10 MB/s"
)";
    const run_config config = accepted(text);
    const cluster_config &cluster = *config.cluster;
    CHECK(cluster.duration_s == 600);
    CHECK(cluster.local_bits_per_s == 8e9);
    CHECK(cluster.models[0].expert_bytes == 1'572'864u);
    CHECK(cluster.servers[1].flops == 2e12);
    CHECK(cluster.servers[1].expert_memory_bytes == 5'000'000'000u);
    CHECK(cluster.servers[1].load_bytes_per_s == 1e9);
    CHECK(cluster.links[0].bits_per_s == 5e8);
    CHECK(cluster.links[0].latency_s == 250e-6);
    CHECK(cluster.workloads[0].poisson_s == 0.5);
    CHECK(cluster.interval_s == 300);
    CHECK(cluster.migration_bytes_per_s == 1e7);
    CHECK(accepted(text, {"cluster.links.bits_per_s=1 Gbit/s"}).cluster->links[0].bits_per_s ==
          1e9);
    CHECK(accepted(text, {"cluster.servers.expert_memory_bytes=2 GiB"})
              .cluster->servers[0]
              .expert_memory_bytes == 2'147'483'648u);
    CHECK(holds(refused(text, {"cluster.links.bits_per_s=1 Gb/s"}), "did you mean"));
    CHECK(holds(refused(text, {"cluster.links.bitsperss=1"}), "did you mean bits_per_s"));
}

TEST_CASE("profiles take units, too") {
    const auto link = parse_link(
        "kind = \"link\"\nname = \"x\"\nh2d_bytes_per_s = \"200 Gbit/s\"\n"
        "d2h_bytes_per_s = \"24 GB/s\"\nissue_ns = \"7 us\"\n[sources]\n"
        "h2d_bytes_per_s = \"[G] x\"\nd2h_bytes_per_s = \"[G] x\"\nissue_ns = \"[G] x\"\n",
        "x.toml");
    REQUIRE_MESSAGE(link.ok(), (link ? "" : link.failure().text));
    CHECK(link->h2d_bytes_per_s == 25e9);
    CHECK(link->d2h_bytes_per_s == 24e9);
    CHECK(link->issue_ns == 7000);
    const auto wrong = parse_disk(
        "kind = \"disk\"\nname = \"x\"\nread_bytes_per_s = \"7 GBps\"\nissue_ns = 5\n[sources]\n"
        "read_bytes_per_s = \"[G] x\"\nissue_ns = \"[G] x\"\n",
        "x.toml");
    REQUIRE_FALSE(wrong.ok());
    CHECK(holds(wrong.failure().text, "x.toml:3: disk profile read_bytes_per_s"));
    CHECK(holds(wrong.failure().text, "did you mean GB/s"));
}

TEST_CASE("parameters of policies have the unit that their names end in") {
    moorage_param bytes{}, share{}, plain{};
    for (moorage_param *parameter : {&bytes, &share, &plain})
        parameter->size = sizeof(moorage_param);
    bytes.plugin_key = "chunk_bytes";
    bytes.type = MOORAGE_PARAM_INTEGER;
    bytes.integer_min = 1, bytes.integer_max = 1 << 30;
    share.plugin_key = "kept_share";
    share.type = MOORAGE_PARAM_REAL;
    share.real_min = 0, share.real_max = 1;
    plain.plugin_key = "levels";
    plain.type = MOORAGE_PARAM_INTEGER;
    plain.integer_min = 0, plain.integer_max = 9;
    const moorage_param parameters[] = {bytes, share, plain};
    const auto read = [&](const std::string &key, const std::string &text) {
        return check_parameters("transport policy x", parameters,
                                {{key, text, "--set transport.x"}});
    };
    const auto four = read("chunk_bytes", "4 MiB");
    REQUIRE(four.ok());
    CHECK((*four)[0].second == setting_value{int64_t{4'194'304}});
    const auto third = read("kept_share", "37.5%");
    REQUIRE(third.ok());
    CHECK((*third)[1].second == setting_value{0.375});
    CHECK(holds(read("chunk_bytes", "4 MiBs").failure().text, "did you mean MiB"));
    CHECK(holds(read("chunk_bytes", "2 GiB").failure().text, "out of range"));
    CHECK(holds(read("chunk_bytes", "1e30 B").failure().text, "too large"));
    CHECK(holds(read("kept_share", "-3%").failure().text, "out of range"));
    CHECK(holds(read("levels", "4 MiB").failure().text, "is of type text, expected integer"));
}

TEST_CASE("the example has every key of a run on one machine") {
    const auto text =
        read_document(std::filesystem::path(MOORAGE_SOURCE_DIR) / "configs/example.toml");
    REQUIRE(text.ok());
    for (const key_table &table : key_tables()) {
        if (!is_section(table) || table.is_open || table.name == "registry") continue;
        CHECK(holds(*text, table.title));
        for (const documented_key &entry : table.keys)
            CHECK(holds(*text, std::string(entry.key->name) + " = "));
    }
}

}  // namespace keys_test
