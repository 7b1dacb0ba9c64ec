// cpu_executor_test.cpp - goal: the CPU executor gives the same results from its slots as in place,
// in whatever pieces the bytes come, and completes work in the order of its queues. Method: passes
// of a small model, driven operation by operation as the pipeline does, with pieces of random sizes
// in random order, compared bit by bit with the same passes in place. Orders of completions by
// hand.
#include "core/execute/cpu/cpu_executor.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "core/base/memory_block.h"
#include "core/base/random.h"
#include "tests/skip.h"

namespace cpu_executor_test {

using namespace moorage::core;

namespace {

constexpr uint8_t top = MOORAGE_SEGMENT(0, 2), bottom = MOORAGE_SEGMENT(1, 2),
                  whole = MOORAGE_WHOLE;
constexpr uint32_t layers = 3, experts = 8, transfers = 64, tag_base = 100;

const model &mixtral() {  // experts of 80 rows in parts of 32
    static const auto opened =
        open_model(std::filesystem::path(MOORAGE_SOURCE_DIR) / "tests/golden/mixtral");
    REQUIRE(opened.ok());
    return **opened;
}

pass pass_at(uint32_t position, uint32_t tokens) {
    pass pass;
    for (uint32_t i = 0; i < tokens; ++i) {
        pass_token token;
        token.position = position + i;
        token.token_id = static_cast<int32_t>(3 + 7 * token.position) % 160;
        token.output = true;
        pass.tokens.push_back(token);
    }
    return pass;
}

// The routing of two tokens, drawn from a seed: [2, k].
struct routing {
    std::vector<uint32_t> chosen;
    std::vector<float> weights;
    explicit routing(random_stream &random) {
        for (int token = 0; token < 2; ++token) {
            const auto first = static_cast<uint32_t>(random.below(experts));
            const auto second =
                static_cast<uint32_t>((first + 1 + random.below(experts - 1)) % experts);
            chosen.insert(chosen.end(), {first, second});
            weights.insert(weights.end(), {0.75f, 0.25f});
        }
    }
    std::vector<uint32_t> distinct() const {
        std::vector<uint32_t> distinct_experts = chosen;
        std::ranges::sort(distinct_experts);
        distinct_experts.erase(std::unique(distinct_experts.begin(), distinct_experts.end()),
                               distinct_experts.end());
        return distinct_experts;
    }
};

struct bench {
    thread_pool pool{2};
    std::unique_ptr<cpu_model> compute;
    arena places;
    std::unique_ptr<cpu_executor> executor;

    // Every expert lies in one of `frames`, cut at `top_rows` of 80.
    bench(uint32_t frames, uint32_t top_rows, bool in_place = false)
        : places(layers, experts, 80, 0, frames) {
        places.divide(std::vector<uint32_t>(layers, top_rows), {});
        auto created_model = cpu_model::create(
            mixtral(), pool, {.tokens_max = 4, .streams = 1, .context_max = 64, .outputs_max = 4});
        REQUIRE(created_model.ok());
        compute = std::move(*created_model);
        auto created_executor =
            cpu_executor::create({&mixtral(), compute.get(), &places, transfers, in_place});
        if (!created_executor) FAIL(created_executor.failure().text);
        executor = std::move(*created_executor);
    }
    // Bytes of an expert's segments, as the pipeline computes them.
    uint64_t bytes(uint8_t segments, uint32_t top_rows) const {
        const mlp_weights &expert = mixtral().weights().layers[0].experts[0];
        uint64_t sum = 0;
        if (segments & top) sum += segment_image(expert, 0, top_rows).bytes();
        if ((segments & bottom) && top_rows < 80)
            sum += segment_image(expert, top_rows, 80 - top_rows).bytes();
        return sum;
    }
    completion next(event_kind kind) {
        const completion done = executor->wait();
        REQUIRE(done.kind == kind);
        return done;
    }
    void send(uint32_t page, uint8_t segments, uint64_t offset, uint64_t count) {
        executor->send({link_h2d, page, segments, offset, count});
    }
    // A transfer from its beginning to its end, in one piece.
    void bring(uint32_t id, uint32_t page, uint8_t segments, uint32_t top_rows) {
        executor->expect(id);
        send(page, segments, 0, bytes(segments, top_rows));
        CHECK(next(event_kind::piece).tag == link_h2d);
        executor->arrived(id);
    }
    std::vector<float> logits() {
        executor->head(2);
        next(event_kind::head);
        return {compute->logits().begin(), compute->logits().end()};
    }
};

// Pieces that make up `bytes`, shuffled.
std::vector<std::pair<uint64_t, uint64_t>> pieces_of(uint64_t bytes, random_stream &random) {
    std::vector<uint64_t> cuts = {0, bytes};
    for (uint64_t count = random.below(6); count-- > 0;) cuts.push_back(random.below(bytes));
    std::ranges::sort(cuts);
    std::vector<std::pair<uint64_t, uint64_t>> pieces;
    for (size_t i = 1; i < cuts.size(); ++i)
        if (cuts[i] > cuts[i - 1]) pieces.emplace_back(cuts[i - 1], cuts[i] - cuts[i - 1]);
    for (size_t i = pieces.size(); i > 1; --i) std::swap(pieces[i - 1], pieces[random.below(i)]);
    return pieces;
}

// Everything of three passes in place, for the routing of a seed: the logits of each.
std::vector<std::vector<float>> expected_logits(uint64_t seed) {
    bench fixture(1, 80, /*in_place=*/true);
    random_stream random(seed, 1);
    std::vector<std::vector<float>> all_logits;
    for (uint32_t number = 0; number < 3; ++number) {
        const pass now = pass_at(2 * number, 2);
        fixture.executor->begin(now);
        for (uint32_t layer = 0; layer < layers; ++layer) {
            fixture.executor->attention(layer, now);
            fixture.next(event_kind::gate);
            const routing route(random);
            fixture.executor->route(route.chosen, route.weights);
            const std::vector<uint32_t> distinct = route.distinct();
            for (const uint32_t expert : distinct)
                fixture.executor->expert_on_device({.page = layer * experts + expert, .tokens = 1});
            for (size_t i = 0; i < distinct.size(); ++i) fixture.next(event_kind::device_expert);
        }
        all_logits.push_back(fixture.logits());
    }
    return all_logits;
}

// Transfers of one layer step under way, their pieces drawn at random.
struct step_under_way {
    struct transfer {
        uint32_t id, page;
        uint8_t segments;
        std::vector<std::pair<uint64_t, uint64_t>> pieces;  // still to be sent
    };
    bench &fixture;
    random_stream &random;
    std::vector<transfer> open;
    size_t sending = 0;
    bool busy = false;
    uint32_t computed = 0;

    void send_one() {
        if (open.empty() || busy) return;
        busy = true;
        sending = random.below(open.size());
        const auto [offset, count] = open[sending].pieces.back();
        open[sending].pieces.pop_back();
        fixture.send(open[sending].page, open[sending].segments, offset, count);
    }
    void handle(const completion &done) {
        if (done.kind == event_kind::piece) {
            busy = false;
            if (open[sending].pieces.empty()) {
                fixture.executor->arrived(open[sending].id);
                open.erase(open.begin() + static_cast<ptrdiff_t>(sending));
            }
            return send_one();
        }
        CHECK(done.kind == event_kind::device_expert);
        ++computed;
    }
};

// The experts of a step through slots: whole, or top and bottom as one transfer or two.
void compute_step(bench &fixture, uint32_t layer, const std::vector<uint32_t> &distinct,
                  uint32_t top_rows, random_stream &random) {
    const bool split = fixture.places.is_split(0);
    step_under_way step{fixture, random, {}, 0, false, 0};
    uint32_t id = 0, queued = 0;
    for (const uint32_t expert : distinct) {
        const uint32_t page = layer * experts + expert;
        fixture.places.take(page, whole, false);
        const bool together = !split || random.below(2) == 0;
        for (const uint8_t segments : together ? std::vector{whole} : std::vector{top, bottom}) {
            fixture.executor->expect(id);
            step.open.push_back(
                {id, page, segments, pieces_of(fixture.bytes(segments, top_rows), random)});
            for (const uint8_t part :
                 split &&together ? std::vector{top, bottom} : std::vector{segments}) {
                fixture.executor->expert_on_device({.page = page,
                                                    .tokens = 1,
                                                    .transfer = id,
                                                    .tag = tag_base + expert,
                                                    .segments = part});
                ++queued;
            }
            ++id;
        }
    }
    step.send_one();
    while (step.computed < queued) step.handle(fixture.executor->wait());
    CHECK(step.open.empty());
    for (const uint32_t expert : distinct) fixture.places.release(layer * experts + expert, whole);
}

}  // namespace

TEST_CASE("pieces of any size in any order land where they belong") {
    for (const uint32_t top_rows : {80u, 32u, 64u}) {
        for (uint64_t seed = 1; seed <= 6; ++seed) {
            CAPTURE(top_rows);
            CAPTURE(seed);
            const std::vector<std::vector<float>> expected = expected_logits(seed);
            bench fixture(5, top_rows);
            random_stream random(seed, 1), cuts(seed, 2);
            for (uint32_t number = 0; number < 3; ++number) {
                const pass now = pass_at(2 * number, 2);
                fixture.executor->begin(now);
                for (uint32_t layer = 0; layer < layers; ++layer) {
                    fixture.executor->attention(layer, now);
                    fixture.next(event_kind::gate);
                    const routing route(random);
                    fixture.executor->route(route.chosen, route.weights);
                    compute_step(fixture, layer, route.distinct(), top_rows, cuts);
                }
                CHECK(fixture.logits() == expected[number]);
            }
        }
    }
}

TEST_CASE("a cancelled transfer does not spoil what takes its slot") {
    const std::vector<float> expected = expected_logits(3)[0];
    for (uint32_t round = 0; round < 20; ++round) {
        bench fixture(2, 80);
        random_stream random(3, 1);
        const pass now = pass_at(0, 2);
        fixture.executor->begin(now);
        uint32_t id = 0;
        for (uint32_t layer = 0; layer < layers; ++layer) {
            fixture.executor->attention(layer, now);
            fixture.next(event_kind::gate);
            const routing route(random);
            fixture.executor->route(route.chosen, route.weights);
            for (const uint32_t expert : route.distinct()) {
                const uint32_t page = layer * experts + expert;
                const uint32_t unwanted_page = (layer * experts + (expert + 3) % experts);
                fixture.places.take(unwanted_page, whole, false);
                fixture.executor->expect(id++);
                fixture.send(unwanted_page, whole, 0,
                             fixture.bytes(whole, 80));  // sets out, then is not wanted
                fixture.places.release(unwanted_page, whole);
                fixture.places.take(page, whole, false);  // the same slot
                fixture.next(event_kind::piece);
                fixture.bring(id, page, whole, 80);
                fixture.executor->expert_on_device({.page = page, .tokens = 1, .transfer = id++});
                fixture.next(event_kind::device_expert);
                fixture.places.release(page, whole);
            }
        }
        CHECK(fixture.logits() == expected);
    }
}

TEST_CASE("in place nothing is copied and nothing waits for long") {
    bench fixture(1, 80, /*in_place=*/true);
    CHECK(fixture.executor->unified_memory());
    CHECK(fixture.executor->memory_bytes() == 0);
    CHECK_FALSE(fixture.executor->virtual_time());
    const pass now = pass_at(0, 2);
    fixture.executor->begin(now);
    fixture.executor->attention(0, now);
    fixture.next(event_kind::gate);
    fixture.executor->route(std::vector<uint32_t>{1, 2, 1, 2},
                            std::vector<float>{0.5, 0.5, 0.5, 0.5});
    fixture.bring(0, 1, whole, 80);  // without a slot
    fixture.executor->expert_on_device({.page = 1, .tokens = 2, .transfer = 0, .tag = 7});
    CHECK(fixture.next(event_kind::device_expert).tag == 7);
}

TEST_CASE("work completes in order; the CPU fills the time in which the GPU's queue waits") {
    bench fixture(4, 32);
    const pass now = pass_at(0, 2);
    fixture.executor->begin(now);
    fixture.executor->attention(0, now);
    fixture.next(event_kind::gate);
    fixture.executor->route(std::vector<uint32_t>{0, 1, 2, 3},
                            std::vector<float>{0.5, 0.5, 0.5, 0.5});
    fixture.places.take(0, whole, false);
    fixture.places.take(1, top, false);
    fixture.places.take(2, whole, false);
    fixture.bring(0, 0, whole, 32);
    fixture.bring(1, 1, top, 32);
    const auto queue = [&](uint32_t page, uint8_t segments, uint32_t transfer) {
        fixture.executor->expert_on_device({.page = page,
                                            .tokens = 1,
                                            .transfer = transfer,
                                            .tag = tag_base + page,
                                            .segments = segments});
    };
    fixture.executor->expect(2);
    fixture.executor->expect(3);
    queue(0, top, MOORAGE_NONE);
    queue(1, top, 1);
    queue(0, bottom, MOORAGE_NONE);  // adds to its top: after it, in a loop of its own
    queue(1, bottom, 2);             // waits
    queue(2, top, 3);                // behind the waiting one, though it could go at its arrival
    queue(2, bottom, 3);
    fixture.executor->expert_on_cpu({.page = 3, .tokens = 1, .tag = 42});
    std::vector<std::pair<uint32_t, uint8_t>> done;
    for (int i = 0; i < 3; ++i) {
        const completion finished = fixture.next(event_kind::device_expert);
        done.emplace_back(finished.tag, finished.segments);
    }
    CHECK(done == std::vector<std::pair<uint32_t, uint8_t>>{{100, top}, {101, top}, {100, bottom}});
    // Nothing on the GPU's side can run, so the CPU's expert comes, and it once.
    CHECK(fixture.next(event_kind::cpu_expert).tag == 42);
    fixture.send(2, whole, 0, fixture.bytes(whole, 32));
    fixture.next(event_kind::piece);
    fixture.executor->arrived(3);
    fixture.places.take(1, bottom, false);
    fixture.send(1, bottom, 0, fixture.bytes(bottom, 32));
    fixture.next(event_kind::piece);  // still nothing computed: the queue keeps its order
    fixture.executor->arrived(2);
    done.clear();
    for (int i = 0; i < 3; ++i) {
        const completion finished = fixture.next(event_kind::device_expert);
        done.emplace_back(finished.tag, finished.segments);
    }
    CHECK(done ==
          std::vector<std::pair<uint32_t, uint8_t>>{{101, bottom}, {102, top}, {102, bottom}});
}

TEST_CASE("times add up: copies, the clock, what the queue waited for") {
    bench fixture(5, 80);
    const pass now = pass_at(0, 2);
    fixture.executor->begin(now);
    uint64_t last_ns = *fixture.executor->clock(), copied_ns = 0;
    fixture.executor->attention(0, now);
    fixture.next(event_kind::gate);
    for (uint32_t page = 0; page < 5; ++page) {
        fixture.places.take(page, whole, false);
        fixture.executor->expect(page);
        fixture.send(page, whole, 0, fixture.bytes(whole, 80));
        const completion done = fixture.next(event_kind::piece);
        CHECK(done.duration_ns > 0);
        copied_ns += done.duration_ns;
        CHECK(fixture.executor->busy().h2d == copied_ns);
        CHECK(*fixture.executor->clock() >= last_ns + done.duration_ns);
        last_ns = *fixture.executor->clock();
        fixture.executor->arrived(page);
    }
    CHECK(fixture.executor->busy().stall == 0);  // nothing was queued meanwhile
    CHECK(fixture.executor->busy().gpu > 0);
    CHECK(fixture.executor->busy().cpu == 0);
}

TEST_CASE("an arena beyond the memory of the machine is refused with the sizes") {
    thread_pool pool(1);
    auto compute = cpu_model::create(mixtral(), pool, {.context_max = 4});
    REQUIRE(compute.ok());
    const uint64_t slots = memory_available_bytes() / (3 * 48 * 80 * 2) + 1'000'000;
    if (slots > 200'000'000) return moorage::test::skip("too much memory to ask for more");
    const arena places(layers, experts, 80, 0, static_cast<uint32_t>(slots));
    const auto executor =
        cpu_executor::create({&mixtral(), compute->get(), &places, transfers, false});
    REQUIRE_FALSE(executor.ok());
    CHECK(executor.failure().text.find(std::to_string(slots)) != std::string::npos);
    CHECK(executor.failure().text.find("[memory] experts") != std::string::npos);
}

TEST_CASE("an executor that is dropped ends its copies first") {
    for (uint32_t round = 0; round < 30; ++round) {
        bench fixture(2, 80);
        fixture.places.take(5, whole, false);
        fixture.executor->expect(0);
        fixture.send(5, whole, 0, fixture.bytes(whole, 80));
    }
}

}  // namespace cpu_executor_test
