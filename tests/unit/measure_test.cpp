// Goal: measurements become the profile behind the samples, a written profile is read back
// unchanged, and two reports are compared term by term. Method: samples made from known constants;
// machines and reports written by hand. Nothing here reads a clock.
#include "core/base/json.h"
#include "core/execute/measure.h"

#include <cmath>
#include <string>

#include <doctest/doctest.h>

#include "core/config/profile_file.h"
#include "core/execute/cost_model.h"
#include "tools/comparison/prediction.h"
#include "toy_machine.h"

namespace measure_test {

using namespace moorage::core;

namespace {

// constant + amount / rate, each sample off by the same share up or down in turn.
std::vector<timed_sample> samples(double constant, double rate, double noise) {
    std::vector<timed_sample> list;
    double sign = 1;
    for (double amount = 4096; amount <= 64 << 20; amount *= 4) {
        list.push_back({amount, (constant + amount / rate) * (1 + sign * noise)});
        sign = -sign;
    }
    return list;
}

measured_machine machine() {
    measured_machine built;
    built.executor = "cpu";
    built.processor = "Test \"CPU\" \\ 9000";
    built.date = "2025-01-02";
    built.threads = 8;
    built.is_host = true;
    built.device_bytes = built.host_bytes = 64'000'000'000;
    built.device_reserved_bytes = 4'000'000'000;
    built.read_bytes_per_s = 50e9;
    built.operations_per_s = 1e12;
    built.host_read_bytes_per_s = 50e9;
    built.to_device = samples(3e-6, 10e9, 0);
    built.compute_share = 0.75;
    built.copy_share = 0.5;
    built.together_bytes_per_s = 45e9;
    built.expert_memory_bytes_per_s = 40e9;
    built.expert_bytes = built.expert_operations = 6e6;
    // 500 us of reading up to the point where 1/0.4e12 s an operation take longer.
    for (const double tokens : {1.0, 8.0, 64.0, 128.0, 256.0})
        built.expert_tokens.push_back({tokens, std::max(150e-6, tokens * 6e6 / 0.4e12)});
    built.context_bytes = 1000;
    for (const double positions : {64.0, 512.0, 4096.0})
        built.contexts.push_back({positions, 2e-6 + positions * 1000 / 20e9});
    // 100 GB/s up to 16 MiB, 40 beyond.
    for (double bytes = 1 << 18; bytes <= 128 << 20; bytes *= 2)
        built.working_sets.push_back({bytes, bytes / (bytes <= 16 << 20 ? 100e9 : 40e9)});
    built.loop_seconds = 0.5e-6;
    built.expert_seconds = 0.4e-6;
    built.experts_seconds = 1e-6;
    built.layer_seconds = 9e-6;
    built.pass_seconds = 6e-6;
    built.step_seconds = 0.7e-6;
    built.load_seconds = 2e-6;
    built.wake_seconds = 8e-6;
    built.draws = {{1000, 1e-6 + 1000 / 2e9}, {9000, 1e-6 + 9000 / 2e9}};
    built.picks = {{1000, 1e-6 + 1000 / 8e9}, {9000, 1e-6 + 9000 / 8e9}};
    return built;
}

const term &term_of(const prediction &prediction, const std::string &name) {
    for (const term &term : prediction.terms)
        if (term.name == name) return term;
    FAIL("no term " << name);
    return prediction.terms[0];
}

run_report report(const std::string &executor, double scale) {
    run_report report;
    report.executor = executor;
    report.profile = "toy";
    report.tokens = 10;
    report.total_ms = 20 * scale;
    report.tpot_ms = {2 * scale, 1.5 * scale, 3 * scale};
    report.experts.requested = 8;
    report.experts.hits = 6;
    report.bytes.h2d = 4000;
    report.time.transfer = 7;
    // Causes of a layer and of the time between layers: prompt, then decoding.
    const auto us = [&](double value) { return static_cast<uint64_t>(value * scale * 1000); };
    report.causes.resize(2);
    report.causes[0][0][cause::compute] = us(2000);
    report.causes[0][1][cause::compute] = us(6000);
    report.causes[1][1][cause::compute] = us(3000);
    report.causes[0][1][cause::link] = us(4000);
    report.causes[1][1][cause::host] = us(1000);
    return report;
}

}  // namespace

TEST_CASE("a line is found again, whatever the scale of its samples") {
    for (const double constant : {0.0, 1e-6, 50e-6}) {
        for (const double rate : {1e9, 25e9}) {
            CAPTURE(constant);
            CAPTURE(rate);
            const line_fit exact = fit_line(samples(constant, rate, 0));
            CHECK(exact.constant == doctest::Approx(constant).epsilon(1e-6).scale(1e-6));
            CHECK(1 / exact.slope == doctest::Approx(rate).epsilon(1e-6));
            const line_fit noisy = fit_line(samples(constant, rate, 0.05));
            CHECK(1 / noisy.slope == doctest::Approx(rate).epsilon(0.1));
        }
    }
}

TEST_CASE("neither constant nor slope of a line falls below zero") {
    // Through (1, 1) and (2, 3) goes -1 + 2 x; by least relative squares y = x (1 + 2/3) / (1 +
    // 4/9).
    const line_fit steep = fit_line(std::vector<timed_sample>{{1, 1}, {2, 3}});
    CHECK(steep.constant == 0);
    CHECK(steep.slope == doctest::Approx((1 + 2.0 / 3) / (1 + 4.0 / 9)));
    // A falling line becomes level: the mean with weights 1 / y^2, (1/3 + 1) / (1/9 + 1).
    const line_fit falling = fit_line(std::vector<timed_sample>{{1, 3}, {2, 1}});
    CHECK(falling.slope == 0);
    CHECK(falling.constant == doctest::Approx((1.0 / 3 + 1) / (1.0 / 9 + 1)));
}

TEST_CASE("the median does not see what lies far out") {
    std::vector<double> odd{5, 1, 1e9, 2, 3}, even{4, 1, 3, 2}, single{7};
    CHECK(median(odd) == 3);
    CHECK(median(even) == 2);
    CHECK(median(single) == 7);
    std::vector<double> nine{9, 8, 7, 6, 5, 4, 3, 2, 1};
    CHECK(lower_quartile(nine) == 3);
    CHECK(lower_quartile(even) == 1);
    CHECK(lower_quartile(single) == 7);
}

TEST_CASE("a profile holds the constants that the samples were made of") {
    const hardware_profile profile = profile_of(machine()).profile;
    CHECK(profile.device.is_host);
    CHECK(profile.device.memory_bytes_per_s == 50e9);
    CHECK(profile.device.memory_efficiency == doctest::Approx(0.8));
    CHECK(profile.device.flops_efficiency == doctest::Approx(0.4));
    CHECK(profile.device.launch_ns == 500);
    CHECK(profile.device.attention_kernels * profile.device.launch_ns + profile.device.layer_ns ==
          9000);
    CHECK(profile.device.expert_kernels == 2);
    CHECK(profile.device.expert_ns == 400);
    CHECK(profile.device.pass_ns == 6000);
    CHECK(profile.device.load_ns == 2000);
    CHECK(profile.device.step_ns == 700);
    CHECK(profile.device.wake_ns == 8000);
    CHECK(profile.device.logits_per_s == doctest::Approx(2e9));
    CHECK(profile.device.greedy_logits_per_s == doctest::Approx(8e9));
    CHECK(profile.device.kernel_ns == 500);
    CHECK(profile.device.vector_flops_per_s == 1e12);
    CHECK(profile.node.memory_theory_bytes_per_s == 50e9);
    CHECK(profile.node.launch_ns == 500);
    CHECK(profile.device.cache_bytes == 16 << 20);
    CHECK(profile.device.cache_bytes_per_s == doctest::Approx(100e9));
    CHECK(profile.device.context_bytes_per_s == doctest::Approx(20e9));
    CHECK(profile.link.h2d_bytes_per_s == doctest::Approx(10e9));
    CHECK(profile.link.issue_ns == 3000);
    CHECK(profile.node.cpu_bytes_per_s == doctest::Approx(40e9));
    CHECK(profile.node.memory_bytes_per_s == 45e9);
    CHECK(profile.node.cpu_issue_ns == 1400);

    SUBCASE("several tokens of an expert take a constant more") {
        measured_machine tiled = machine();
        tiled.expert_tokens.clear();
        for (const double tokens : {1.0, 2.0, 8.0, 64.0})
            tiled.expert_tokens.push_back({tokens, tokens == 1 ? 10e-6 : (tokens + 5) * 2e-6});
        // The constant is five tokens (10 us). The expert's own constant of 0.4 us is part of it,
        // so 4.8 tokens remain.
        CHECK(profile_of(tiled).profile.device.tile_tokens == doctest::Approx(4.8));
        hardware_profile hardware = toy::hardware();
        hardware.device.flops_per_s = 1e12;  // an expert of 50,000 weights: 100 ns a token
        hardware.device.tile_tokens = 4.8;
        const cost_model costs(hardware, toy::shape(2, 4, 1));
        CHECK(costs.gpu_expert_ns(1, 1) == 100);
        CHECK(costs.gpu_expert_ns(3, 1) == 780);
    }
    SUBCASE("few tokens are streamed past weights at a rate of their own") {
        measured_machine few = machine();
        few.few_tokens = 6;
        for (const double operations : {1e5, 4e5, 16e5})
            few.few_layers.push_back({operations, 2e-6 + operations / 50e9});
        const device_profile found = profile_of(few).profile.device;
        CHECK(found.few_tokens == 6);
        CHECK(found.few_flops_per_s == doctest::Approx(50e9));
        CHECK(found.few_token_ns == 2000);
        hardware_profile hardware = toy::hardware();
        hardware.device.flops_per_s = 1e12;  // an expert of 50,000 weights: 100 ns a token
        hardware.device.few_tokens = 6;
        hardware.device.few_flops_per_s = 0.5e12;  // 200
        const uint64_t few_token_ns = 7;
        hardware.device.few_token_ns = few_token_ns;
        const cost_model costs(hardware, toy::shape(2, 4, 1));
        CHECK(costs.gpu_expert_ns(1, 1) == 100);
        CHECK(costs.gpu_expert_ns(2, 1) == 300);   // read, and one more
        CHECK(costs.gpu_expert_ns(6, 1) == 1100);  // and five
        CHECK(costs.gpu_expert_ns(7, 1) == 700);   // by the other loops
        // In a layer likewise, on top of its operations.
        hardware.device.few_token_ns = 0;
        const cost_model free(hardware, toy::shape(2, 4, 1));
        CHECK(costs.attention_ns(6, 0) == free.attention_ns(6, 0) + 5 * few_token_ns);
        CHECK(costs.attention_ns(7, 0) == free.attention_ns(7, 0));
    }
    SUBCASE("a cache that is no faster is none") {
        measured_machine flat = machine();
        for (timed_sample &sample : flat.working_sets) sample.seconds = sample.amount / 45e9;
        CHECK(profile_of(flat).profile.device.cache_bytes == 0);
    }
    SUBCASE("passes of many tokens say what a token costs, and how fast it is computed") {
        measured_machine many = machine();
        for (const double operations : {1e5, 4e5, 16e5})
            many.prefill_layers.push_back({operations, 3e-6 + operations / 0.25e12});
        const device_profile device = profile_of(many).profile.device;
        CHECK(device.token_ns == 3000);
        CHECK(device.flops_efficiency == doctest::Approx(0.25));
        // A layer of one token pays for none, one of five for four.
        hardware_profile whole = profile_of(many).profile;
        whole.device.flops_per_s = 1e18;
        hardware_profile free = whole;
        free.device.token_ns = 0;
        const cost_model whole_costs(whole, toy::shape(2, 4, 1)),
            free_costs(free, toy::shape(2, 4, 1));
        CHECK(whole_costs.attention_ns(1, 0) == free_costs.attention_ns(1, 0));
        CHECK(whole_costs.attention_ns(5, 0) == free_costs.attention_ns(5, 0) + 12000);
    }
    SUBCASE("whole tokens say what a layer costs") {
        measured_machine whole = machine();
        // Layers of 30 us and 80 GB/s; of the constant, 2.6 us are experts' and 1 us the pass's.
        for (const double bytes : {1e5, 4e5, 16e5})
            whole.token_layers.push_back({bytes, 30e-6 + bytes / 80e9});
        whole.token_experts = 4;
        whole.token_layer_count = 6;
        const device_profile device = profile_of(whole).profile.device;
        CHECK(device.attention_kernels * device.launch_ns + device.layer_ns == 26400);
        CHECK(device.cache_bytes_per_s == doctest::Approx(80e9));
    }
}

// A GPU of 2 TB/s, 90 % of them in experts, and 500 TFLOP/s, half of them; launches of 3 us.
static measured_machine gpu() {
    measured_machine built = machine();
    built.executor = "cuda";
    built.processor = "Test GPU";
    built.is_host = false;
    built.device_bytes = 80'000'000'000;
    built.read_bytes_per_s = 2e12;
    built.expert_memory_bytes_per_s = 1.8e12;
    built.operations_per_s = 500e12;
    built.expert_tokens.clear();
    for (const double tokens : {1.0, 8.0, 64.0, 256.0, 512.0})
        built.expert_tokens.push_back(
            {tokens, std::max(20e-6, 20e-6 + (tokens - 64) * 6e6 / 250e12)});
    built.to_device = samples(9e-6, 25e9, 0);
    built.to_host = samples(7e-6, 20e9, 0);
    built.loop_seconds = 3e-6;
    built.sync_seconds = 11e-6;
    built.expert_seconds = 0.5e-6;
    built.experts_seconds = 10e-6;
    built.layer_seconds = 30e-6;
    built.load_seconds = 0;
    built.cpu_expert_bytes_per_s = 12e9;
    built.cpu_operations_per_s = 0.6e12;
    built.cpu_expert_seconds = 40e-6;
    built.together_bytes_per_s = 33e9;
    return built;
}

TEST_CASE("a GPU's profile keeps link, hand-over, launches and the CPU beside it apart") {
    const measured_profile measured = profile_of(gpu());
    const toy::folder place;
    place.write("gpu.toml", to_toml(measured.profile, measured.sources, measured.notes));
    const auto read = load_hardware({"gpu.toml", "", "", place.path()});
    REQUIRE_MESSAGE(read.ok(), (read ? "" : read.failure().text));
    const hardware_profile &is = read.value();
    const auto near = [](double value) { return doctest::Approx(value).epsilon(1e-4); };
    CHECK_FALSE(is.device.is_host);
    CHECK(is.device.memory_efficiency == near(0.9));
    CHECK(is.device.flops_efficiency == doctest::Approx(0.5).epsilon(0.05));
    CHECK(is.device.launch_ns == 3000);
    CHECK(is.device.sync_ns == 11000);
    CHECK(is.device.expert_kernels == 0);
    CHECK(is.device.expert_ns == 500);
    // Launches that the layer's experts share are the layer's.
    CHECK(is.device.attention_kernels * is.device.launch_ns + is.device.layer_ns == 40000);
    // Figures that only a CPU as the device has.
    CHECK(is.device.compute_share == 1);
    CHECK(is.device.copy_share == 1);
    CHECK(is.device.load_ns == 0);
    CHECK(is.link.h2d_bytes_per_s == near(25e9));
    CHECK(is.link.d2h_bytes_per_s == near(20e9));
    CHECK(is.link.issue_ns == 9000);
    CHECK(is.node.cpu_bytes_per_s == near(12e9));
    CHECK(is.node.cpu_flops_per_s == near(0.6e12));
    CHECK(is.node.cpu_issue_ns == 40000);
    CHECK(is.node.memory_bytes_per_s == near(33e9));
    const cost_model costs(is, toy::shape(2, 4, 1));
    CHECK(costs.load_ns(25'000'000) == doctest::Approx(1'009'000).epsilon(1e-4));

    SUBCASE("whole tokens: their layers less hand-over, experts and the pass's share") {
        measured_machine whole = gpu();
        for (const double bytes : {1e6, 4e6, 16e6})
            whole.token_layers.push_back({bytes, 70e-6 + bytes / 1e12});
        whole.token_experts = 4;
        whole.token_layer_count = 6;
        // 70 - 11 - 4 * 0.5 - 6 / 6.
        const device_profile device = profile_of(whole).profile.device;
        CHECK(device.attention_kernels * device.launch_ns + device.layer_ns == 56000);
    }
    SUBCASE("the host's memory is no slower than the link that reads it") {
        measured_machine slow = gpu();
        slow.together_bytes_per_s = 5e9;
        CHECK(profile_of(slow).profile.node.memory_bytes_per_s == near(25e9));
    }
    SUBCASE("the figures as text keep to 80 columns") {
        for (const std::string &line : measured.notes) CHECK(line.size() <= 80);
    }
}

TEST_CASE("a written profile is read back, from one file") {
    const measured_profile measured = profile_of(machine());
    const toy::folder place;
    place.write("mine.toml", to_toml(measured.profile, measured.sources, measured.notes));
    const auto read = load_hardware({"mine.toml", "", "", place.path()});
    REQUIRE_MESSAGE(read.ok(), (read ? "" : read.failure().text));
    const hardware_profile &a = measured.profile, &b = read.value();
    CHECK(b.id == "mine");
    CHECK(b.device.name == a.device.name);
    CHECK(b.device.memory_bytes == a.device.memory_bytes);
    CHECK(b.device.reserved_bytes == a.device.reserved_bytes);
    CHECK(b.device.is_host);
    const auto near = [](double value) { return doctest::Approx(value).epsilon(1e-4); };
    CHECK(b.device.memory_bytes_per_s == near(a.device.memory_bytes_per_s));
    CHECK(b.device.memory_efficiency == near(a.device.memory_efficiency));
    CHECK(b.device.flops_per_s == near(a.device.flops_per_s));
    CHECK(b.device.flops_efficiency == near(a.device.flops_efficiency));
    CHECK(b.device.compute_share == near(0.75));
    CHECK(b.device.copy_share == near(0.5));
    CHECK(b.device.load_ns == 2000);
    CHECK(b.device.step_ns == 700);
    CHECK(b.device.tile_tokens == near(a.device.tile_tokens));
    CHECK(b.device.vector_flops_per_s == near(1e12));
    CHECK(b.device.kernel_ns == 500);
    CHECK(b.node.memory_theory_bytes_per_s == near(50e9));
    CHECK(b.node.launch_ns == 500);
    CHECK(b.device.layer_ns == a.device.layer_ns);
    CHECK(b.device.expert_ns == 400);
    CHECK(b.device.pass_ns == 6000);
    CHECK(b.device.cache_bytes == a.device.cache_bytes);
    CHECK(b.device.cache_bytes_per_s == near(a.device.cache_bytes_per_s));
    CHECK(b.device.context_bytes_per_s == near(a.device.context_bytes_per_s));
    CHECK(b.link.issue_ns == 3000);
    CHECK(b.link.h2d_bytes_per_s == near(a.link.h2d_bytes_per_s));
    CHECK(b.node.memory_bytes == a.node.memory_bytes);
    CHECK(b.node.cpu_bytes_per_s == near(a.node.cpu_bytes_per_s));

    // It is an engine's file, too: this one's, which changes nothing.
    const auto ours = load_hardware({"mine.toml", "", "", place.path(), "", "", "mine.toml"});
    REQUIRE_MESSAGE(ours.ok(), (ours ? "" : ours.failure().text));
    CHECK(ours->engine.is_own());
    CHECK(ours->device.layer_ns == b.device.layer_ns);
    CHECK(ours->engine.overlap == load_overlap::layer);

    // Another link in place of the file's own.
    const auto other_link = load_hardware({"mine.toml", "pcie4_x16", "", place.path()});
    REQUIRE(other_link.ok());
    CHECK(other_link.value().link.h2d_bytes_per_s != b.link.h2d_bytes_per_s);
}

TEST_CASE("a machine's file is as strict as three files") {
    const measured_profile measured = profile_of(machine());
    const std::string good = to_toml(measured.profile, measured.sources, {});
    const auto failure = [&](const std::string &original, const std::string &replacement) {
        std::string text = good;
        const size_t position = text.find(original);
        REQUIRE(position != std::string::npos);
        text.replace(position, original.size(), replacement);
        const auto device = parse_device(text, "a.toml");
        const auto link = parse_link(text, "a.toml");
        return !device ? device.failure().text : !link ? link.failure().text : std::string();
    };
    CHECK(failure("launch_ns = 500", "launch_ns = 500").empty());
    CHECK(failure("launch_ns = 500", "lunch_ns = 500").find("launch_ns") != std::string::npos);
    CHECK(failure("launch_ns = 500\n", "").find("launch_ns") != std::string::npos);
    CHECK(failure("copy_share = 5.0000e-01", "copy_share = 1.5").find("copy_share") !=
          std::string::npos);
    CHECK(failure("[link]", "[lint]").find("lint") != std::string::npos);
    CHECK_FALSE(failure("cache_bytes_per_s = ", "cache_bytes_per_s = -").empty());
    CHECK(parse_device("kind = \"machine\"\n", "a.toml").failure().text.find("device") !=
          std::string::npos);
    CHECK_FALSE(parse_device("kind = \"machine\"\ndevice = 3\n", "a.toml").ok());
}

TEST_CASE("two reports are compared term by term") {
    const prediction found = compare_runs(report("emulator", 1), report("cpu", 2));
    CHECK(found.executor == "cpu");
    CHECK(term_of(found, "tpot").relative() == doctest::Approx(-0.5));
    CHECK(term_of(found, "hit_rate").relative() == 0);
    CHECK(term_of(found, "transfer").relative() == 0);
    REQUIRE(found.phases.size() == 2);
    const phase_terms &prefill = found.phases[0], &decode = found.phases[1];
    CHECK(prefill.name == "prefill");
    REQUIRE(prefill.causes.size() == 1);  // the others took no time
    CHECK(prefill.causes[0].name == "compute");
    CHECK(prefill.sum.real == doctest::Approx(4));
    REQUIRE(decode.causes.size() == 3);
    CHECK(decode.causes[0].emulated == doctest::Approx(9));
    CHECK(decode.causes[0].real == doctest::Approx(18));
    CHECK(decode.causes[1].name == "link");
    CHECK(decode.sum.emulated == doctest::Approx(14));
    CHECK(decode.sum.real == doctest::Approx(28));
    CHECK(found.worst == "decode.compute");
    CHECK(found.warnings.empty());

    const std::string text = to_text(found);
    CHECK(text.find("time per token, mean") != std::string::npos);
    CHECK(text.find("-50.0 %") != std::string::npos);
    // 9 and 18 of 28 ms.
    CHECK(text.find("-9.00 ms       -32.1 %") != std::string::npos);
    CHECK(text.find("Furthest apart: decode.compute") != std::string::npos);
    for (size_t begin = 0, end; begin < text.size(); begin = end + 1) {
        end = text.find('\n', begin);
        REQUIRE(end != std::string::npos);
        CHECK(end - begin <= 80);
    }
    const json figures = to_json(found);
    CHECK(figures["terms"]["tpot"]["relative"].get<double>() == doctest::Approx(-0.5));
    CHECK(figures["worst"] == "decode.compute");
    CHECK(figures["causes"]["decode"]["link"]["real"].get<double>() == doctest::Approx(8));

    SUBCASE("what only the emulator had has no relative difference") {
        run_report emulated = report("emulator", 1);
        emulated.causes[0][1][cause::cpu] = 3'000'000;
        const prediction changed = compare_runs(emulated, report("cpu", 1));
        CHECK(changed.phases[1].causes[2].name == "cpu");
        CHECK(std::isinf(changed.phases[1].causes[2].relative()));
        CHECK(to_json(changed)["causes"]["decode"]["cpu"]["relative"].is_null());
        CHECK(changed.worst == "decode.cpu");
    }
    SUBCASE("the prompt's causes are those of the run that was quickest with it") {
        const prediction changed =
            compare_runs(report("emulator", 1), report("cpu", 2), report("cpu", 3));
        CHECK(changed.phases[0].sum.real == doctest::Approx(6));
        CHECK(changed.phases[1].sum.real == doctest::Approx(28));
    }
    SUBCASE("runs of different work are told apart") {
        run_report real = report("cpu", 1);
        real.tokens = 11;
        real.text.texts = {"other"};
        CHECK(compare_runs(report("emulator", 1), real).warnings.size() == 2);
    }
}

}  // namespace measure_test
