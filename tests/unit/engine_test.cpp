// Goal: an engine's file changes the times of operations as described, and the engine `ours`
// changes nothing. Method: the toy machine with round figures. The comments work out each expected
// number.
#include "core/config/hardware.h"

#include <doctest/doctest.h>

#include "core/config/profile_file.h"
#include "core/execute/cost_model.h"
#include "core/execute/emulator.h"
#include "toy_engine.h"
#include "toy_machine.h"

namespace engine_test {

using namespace moorage::core;

namespace {

// 4,000 operations a ns on tensor units, 2,000 on vector units, of which a weight's conversion is
// half of one: 1,000 a ns.
hardware_profile machine() {
    hardware_profile profile = toy::hardware();
    profile.device.flops_per_s = 4e12;
    profile.device.vector_flops_per_s = 2e12;
    profile.device.kernel_ns = 10;
    profile.node.memory_theory_bytes_per_s = 100e9;
    profile.node.cpu_flops_per_s = 1e12;
    return profile;
}

engine_profile engine() {
    const auto parsed = parse_engine(toy::engine_text(), "toy.toml");
    REQUIRE_MESSAGE(parsed.ok(), (parsed ? "" : parsed.failure().text));
    return *parsed;
}

cost_model costs(const engine_profile &engine, const model_shape &shape, uint64_t launch_ns = 0) {
    hardware_profile hardware = machine();
    hardware.node.launch_ns = launch_ns;
    REQUIRE(apply_engine(hardware, engine).ok());
    return cost_model(hardware, shape);
}

bool holds(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("launches are a layer's; weights are read, unpacked and multiplied one after the other") {
    const model_shape shape = toy::shape(2, 4, 1);
    const cost_model single = costs(engine(), shape);
    // 8 products x 2 kernels x 10 ns, 7 of software, 4 experts x 1: 171. 20,000 bytes at half of
    // 1,000 a ns: 40; 10,000 weights of 16 bits, an operation each: 10.
    CHECK(single.attention_ns(1, 0) == 171 + 40 + 10);
    CHECK(single.attention_overhead_ns() == 171);
    CHECK(single.gpu_expert_ns(1, 1) == 200 + 50);
    CHECK(single.gpu_expert_ns(1, 0.5) == 100 + 25);
    CHECK(single.head_ns(1) == 20 + 5);
    // Two tokens: no graph, so gaps of 5 behind 16 kernels, and 40 more; 2 x 2 x 10,000 operations
    // at half of 4,000 a ns.
    CHECK(single.attention_ns(2, 0) == 171 + 80 + 40 + 40 + 10 + 20);
    // Three tokens of an expert and two of its tile: 2 x 5 x 50,000 at 2,000 a ns.
    CHECK(single.gpu_expert_ns(3, 1) == 200 + 50 + 250);
    // The CPU reads at half of 100 bytes a ns.
    CHECK(single.cpu_expert_ns(1, 1) == 2000);
    CHECK(single.load_ns(100'000) == 3 * 100 + 10'000);

    SUBCASE("of weights of 4 bits there are more, and each takes 4 operations") {
        model_shape quantised = shape;
        quantised.expert_bits = 4;
        CHECK(costs(engine(), quantised).gpu_expert_ns(1, 1) == 200 + 800);
        CHECK(costs(engine(), quantised).attention_ns(1, 0) == 221);
    }
    SUBCASE("layers without experts take launches and software too") {
        model_shape dense = shape;
        dense.layers = 4;
        CHECK(costs(engine(), dense).attention_ns(1, 0) == 2 * (160 + 7) + 4 + 50);
    }
    SUBCASE("the host is waited for where its launches take longer than the GPU's work") {
        engine_profile launched = engine();
        launched.graph = false;
        // The GPU: 16 x 15 = 240, and 50 + 250 of work. The host: 16 x 33 = 528, or 16 x 40 = 640.
        CHECK(costs(launched, shape, 33).attention_ns(1, 0) == 240 + 11 + 50);
        CHECK(costs(launched, shape, 40).attention_ns(1, 0) == 240 + 11 + 50 + 100);
        CHECK(costs(engine(), shape, 40).attention_ns(1, 0) == 221);
    }
    SUBCASE("cached tokens are read once a sequence and multiplied for each token") {
        model_shape cached = shape;
        cached.kv_token_layer_bytes = 500;
        cached.context_operations = 1'000;
        const cost_model cached_costs = costs(engine(), cached);
        // 10 x 500 bytes at a quarter of 1,000 a ns; 10 x 1,000 operations at a quarter of 4,000.
        CHECK(cached_costs.attention_ns(1, 10) == 221 + 20);
        // Two tokens that look back on 20 each: of one sequence 10,000 bytes, 40,000 operations.
        const uint64_t several = 171 + 80 + 40 + 40 + 10 + 20;
        CHECK(cached_costs.attention_ns(2, 40, 1) == several + 40);
        CHECK(cached_costs.attention_ns(2, 40, 2) == several + 80);
    }
}

TEST_CASE("sockets, threads and pageable memory bound what the CPU and the link do") {
    hardware_profile hardware = machine();
    hardware.node.sockets = 2;
    engine_profile changed_engine = engine();
    REQUIRE(apply_engine(hardware, changed_engine).ok());
    CHECK(hardware.node.cpu_bytes_per_s == doctest::Approx(100e9));
    CHECK(hardware.node.cpu_flops_per_s == doctest::Approx(0.75e12));
    CHECK(hardware.node.cpu_handover_ns == 60);
    CHECK(hardware.link.h2d_bytes_per_s == doctest::Approx(10e9));
    hardware = machine();
    hardware.node.threads = 3;
    changed_engine.thread_bytes_per_s = 10e9;
    changed_engine.copy_bytes_per_s = 2e9;
    REQUIRE(apply_engine(hardware, changed_engine).ok());
    CHECK(hardware.node.cpu_bytes_per_s == doctest::Approx(30e9));
    CHECK(hardware.link.h2d_bytes_per_s == doctest::Approx(2e9));
}

TEST_CASE("an engine needs the figures that its own are multiples of") {
    hardware_profile hardware = machine();
    hardware.device.vector_flops_per_s = 0;
    const auto refused = apply_engine(hardware, engine());
    REQUIRE_FALSE(refused.ok());
    CHECK(holds(refused.failure().text, "vector_flops_per_s"));
    CHECK(holds(refused.failure().text, "toy GPU"));
}

TEST_CASE("ours is what a profile says without an engine") {
    const auto without = load_hardware({"rtx_4090", "", "", ""});
    const auto with_engine = load_hardware({"rtx_4090", "", "", "", "", "", "ours"});
    REQUIRE(with_engine.ok());
    const auto shape = load_shape("qwen3_30b_a3b", "");
    REQUIRE(shape.ok());
    const cost_model a(*without, *shape), b(*with_engine, *shape);
    for (const uint64_t tokens : {1, 2, 7, 512}) {
        CHECK(a.attention_ns(tokens, 1000) == b.attention_ns(tokens, 1000));
        CHECK(a.gpu_expert_ns(tokens, 1) == b.gpu_expert_ns(tokens, 1));
        CHECK(a.cpu_expert_ns(tokens, 1) == b.cpu_expert_ns(tokens, 1));
        CHECK(a.head_ns(tokens) == b.head_ns(tokens));
    }
    CHECK(a.load_ns(1'000'000) == b.load_ns(1'000'000));
}

TEST_CASE("every bundled engine loads on every bundled device, and has a file of its own name") {
    for (const char *name :
         {"ours", "ours_blocking", "llama_cpp_cuda", "llama_cpp_vulkan", "ik_llama_cpp", "imp",
          "ktransformers", "ktransformers_0_2", "pytorch_eager", "moe_infinity"}) {
        CAPTURE(name);
        for (const char *device : {"rtx_5090", "gtx_1080", "rx_7900_xt", "a100_80gb"}) {
            const auto loaded = load_hardware({device, "", "", "", "", "", name});
            CHECK_MESSAGE(loaded.ok(), (loaded ? "" : loaded.failure().text));
        }
    }
    const auto unknown = load_hardware({"rtx_4090", "", "", "", "", "", "llama_cpp"});
    REQUIRE_FALSE(unknown.ok());
    CHECK(holds(unknown.failure().text, "[hardware] engine llama_cpp"));
    CHECK(load_hardware({"tesla_t4", "", "", ""}).ok());  // by an alias
}

TEST_CASE("an engine's file is refused where a figure or its source is missing or odd") {
    const auto message = [](const std::string &original, const std::string &replacement) {
        std::string text = toy::engine_text();
        const size_t position = text.find(original);
        REQUIRE(position != std::string::npos);
        text.replace(position, original.size(), replacement);
        const auto parsed = parse_engine(text, "toy.toml");
        REQUIRE_FALSE(parsed.ok());
        return parsed.failure().text;
    };
    CHECK(holds(message("copies = 3\n", ""), "copies"));
    CHECK(holds(message("copies = \"[G]\"\n", ""), "copies"));
    CHECK(holds(message("copies = 3", "copies = 0"), "copies"));
    CHECK(holds(message("memory_share = 0.5", "memory_share = 1.5"), "memory_share"));
    CHECK(holds(message("overlap = \"none\"", "overlap = \"some\""),
                "none, prefetch, layer or ahead"));
    CHECK(holds(message("costs = \"engine\"", "costs = \"device\""), "graph"));
    CHECK(holds(message("[G]", "guess"), "mark"));
}

TEST_CASE("an engine that blocks computes nothing beside a load") {
    const auto layer_ns = [](load_overlap overlap) {
        engine_profile changed_engine = engine();
        changed_engine.overlap = overlap;
        const cost_model price = costs(changed_engine, toy::shape(2, 4, 2));
        emulator machine(price, 4, nullptr);
        pass tokens;
        tokens.tokens.push_back({});
        machine.attention(0, tokens);
        CHECK(machine.wait().kind == event_kind::gate);
        // One expert is there, two are loaded one after the other.
        machine.expert_on_device({0, 1, 1, MOORAGE_NONE, 0});
        for (uint32_t transfer : {0u, 1u}) {
            machine.expect(transfer);
            machine.expert_on_device({transfer + 1, 1, 1, transfer, transfer + 1});
        }
        machine.send({link_h2d, 1, MOORAGE_WHOLE, 0, 100'000});
        for (uint32_t experts = 0, pieces = 0; experts < 3;) {
            if (machine.wait().kind != event_kind::piece) {
                ++experts;
                continue;
            }
            machine.arrived(pieces);
            if (pieces++ == 0) machine.send({link_h2d, 2, MOORAGE_WHOLE, 0, 100'000});
        }
        return *machine.clock();
    };
    // The gate is known after 221 and 100 for the host; a load takes 10,300, an expert 250.
    CHECK(layer_ns(load_overlap::layer) == 321 + 2 * 10'300 + 250);
    CHECK(layer_ns(load_overlap::none) == 321 + 2 * 10'300 + 3 * 250);
    CHECK(layer_ns(load_overlap::prefetch) == 321 + 2 * 10'300 + 3 * 250);
}

TEST_CASE("a load that no expert of the layer waits for holds up those that block for anything") {
    const auto expert_ns = [](load_overlap overlap) {
        engine_profile changed_engine = engine();
        changed_engine.overlap = overlap;
        const cost_model price = costs(changed_engine, toy::shape(2, 4, 2));
        emulator machine(price, 4, nullptr);
        pass tokens;
        tokens.tokens.push_back({});
        machine.attention(0, tokens);
        CHECK(machine.wait().kind == event_kind::gate);
        machine.expect(0);
        machine.send({link_h2d, 5, MOORAGE_WHOLE, 0, 100'000});  // of the next layer
        machine.expert_on_device({0, 1, 1, MOORAGE_NONE, 0});
        while (machine.wait().kind == event_kind::piece) machine.arrived(0);
        return *machine.clock();
    };
    CHECK(expert_ns(load_overlap::layer) == 321 + 250);
    CHECK(expert_ns(load_overlap::prefetch) == 321 + 250);
    CHECK(expert_ns(load_overlap::none) == 321 + 10'300 + 250);
}

TEST_CASE("software, pageable memory, blocking and a hand-over come on top of our own figures") {
    const auto parsed = parse_engine(R"(kind = "engine"
name = "blocking"
costs = "device"
overlap = "prefetch"
layer_ns = 30
expert_ns = 7
copy_bytes_per_s = 2e9
cpu_layer_ns = 500
[sources]
costs = "[G]"
overlap = "[G]"
layer_ns = "[G]"
expert_ns = "[G]"
copy_bytes_per_s = "[G]"
cpu_layer_ns = "[G]"
)",
                                     "blocking.toml");
    REQUIRE_MESSAGE(parsed.ok(), (parsed ? "" : parsed.failure().text));
    CHECK(parsed->is_own());
    hardware_profile plain = toy::hardware(), with_engine = plain;
    REQUIRE(apply_engine(with_engine, *parsed).ok());
    CHECK(with_engine.engine.overlap == load_overlap::prefetch);
    CHECK(with_engine.node.cpu_handover_ns == 500);
    const model_shape shape = toy::shape(2, 4, 1);
    const cost_model plain_costs(plain, shape), engine_costs(with_engine, shape);
    CHECK(engine_costs.attention_ns(1, 0) == plain_costs.attention_ns(1, 0) + 30);
    CHECK(engine_costs.gpu_expert_ns(1, 1) == plain_costs.gpu_expert_ns(1, 1) + 7);
    CHECK(engine_costs.cpu_expert_ns(1, 1) == plain_costs.cpu_expert_ns(1, 1));
    // 10 bytes a ns before, 2 now.
    CHECK(engine_costs.load_ns(100'000) == plain_costs.load_ns(100'000) + 40'000);
}

TEST_CASE("the state of linear attention is read and written once a sequence") {
    model_shape shape = toy::shape(2, 4, 1);
    shape.state_layer_bytes = 5'000;
    // 10,000 bytes: at a quarter of 1,000 a ns, by the engine; at 1,000 a ns, by ours.
    CHECK(costs(engine(), shape).attention_ns(1, 0) == 221 + 40);
    const cost_model ours(toy::hardware(), shape);
    CHECK(ours.attention_ns(1, 0) == 50 + 30);
    CHECK(ours.attention_ns(2, 0, 2) == 50 + 40);
    CHECK(ours.attention_ns(2, 0, 1) == 50 + 30);
}

}  // namespace engine_test
