// cluster_config_test.cpp - goal: a cluster is read as documented, --set reaches its tables, and
// every mistake in it is named. Method: small texts written here, with the line, name and remedy
// that the message has to hold.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/config/run_config.h"

namespace cluster_config_test {

using namespace moorage::core;

namespace {

// Two servers, a link between them and one workload: the least that a cluster needs, in parts that
// tests replace.
struct description {
    std::string cluster;
    std::string model = "[[cluster.models]]\nname = \"m\"\nshape = \"switch_base_8\"\n";
    std::string servers =
        "[[cluster.servers]]\nname = \"a\"\ngpus = \"a100_40gb\"\nworkload = \"w\"\n"
        "[[cluster.servers]]\nname = \"b\"\ngpus = [\"a100_40gb\", \"rtx_4090\"]\n";
    std::string links = "[[cluster.links]]\nfrom = \"a\"\nto = \"b\"\nbits_per_s = 8e6\n";
    std::string workload = "[[cluster.workloads]]\nname = \"w\"\nzipf = 1\n";
    std::string rest;

    std::string text() const { return cluster + model + servers + links + workload + rest; }
};

const std::string radio =
    "[cluster.radio]\nuser_bandwidth_hz = 5e6\nuser_power_w = 0.01\nserver_power_w = 6.3\n"
    "noise_w_per_hz = 4e-21\narea_m = 100\n";
const std::string user = "[[cluster.users]]\nname = \"u\"\nflops = 1e12\nworkload = \"w\"\n";
const std::string cloud = "[cluster.cloud]\nflops = 3e14\nlatency_s = 0.01\n";

result<run_config> read(const std::string &text, const std::vector<std::string> &set = {}) {
    std::vector<override_value> overrides;
    for (const std::string &setting : set) {
        auto parsed = parse_override(setting);
        REQUIRE_MESSAGE(parsed.ok(), setting);
        overrides.push_back(*parsed);
    }
    return parse_run_config(text, "conf/run.toml", overrides);
}

cluster_config accepted(const description &document, const std::vector<std::string> &set = {}) {
    const auto config = read(document.text(), set);
    REQUIRE_MESSAGE(config.ok(), (config ? "" : config.failure().text));
    REQUIRE(config->cluster.has_value());
    return *config->cluster;
}

// The message of a refusal; holds all of `parts`.
void refused(const description &document, const std::vector<std::string> &parts,
             const std::vector<std::string> &set = {}) {
    const auto config = read(document.text(), set);
    REQUIRE_FALSE_MESSAGE(config.ok(), parts.front());
    const std::string &text = config.failure().text;
    CHECK(config.failure().usage);
    CHECK_MESSAGE(text.find('\n') == std::string::npos, text);
    for (const std::string &part : parts)
        CHECK_MESSAGE(text.find(part) != std::string::npos, ("\"" + text + "\" lacks " + part));
}

description with_section(std::string description::*part, const std::string &text) {
    description changed;
    changed.*part = text;
    return changed;
}

description adding(const std::string &rest) { return with_section(&description::rest, rest); }

// Adds keys to the only workload, the first server, or the link.
description workload_with(const std::string &keys) {
    return with_section(&description::workload, description().workload + keys);
}
description workload_of(const std::string &keys) {
    return with_section(&description::workload, "[[cluster.workloads]]\nname = \"w\"\n" + keys);
}
description server_of(const std::string &keys) {
    return with_section(&description::servers, "[[cluster.servers]]\n" + keys);
}

// A folder of its own that goes with the test.
struct folder {
    std::filesystem::path path =
        std::filesystem::temp_directory_path() / ("moorage_cluster_" + std::to_string(getpid()));
    folder() { std::filesystem::create_directories(path); }
    ~folder() { std::filesystem::remove_all(path); }
    std::filesystem::path write(const std::string &name, const std::string &text) const {
        std::filesystem::create_directories((path / name).parent_path());
        std::ofstream(path / name) << text;
        return path / name;
    }
};

}  // namespace

TEST_CASE("the least cluster gets the documented defaults") {
    const cluster_config config = accepted({});
    CHECK_FALSE(config.serial_calls);
    CHECK_FALSE(config.returns_each);
    REQUIRE(config.models.size() == 1);
    CHECK(config.models[0].shape == "switch_base_8");
    CHECK(config.models[0].value_bits == 16);
    CHECK(config.models[0].groups == 1);
    CHECK_FALSE(config.models[0].expert_bytes.has_value());
    REQUIRE(config.servers.size() == 2);
    CHECK(config.servers[0].gpus == std::vector<std::string>{"a100_40gb"});
    CHECK(config.servers[1].gpus == std::vector<std::string>{"a100_40gb", "rtx_4090"});
    CHECK(config.servers[1].workload.empty());
    CHECK_FALSE(config.servers[0].expert_memory_bytes.has_value());
    REQUIRE(config.links.size() == 1);
    CHECK(config.links[0].symmetric);
    CHECK(config.links[0].bits_per_s == 8e6);
    CHECK(config.links[0].latency_s == 0);
    CHECK_FALSE(config.cloud.has_value());
    CHECK_FALSE(config.radio.has_value());
    REQUIRE(config.workloads.size() == 1);
    CHECK(config.workloads[0].zipf == 1);
    CHECK(config.workloads[0].groups_max == 16384);
    REQUIRE(config.workloads[0].models.size() == 1);
    CHECK(config.workloads[0].models[0] == std::pair<std::string, double>{"m", 1.0});
    CHECK(config.interval_s == 300);
    CHECK(config.window_s == 600);
    CHECK(config.migration_bytes_per_s == 0);
    CHECK(config.migration_delay_max == 0.1);
    CHECK(config.plan.empty());
}

TEST_CASE("every key is read") {
    description document;
    document.cluster =
        "[cluster]\nserial_calls = true\nreturns_each = true\nduration_s = 60\nrequests = 7\n"
        "bucket_s = 5\noffers_max = 3\nlocal_bits_per_s = 1e11\n";
    document.model =
        "[[cluster.models]]\nname = \"m\"\nshape = \"switch_base_8\"\nexpert_bytes = 1e6\n"
        "value_bits = 8\ngroups = 2\n";
    document.servers =
        "[[cluster.servers]]\nname = \"a\"\nflops = 1e13\nexpert_memory_bytes = 2.5e9\n"
        "load_bytes_per_s = 1e9\nposition = [1, 2.5]\nworkload = \"w\"\n"
        "[[cluster.servers]]\nname = \"b\"\ngpus = \"rtx_4090\"\ngpu_count = 3\n"
        "expert_memory_share = 0.25\nhost_experts = true\n";
    document.links =
        "[[cluster.links]]\nfrom = \"*\"\nto = \"b\"\nsymmetric = false\nbits_per_s = 1e6\n"
        "latency_s = 0.5\n";
    document.workload =
        "[[cluster.workloads]]\nname = \"w\"\nmodels = {m = 1}\ntrace = \"t.safetensors\"\n"
        "domains = [\"x\", \"y\"]\nrequest_first = 2\nrequest_step = 6\nzipf = 0.5\n"
        "draw_seed = 4\nper_user = true\ngroups_max = 99\npoisson_s = 2\ninput_tokens = 10\n"
        "output_tokens = 20\nthen = \"w\"\nthen_s = 30\n";
    document.rest =
        cloud + "bits_per_s = 1e9\n" + radio +
        "server_bandwidth_hz = 1e8\ngain = 2\npath_loss = 3\ndistance_min_m = 5\n"
        "position_seed = 9\n" +
        user +
        "local_experts = 7\n[placement]\nplugin = \"p\"\ninterval_s = 1\nwindow_s = 2\n"
        "migration_bytes_per_s = 3000\nmigration_delay_max = 4\nplan = \"old.json\"\nown = 5\n";
    const cluster_config config = accepted(document);
    CHECK(config.serial_calls);
    CHECK(config.returns_each);
    CHECK(config.duration_s == 60);
    CHECK(config.requests == 7);
    CHECK(config.bucket_s == 5);
    CHECK(config.offers_max == 3);
    CHECK(config.local_bits_per_s == 1e11);
    CHECK(config.models[0].expert_bytes == 1'000'000);
    CHECK(config.models[0].value_bits == 8);
    CHECK(config.models[0].groups == 2);
    CHECK(config.servers[0].flops == 1e13);
    CHECK(config.servers[0].expert_memory_bytes == 2'500'000'000);
    CHECK(config.servers[0].load_bytes_per_s == 1e9);
    CHECK(config.servers[0].location->x == 1);
    CHECK(config.servers[0].location->y == 2.5);
    CHECK(config.servers[1].gpus.size() == 3);
    CHECK(config.servers[1].expert_memory_share == 0.25);
    CHECK(config.servers[1].host_experts);
    CHECK_FALSE(config.links[0].symmetric);
    CHECK(config.links[0].latency_s == 0.5);
    const cluster_workload &workload = config.workloads[0];
    CHECK(workload.trace == "conf/t.safetensors");
    CHECK(workload.domains == std::vector<std::string>{"x", "y"});
    CHECK(workload.request_first == 2);
    CHECK(workload.request_step == 6);
    CHECK(workload.zipf == 0.5);
    CHECK(workload.draw_seed == 4);
    CHECK(workload.per_user);
    CHECK(workload.groups_max == 99);
    CHECK(workload.poisson_s == 2);
    CHECK(workload.input_tokens == 10);
    CHECK(workload.output_tokens == 20);
    CHECK(workload.next_workload == "w");
    CHECK(workload.next_workload_s == 30);
    CHECK(config.cloud->bits_per_s == 1e9);
    CHECK(config.cloud->latency_s == 0.01);
    CHECK(config.radio->server_bandwidth_hz == 1e8);
    CHECK(config.radio->gain == 2);
    CHECK(config.radio->path_loss == 3);
    CHECK(config.radio->distance_min_m == 5);
    CHECK(config.users[0].local_experts == 7);
    CHECK(config.interval_s == 1);
    CHECK(config.window_s == 2);
    CHECK(config.migration_bytes_per_s == 3000);
    CHECK(config.migration_delay_max == 4);
    CHECK(config.plan == "conf/old.json");
    // Only the policy's own keys become its parameters.
    const auto run = read(document.text());
    REQUIRE(run->placement.params.size() == 1);
    CHECK(run->placement.params[0].key == "own");
}

TEST_CASE("a count makes entries, whose names and workloads follow their number") {
    description many;
    many.servers =
        "[[cluster.servers]]\nname = \"s\"\ncount = 3\ngpus = \"a100_40gb\"\n"
        "workload = [\"w\", \"v\"]\n";
    many.links = "[[cluster.links]]\nfrom = \"s\"\nto = \"*\"\nbits_per_s = 1e6\n";
    many.model = "[[cluster.models]]\nname = \"m\"\nshape = \"switch_base_8\"\ncount = 2\n";
    many.workload =
        "[[cluster.workloads]]\nname = \"w\"\nzipf = 1\nmodels = {m = 1}\n"
        "[[cluster.workloads]]\nname = \"v\"\nzipf = 1\nmodels = \"m\"\nmodel_zipf = 1\n";
    const cluster_config config = accepted(many);
    REQUIRE(config.servers.size() == 3);
    CHECK(config.servers[0].name == "s.0");
    CHECK(config.servers[2].name == "s.2");
    CHECK(config.servers[0].workload == "w");
    CHECK(config.servers[1].workload == "v");
    CHECK(config.servers[2].workload == "w");
    REQUIRE(config.workloads[0].models.size() == 2);
    CHECK(config.workloads[0].models[1] == std::pair<std::string, double>{"m.1", 0.5});
    // Ranks 1 and 2 at exponent 1: 1 and 1/2 over 3/2.
    CHECK(config.workloads[1].models[0].second == doctest::Approx(2.0 / 3));
    CHECK(config.workloads[1].models[1].second == doctest::Approx(1.0 / 3));
}

TEST_CASE("--set changes tables: of all entries, of one, of a table that the file lacks") {
    CHECK(accepted({}, {"cluster.servers.expert_memory_bytes=2.5e9"})
              .servers[1]
              .expert_memory_bytes == 2'500'000'000);
    const cluster_config changed = accepted({}, {"cluster.servers.b.expert_memory_bytes=5 B"});
    CHECK_FALSE(changed.servers[0].expert_memory_bytes.has_value());
    CHECK(changed.servers[1].expert_memory_bytes == 5);
    CHECK(accepted({}, {"cluster.links.bits_per_s=5e8"}).links[0].bits_per_s == 5e8);
    CHECK(accepted({}, {"cluster.workloads.zipf=0.3"}).workloads[0].zipf == 0.3);
    CHECK(accepted({}, {"cluster.serial_calls=true"}).serial_calls);
    const cluster_config cloud_config =
        accepted({}, {"cluster.cloud.flops=1e15", "cluster.cloud.latency_s=0.02"});
    REQUIRE(cloud_config.cloud.has_value());
    CHECK(cloud_config.cloud->latency_s == 0.02);
    // The last one of a key counts, and it replaces the key that excludes it.
    CHECK(
        accepted({}, {"cluster.workloads.zipf=1", "cluster.workloads.zipf=2"}).workloads[0].zipf ==
        2);
    const cluster_config ideal =
        accepted({}, {"cluster.servers.flops=1e13", "cluster.servers.expert_memory_bytes=1e9"});
    CHECK(ideal.servers[1].gpus.empty());
    CHECK(ideal.servers[1].flops == 1e13);
    const description users = adding(radio + user);
    CHECK(accepted(users, {"cluster.users.count=5"}).users.size() == 5);
    CHECK(accepted(users, {"cluster.users.count=5", "cluster.radio.shared_bandwidth_hz=1e6"})
              .radio->user_bandwidth_hz == 2e5);
    CHECK(accepted(users, {"cluster.users.local_experts=3"}).users[0].local_experts == 3);
    CHECK(accepted({}, {"placement.interval_s=7"}).interval_s == 7);
    // Paths of --set are relative to the current folder.
    CHECK(accepted({}, {"cluster.workloads.trace=x/t.safetensors"}).workloads[0].trace ==
          "x/t.safetensors");

    refused({}, {"--set cluster.server.count", "unknown table server", "did you mean servers"},
            {"cluster.server.count=1"});
    refused({}, {"--set cluster.servers.cont", "did you mean count"}, {"cluster.servers.cont=1"});
    refused({}, {"--set cluster.servers.c.flops", "no servers called c"},
            {"cluster.servers.c.flops=1"});
    refused({}, {"--set cluster.users.count", "[cluster] has no users"}, {"cluster.users.count=1"});
    refused({}, {"--set cluster.servers", "write [[cluster.servers]]"}, {"cluster.servers=3"});
    refused({}, {"--set cluster.serial_call", "did you mean serial_calls"},
            {"cluster.serial_call=true"});
}

TEST_CASE("positions are drawn, each apart from the others") {
    const description base = adding(radio + user);
    const cluster_config config = accepted(base, {"cluster.users.count=20"});
    for (const cluster_user &placed_user : config.users) {
        REQUIRE(placed_user.location.has_value());
        CHECK(placed_user.location->x >= 0);
        CHECK(placed_user.location->x < 100);
        CHECK(placed_user.location->y < 100);
    }
    CHECK(config.users[0].location->x != config.users[1].location->x);
    // Another user, or a fixed place for a server, moves nobody. Another seed moves everybody.
    const cluster_config moved =
        accepted(base, {"cluster.users.count=30", "cluster.servers.a.position=[5, 6]"});
    CHECK(moved.servers[0].location->x == 5);
    CHECK(moved.servers[1].location->x == config.servers[1].location->x);
    CHECK(moved.users[19].location->y == config.users[19].location->y);
    const cluster_config reseeded =
        accepted(base, {"cluster.users.count=20", "cluster.radio.position_seed=1"});
    CHECK(reseeded.users[19].location->y != config.users[19].location->y);
}

TEST_CASE("a cluster can stand in a file of its own") {
    const folder temporary;
    description whole = workload_with("trace = \"t.safetensors\"\n");
    whole.rest = "[report]\ntitle = \"not read\"\n";
    temporary.write("described/cluster.toml", whole.text());
    const auto run = temporary.write(
        "run.toml", "[cluster]\nfile = \"described/cluster.toml\"\n[placement]\nwindow_s = 5\n");
    const auto load = [&](const std::filesystem::path &file, const std::vector<std::string> &set) {
        std::vector<override_value> overrides;
        for (const std::string &setting : set) overrides.push_back(*parse_override(setting));
        return load_run_config(file, overrides);
    };
    auto config = load(run, {"cluster.workloads.zipf=0.25"});
    REQUIRE_MESSAGE(config.ok(), (config ? "" : config.failure().text));
    CHECK(config->cluster->servers.size() == 2);
    CHECK(config->cluster->workloads[0].zipf == 0.25);
    CHECK(config->cluster->workloads[0].trace == temporary.path / "described/t.safetensors");
    CHECK(config->cluster->window_s == 5);
    CHECK(config->title.empty());

    // --set can choose the file, and then the description beside it does not count.
    const auto inline_one = temporary.write("inline.toml", description().text());
    config =
        load(inline_one, {"cluster.file=" + (temporary.path / "described/cluster.toml").string()});
    REQUIRE_MESSAGE(config.ok(), (config ? "" : config.failure().text));
    CHECK_FALSE(config->cluster->workloads[0].trace.empty());

    const auto text_of = [&](const std::string &name, const std::string &text) {
        const auto failed = load(temporary.write(name, text), {});
        return failed.ok() ? std::string("accepted") : failed.failure().text;
    };
    CHECK(text_of("a.toml", "[cluster]\nfile = \"none.toml\"\n").find("none.toml: no such file") !=
          std::string::npos);
    CHECK(text_of("b.toml", "[cluster]\nfile = \"run.toml\"\n").find("cannot name a further one") !=
          std::string::npos);
    CHECK(text_of("c.toml", "[cluster]\nfile = \"described/cluster.toml\"\nserial_calls = true\n")
              .find("beside file") != std::string::npos);
    temporary.write("empty.toml", "[report]\ntitle = \"x\"\n");
    CHECK(text_of("d.toml", "[cluster]\nfile = \"empty.toml\"\n").find("no section [cluster]") !=
          std::string::npos);
    // A text that came from no file names none.
    CHECK(read("[cluster]\nfile = \"x.toml\"\n").failure().text.find("came from no file") !=
          std::string::npos);
}

TEST_CASE("mistakes in entries") {
    refused(with_section(&description::model, "[cluster]\nmodels = 3\n"),
            {"conf/run.toml:2: [cluster] models", "[[cluster.models]]"});
    refused(with_section(&description::model, "[cluster.models]\nname = \"m\"\n"),
            {"[[cluster.models]]"});
    refused(adding("[[cluster.cloud]]\nflops = 1\n"), {"[cluster.cloud]"});
    refused(with_section(&description::cluster, "[cluster]\nserial_call = true\n"),
            {"conf/run.toml:2: unknown key serial_call in [cluster]", "did you mean serial_calls"});
    refused(server_of("gpus = \"a100_40gb\"\n"), {"[[cluster.servers]] name is not given"});
    refused(server_of("name = \"a.b\"\ngpus = \"a100_40gb\"\n"), {"letters, digits, _ and -"});
    refused(server_of("name = \"a\"\n"), {"conf/run.toml:4", "a has no device", "gpus"});
    refused(server_of("name = \"a\"\ngpus = []\n"), {"name a profile"});
    refused(server_of("name = \"a\"\nflops = 1e12\ngpus = \"x\"\n"),
            {"flops is given beside gpus"});
    refused(server_of("name = \"a\"\nflops = 1e12\n"), {"a is ideal and has no memory"});
    refused(server_of("name = \"a\"\nflops = -1\n"), {"flops is -1", "above 0"});
    refused(server_of("name = \"a\"\nflops = 1e12\nexpert_memory_bytes = -1\n"),
            {"expert_memory_bytes is -1"});
    refused(server_of("name = \"a\"\ngpus = \"x\"\nexpert_memory_share = 1.5\n"),
            {"expert_memory_share is the number 1.5"});
    refused(server_of("name = \"a\"\ngpus = \"x\"\nexpert_memory_share = 0.5\n"
                      "expert_memory_bytes = 5\n"),
            {"expert_memory_share is given beside expert_memory_bytes"});
    refused(server_of("name = \"a\"\ngpus = \"x\"\ngpu_count = 65\n"), {"choose from 1 to 64"});
    refused(server_of("name = \"a\"\ngpus = [\"x\", \"y\"]\ngpu_count = 33\n"),
            {"at most 64 GPUs"});
    refused(server_of("name = \"a\"\ngpus = \"x\"\ncount = 0\n"), {"count is 0"});
    refused(server_of("name = \"a\"\ngpus = \"x\"\ncount = 16000\n[[cluster.servers]]\n"
                      "name = \"b\"\ngpus = \"x\"\ncount = 385\n"),
            {"more than 16384 entries of [[cluster.servers]]"});
    refused(server_of("name = \"a\"\ngpus = \"x\"\nposition = [1]\n"), {"two numbers in metres"});
    refused(server_of("name = \"a\"\ngpus = \"x\"\nposition = [-1.1e7, 0]\n"),
            {"metres from -1e+07 to 1e+07"});
    refused(
        with_section(&description::model, "[[cluster.models]]\nname = \"m\"\nexpert_bytes = -5\n"),
        {"expert_bytes is -5"});
    refused(with_section(&description::links, "[[cluster.links]]\nfrom = \"a\"\nto = \"b\"\n"),
            {"bits_per_s is not given"});
    refused(
        with_section(&description::links, "[[cluster.links]]\nfrom = \"a\"\nbits_per_s = 1e6\n"),
        {"to is not given"});
    refused(with_section(&description::links,
                         "[[cluster.links]]\nfrom = \"a\"\nto = \"b\"\nbits_per_s = 0\n"),
            {"conf/run.toml:14: [[cluster.links]] bits_per_s is 0", "above 0"});
    refused(with_section(&description::links, description().links + "latency_s = -1\n"),
            {"latency_s is -1"});
    refused(adding("[cluster.cloud]\nlatency_s = 1\n"), {"flops is not given"});
    refused(adding("[cluster.cloud]\nflops = 0\n"), {"flops is 0"});
    refused(adding(user), {"u reaches no server", "[cluster.radio]"});
    refused(adding(radio + "[[cluster.users]]\nname = \"u\"\n"), {"workload is not given"});
    refused(
        adding(radio + "[[cluster.users]]\nname = \"u\"\nworkload = \"w\"\nlocal_experts = 2\n"),
        {"needs flops"});
    refused(adding("[cluster.radio]\nuser_power_w = 1\n" + user), {"user_bandwidth_hz"});
    refused(adding(radio + "shared_bandwidth_hz = 1\n" + user), {"is given beside"});
    refused(adding(radio + "gain = 0\n"), {"gain is 0"});
    refused(adding("[cluster.radio]\nserver_power_w = 1\nnoise_w_per_hz = 1e-20\n"),
            {"a has no position", "area_m"});
}

TEST_CASE("mistakes in workloads") {
    std::string many;
    for (int i = 0; i < 1025; ++i)
        many += "[[cluster.workloads]]\nname = \"w" + std::to_string(i) + "\"\nzipf = 1\n";
    refused(adding(many), {"more than 1024 entries of [[cluster.workloads]]"});
    refused(workload_of(""),
            {"w does not say which experts are chosen", "trace, frequency or zipf"});
    refused(workload_of("trace = \"t\"\nfrequency = \"f\"\n"), {"given beside"});
    refused(workload_with("domains = \"x\"\n"), {"domains", "there is none"});
    refused(workload_of("frequency = \"f\"\nrequest_step = 2\n"), {"request_step"});
    refused(workload_with("request_step = 0\n"), {"request_step is 0"});
    refused(workload_of("zipf = -1\n"), {"zipf is -1"});
    refused(workload_with("poisson_s = 1\n"), {"give output_tokens"});
    refused(workload_with("poisson_s = 1\narrivals = \"x.csv\"\noutput_tokens = 1\n"),
            {"given beside"});
    refused(workload_with("models = {m = 0.75}\n"), {"sum to 0.750000", "1 is needed"});
    refused(workload_with("models = {m = 0}\n"), {"models: m is 0"});
    refused(workload_with("models = \"other\"\n"), {"no model other", "there are m"});
    refused(workload_with("models = [\"m\", \"m\"]\n"), {"names model m twice"});
    refused(workload_with("models_per_user = 2\n"), {"models_per_user is 2, and it has 1 models"});
    refused(workload_with("models_per_user = [3, 2]\n"), {"two such as [3, 5]"});
    refused(workload_with("models_per_user = 0\n"), {"a count from 1"});
    refused(workload_with("models_per_user = 1.5\n"), {"a count from 1"});
    refused(workload_with("models_per_user = 1\nmodels = {m = 1}\n"), {"model_zipf"});
    refused(workload_with("then = \"other\"\nthen_s = 1\n"), {"there is no workload other"});
    refused(workload_with("then_s = 1\n"), {"then and then_s"});
    refused(workload_with("model_zipf = -0.5\n"), {"model_zipf"});
}

TEST_CASE("mistakes between entries") {
    refused(with_section(&description::model, ""), {"has no model"});
    refused(with_section(&description::servers, ""), {"has no server"});
    refused(with_section(&description::servers, description().servers + description().servers),
            {"conf/run.toml:11: server a has the name of the entry at conf/run.toml:4"});
    refused(adding(radio + "[[cluster.users]]\nname = \"a\"\nworkload = \"w\"\n"),
            {"user a has the name"});
    refused(with_section(&description::workload, description().workload + description().workload),
            {"workload w has the name"});
    refused(server_of("name = \"a\"\ngpus = \"x\"\nworkload = \"other\"\n"),
            {"there is no workload other", "there are w"});
    refused(server_of("name = \"a\"\ngpus = \"x\"\n"), {"nobody asks for anything"});
    refused(with_section(&description::links,
                         "[[cluster.links]]\nfrom = \"a\"\nto = \"bb\"\nbits_per_s = 1e6\n"),
            {"conf/run.toml:11: there is no server bb", "did you mean b"});
    // Names all servers that are alone.
    refused(with_section(&description::links, ""), {"no link reaches a, b there and back"});
    refused(with_section(&description::links, description().links + "symmetric = false\n"),
            {"no link reaches a, b"});
    const std::string third = "[[cluster.servers]]\nname = \"c\"\ngpus = \"x\"\n";
    refused(with_section(&description::servers, description().servers + third),
            {"no link reaches c there"});
    description chain = with_section(&description::servers, description().servers + third);
    chain.links += "[[cluster.links]]\nfrom = \"b\"\nto = \"c\"\nbits_per_s = 1e6\n";
    refused(chain, {"a and c have no link there and back", "no cloud"});
    chain.rest = cloud;
    accepted(chain);  // a gets from the cloud the experts that c lacks
    chain.rest.clear();
    chain.links = "[[cluster.links]]\nfrom = \"*\"\nto = \"*\"\nbits_per_s = 1e6\n";
    accepted(chain);

    description real;
    real.rest = "[run]\nexecutor = \"cpu\"\n";
    refused(real, {"[cluster] is emulated", "executor is cpu"});
    const auto lone = read(
        "[hardware]\nprofile = \"p\"\n[source]\ntrace = \"t\"\n[memory]\nexperts = 1\n"
        "[placement]\nplan = \"x\"\n");
    REQUIRE_FALSE(lone.ok());
    CHECK(lone.failure().text.find("of use on a cluster only") != std::string::npos);
}

TEST_CASE("keys without an effect on a cluster are refused of --set, and warned of in the file") {
    const description plain;
    for (const char *set : {"hardware.profile=rtx_3090", "memory.experts=10", "run.guard=true",
                            "emulator.policy_time=measured", "source.trace=t.safetensors"})
        refused(plain, {"--set ", "conf/run.toml: it has no effect on", "leave it out"}, {set});
    // Keys for nodes. An emulated cluster refuses them in --set; a file may have them.
    for (const char *set : {"run.tokens=9", "run.threads=2", "wire.plugin=tcp", "hardware.link=x",
                            "cluster.own_disk=false", "registry.directory=d"})
        refused(plain, {"--set ", "conf/run.toml", "emulated cluster"}, {set});
    for (const char *set : {"cache.plugin=lru", "transport.plugin=chunked"})
        refused(plain, {"--set ", "conf/run.toml", "host_experts = true"}, {set});
    // If a server loads experts, its cache decides.
    accepted(server_of("name = \"a\"\ngpus = \"a100_40gb\"\nworkload = \"w\"\nhost_experts = true\n"
                       "[[cluster.servers]]\nname = \"b\"\ngpus = \"a100_40gb\"\n"),
             {"cache.plugin=lru"});
    for (const char *set : {"run.batch=2", "run.seed=3", "dispatch.plugin=load_all"})
        accepted(plain, {set});

    const auto config = read(adding("[wire]\nplugin = \"tcp\"\n[run]\nthreads = 1\ntokens = 5\n"
                                    "guard = true\n[hardware]\nprofile = \"rtx_3090\"\n"
                                    "[cache]\nplugin = \"lru\"\n")
                                 .text());
    REQUIRE_MESSAGE(config.ok(), (config ? "" : config.failure().text));
    REQUIRE(config->warnings.size() == 3);
    for (const char *part : {"[run] guard: it has no effect", "[hardware] profile: it has no",
                             "[cache] plugin: it has no effect where no server loads"})
        CHECK(std::ranges::count_if(config->warnings, [&](const std::string &warning) {
                  return warning.starts_with("conf/run.toml:") &&
                         warning.find(part) != std::string::npos;
              }) == 1);
    // A single machine has a use for them all.
    CHECK(moorage::core::parse_run_config("[hardware]\nprofile = \"rtx_4090\"\n[source]\ntrace = "
                                          "\"t\"\n[memory]\nexperts = 9\n",
                                          "run.toml", {})
              ->warnings.empty());
}

TEST_CASE("what nodes need stands beside what is emulated") {
    const description plain;
    CHECK(accepted(plain).own_disk);
    CHECK(accepted(plain).servers[0].address.empty());
    description document;
    document.cluster = "[cluster]\nown_disk = false\n";
    document.model += "weights = \"../models/m\"\n";
    document.servers =
        "[[cluster.servers]]\nname = \"a\"\ngpus = \"a100_40gb\"\nworkload = \"w\"\ncount = 2\n"
        "address = [\"h:1\", \"h:2, g:2\"]\nheartbeats = [\"h:3\", \"h:4\"]\n"
        "status = [\"h:5\", \"h:6\"]\n";
    document.links = "[[cluster.links]]\nfrom = \"*\"\nto = \"*\"\nbits_per_s = 8e6\n";
    const cluster_config config = accepted(document);
    CHECK_FALSE(config.own_disk);
    CHECK(config.models[0].weights == "models/m");  // from the file's folder, conf
    CHECK(config.servers[0].address == "h:1");
    CHECK(config.servers[1].address == "h:2, g:2");
    CHECK(config.servers[1].heartbeats == "h:4");
    CHECK(config.servers[1].status == "h:6");

    document.servers +=
        "[[cluster.servers]]\nname = \"c\"\ngpus = \"a100_40gb\"\naddress = \"h:3\"\n";
    refused(document, {"conf/run.toml:", "server c", "h:3", "a.0", "in turn"});
    description twice = plain;
    twice.servers += "count = 2\naddress = \"h:1\"\n";
    refused(twice, {"server b.1", "h:1", "b.0"});
}

}  // namespace cluster_config_test
