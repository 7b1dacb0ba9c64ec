// pretended_ahead_test.cpp - goal: the next layer's attention, or the head, is queued behind a
// layer's last expert before the host has seen the experts' end, and only if it is known to come
// next. The host sees a layer's scores without asking the driver. The link stays busy in the order
// of its requests. Method: call an executor over the pretended GPU by hand, and count launches.
#include "tests/gpu/pretended_fixture.h"

namespace pretended_ahead_test {

using namespace moorage::test;
using pretended::order;

namespace {

// One pass of one token over an executor, with everything in slots.
struct single_pass {
    opened_golden golden{"olmoe"};
    executor_drive drive;
    golden_machine machine;
    pass tokens = prompt_pass(std::span(golden.data.input_ids).first(1), 0, 0, true);
    uint32_t experts = golden.source_model->config().experts;

    explicit single_pass(order stream_order, uint32_t seed = 5)
        : drive(*golden.source_model, {.slots = golden.source_model->config().experts * 8}) {
        gpu_executor_options options;
        options.source_model = golden.source_model.get();
        options.places = &drive.places;
        options.limits = golden_limits(golden.data);
        options.transfers_max = drive.transfers_max();
        options.threads = 1;
        options.exact = true;
        pretended::begin({.stream_order = stream_order, .seed = seed});
        auto created = make_golden_machine(options, false);
        REQUIRE(created.ok());
        machine = std::move(*created);
        drive.use(*machine.device_executor, *machine.results);
    }
    executor &device_executor() { return *machine.device_executor; }
    uint32_t layers() const {
        return static_cast<uint32_t>(golden.source_model->config().moe_layers().size());
    }

    // From a layer's attention to its choice: the first experts, which have slots.
    void route(uint32_t layer) {
        while (device_executor().wait().kind != event_kind::gate) continue;
        const uint32_t k = golden.source_model->config().top_k;
        std::vector<uint32_t> chosen(k);
        for (uint32_t i = 0; i < k; ++i) chosen[i] = i;
        device_executor().route(chosen, std::vector<float>(k, 1.0f / static_cast<float>(k)));
        for (uint32_t i = 0; i < k; ++i)
            if (drive.places.row_of(layer * experts + i, MOORAGE_SEGMENT(0, 2)) == MOORAGE_NEVER)
                drive.places.take(layer * experts + i, MOORAGE_SEGMENT(0, 2), false);
    }
    void queue(uint32_t layer, uint32_t expert) {
        device_executor().expert_on_device({layer * experts + expert, 1, 1, MOORAGE_NONE, expert});
    }
};

}  // namespace

TEST_CASE("what comes after a layer is launched behind its last expert") {
    single_pass run(order::lazy);
    const uint32_t k = run.golden.source_model->config().top_k;
    run.device_executor().begin(run.tokens);
    run.device_executor().attention(0, run.tokens);
    for (uint32_t layer = 0; layer < run.layers(); ++layer) {
        CAPTURE(layer);
        run.route(layer);
        for (uint32_t i = 0; i < k; ++i) run.queue(layer, i);
        for (uint32_t i = 0; i < k; ++i)
            CHECK(run.device_executor().wait().kind == event_kind::device_expert);
        const uint64_t launches = pretended::calls("cudaLaunchKernel");
        layer + 1 < run.layers() ? run.device_executor().attention(layer + 1, run.tokens)
                                 : run.device_executor().head(1);
        CHECK(pretended::calls("cudaLaunchKernel") == launches);
    }
    CHECK(run.device_executor().wait().kind == event_kind::head);
    CHECK_FALSE(run.device_executor().failed());
}

TEST_CASE("the host sees scores as it is told of them, and asks for no event") {
    single_pass run(order::eager);
    const uint32_t k = run.golden.source_model->config().top_k;
    run.device_executor().begin(run.tokens);
    run.device_executor().attention(0, run.tokens);  // its time is waited for
    for (uint32_t layer = 0; layer < 2; ++layer) {
        const uint64_t asked = pretended::calls("cudaEventQuery");
        run.route(layer);
        CHECK((pretended::calls("cudaEventQuery") == asked) == (layer == 1));
        for (uint32_t i = 0; i < k; ++i) run.queue(layer, i);
        for (uint32_t i = 0; i < k; ++i)
            CHECK(run.device_executor().wait().kind == event_kind::device_expert);
        run.device_executor().attention(layer + 1, run.tokens);
    }
}

TEST_CASE("a token's experts that are there need no copy") {
    single_pass run(order::lazy);
    const uint32_t k = run.golden.source_model->config().top_k;
    const uint64_t copies = pretended::calls("cudaMemcpyAsync");
    run.device_executor().begin(run.tokens);
    run.device_executor().attention(0, run.tokens);
    run.route(0);
    for (uint32_t i = 0; i < k; ++i) run.queue(0, i);
    for (uint32_t i = 0; i < k; ++i)
        CHECK(run.device_executor().wait().kind == event_kind::device_expert);
    run.device_executor().attention(1, run.tokens);
    run.route(1);
    CHECK(pretended::calls("cudaMemcpyAsync") == copies);
}

TEST_CASE("an expert that the CPU computes holds the next layer back") {
    single_pass run(order::eager);
    const uint32_t k = run.golden.source_model->config().top_k;
    run.device_executor().begin(run.tokens);
    run.device_executor().attention(0, run.tokens);
    run.route(0);
    for (uint32_t i = 0; i + 1 < k; ++i) run.queue(0, i);
    for (uint32_t i = 0; i + 1 < k; ++i)
        CHECK(run.device_executor().wait().kind == event_kind::device_expert);
    const uint64_t launches = pretended::calls("cudaLaunchKernel");
    run.device_executor().expert_on_cpu({k - 1, 1, 1, MOORAGE_NONE, k - 1});
    CHECK(pretended::calls("cudaLaunchKernel") == launches);
    CHECK(run.device_executor().wait().kind == event_kind::cpu_expert);
}

TEST_CASE("the end of what is launched ahead is kept until it is asked for") {
    single_pass run(order::eager);
    const uint32_t k = run.golden.source_model->config().top_k, spare = run.experts - 1;
    run.device_executor().begin(run.tokens);
    run.device_executor().attention(0, run.tokens);
    run.route(0);
    for (uint32_t i = 0; i < k; ++i) run.queue(0, i);
    for (uint32_t i = 0; i < k; ++i)
        CHECK(run.device_executor().wait().kind == event_kind::device_expert);
    // The next layer's scores are there already, and a move is queued behind them.
    run.drive.places.take(spare, MOORAGE_SEGMENT(0, 2), false);
    run.device_executor().move_top({0, 1, 1, MOORAGE_NONE, 9, MOORAGE_SEGMENT(0, 2)},
                                   run.drive.places.row_of(spare, MOORAGE_SEGMENT(0, 2)));
    const completion moved = run.device_executor().wait();
    CHECK(moved.kind == event_kind::moved);
    CHECK(moved.tag == 9);
    run.device_executor().attention(1, run.tokens);
    CHECK(run.device_executor().wait().kind == event_kind::gate);
}

TEST_CASE("a pass that is given up leaves nothing to the next one") {
    single_pass run(order::lazy);
    const uint32_t k = run.golden.source_model->config().top_k;
    run.device_executor().begin(run.tokens);
    run.device_executor().attention(0, run.tokens);
    run.route(0);
    for (uint32_t i = 0; i < k; ++i) run.queue(0, i);
    for (uint32_t i = 0; i < k; ++i)
        CHECK(run.device_executor().wait().kind == event_kind::device_expert);
    // The next layer's attention is under way.
    for (uint32_t i = 0; i < k; ++i) run.drive.places.release(i, MOORAGE_SEGMENT(0, 2));
    const auto report = check_golden(run.golden.data, run.drive, *run.machine.results,
                                     run.golden.source_model->config().rope);
    REQUIRE(report.ok());
    CHECK(report->logits_error <= golden_error_max);
    CHECK(report->greedy_equal == run.golden.data.greedy.size());
}

TEST_CASE("a link has two pieces under way, and what is cancelled writes first") {
    std::vector<float> expected;
    for (uint32_t seed = 0; seed <= 12; ++seed) {
        CAPTURE(seed);
        single_pass run(seed == 0 ? order::eager : order::drawn, seed);
        executor &device_executor = run.device_executor();
        const uint32_t k = run.golden.source_model->config().top_k, wanted = k - 1;
        CHECK(device_executor.pieces_at_once(link_h2d) == 2);
        device_executor.begin(run.tokens);
        device_executor.attention(0, run.tokens);
        run.route(0);
        const uint64_t bytes =
            segment_image(run.golden.source_model->weights().layers[0].experts[wanted], 0,
                          run.golden.source_model->config().moe_intermediate)
                .bytes();
        for (uint32_t i = 0; i < wanted; ++i) {
            device_executor.send({link_h2d, i, MOORAGE_WHOLE, 0, bytes});
            while (device_executor.wait().kind != event_kind::piece) continue;
        }
        run.drive.places.release(wanted, MOORAGE_SEGMENT(0, 2));
        // A prefetch for the next layer, given up while it is under way; then its slot's next page.
        const uint32_t given_up = run.experts;
        run.drive.places.take(given_up, MOORAGE_SEGMENT(0, 2), false);
        const uint64_t row = run.drive.places.row_of(given_up, MOORAGE_SEGMENT(0, 2));
        if (seed != 0) device_executor.send({link_h2d, given_up, MOORAGE_WHOLE, 0, bytes});
        run.drive.places.release(given_up, MOORAGE_SEGMENT(0, 2));
        run.drive.places.take(wanted, MOORAGE_SEGMENT(0, 2), false);
        REQUIRE(run.drive.places.row_of(wanted, MOORAGE_SEGMENT(0, 2)) == row);
        device_executor.expect(0);
        device_executor.send({link_h2d, wanted, MOORAGE_WHOLE, 0, bytes});
        for (uint32_t i = 0; i < k; ++i)
            device_executor.expert_on_device({i, 1, 1, i == wanted ? 0 : MOORAGE_NONE, i});
        for (uint32_t pieces = seed == 0 ? 1 : 2, open = k; open != 0;) {
            const completion done = device_executor.wait();
            open -= done.kind == event_kind::device_expert;
            if (done.kind == event_kind::piece && --pieces == 0) device_executor.arrived(0);
        }
        device_executor.attention(1, run.tokens);
        while (device_executor.wait().kind != event_kind::gate) continue;
        const std::span<const float> scores = run.machine.results->router_logits();
        if (seed == 0) expected.assign(scores.begin(), scores.end());
        CHECK(std::ranges::equal(scores, expected));
        for (uint32_t i = 0; i < run.experts; ++i)
            run.drive.places.release(i, MOORAGE_SEGMENT(0, 2));
    }
}

}  // namespace pretended_ahead_test
