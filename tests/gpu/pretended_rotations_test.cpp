// pretended_rotations_test.cpp - goal: the executor on a GPU turns texts by the rotations of their
// length, as rotations_test.cpp asks of the CPU. Method: the same texts and reference over the
// pretended GPU, with little room and some experts on the CPU.
#include "tests/golden/rotations_fixture.h"
#include "tests/gpu/pretended_fixture.h"

namespace pretended_rotations_test {

using namespace moorage::test;

namespace {

double error_on_gpu(const rotations_golden &golden, const std::vector<model_request> &requests,
                    const model_source_options &source_options) {
    model_source source(*golden.loaded_model, requests, source_options);
    executor_drive drive(*golden.loaded_model, {.slots = 5, .cpu_share = 0.25, .seed = 3});
    gpu_executor_options options;
    options.source_model = golden.loaded_model.get();
    options.places = &drive.places;
    options.limits = {.tokens_max = source.tokens_max(),
                      .streams = source.streams(),
                      .context_max = source.context_max(),
                      .outputs_max = source.outputs_max()};
    options.transfers_max = drive.transfers_max();
    options.threads = 1;
    options.exact = true;
    options.patience_s = 60;
    auto machine = make_golden_machine(options, false);
    REQUIRE_MESSAGE(machine.ok(), (machine ? "" : machine.failure().text));
    drive.use(*machine->device_executor, *machine->results);
    return error_of_requests(golden, requests, source, *machine->results, [&](const pass &tokens) {
        const status done = drive.run(tokens);
        REQUIRE_MESSAGE(done.ok(), (done ? "" : done.failure().text));
    });
}

}  // namespace

TEST_CASE("rotations of the whole text, scored in any passes and written across the border") {
    for (const char *name : {"longrope", "dynamic"}) {
        CAPTURE(name);
        const rotations_golden golden(name);
        for (const uint32_t prefill : {0u, 5u, 24u, 64u})
            for (const uint32_t batch : {1u, 3u}) {
                CAPTURE(prefill);
                CAPTURE(batch);
                const model_source_options options{.batch = batch, .prefill = prefill};
                CHECK(error_on_gpu(golden, golden.scored_texts(), options) <= rotations_error_max);
                CHECK(error_on_gpu(golden, golden.written_texts(), options) <= rotations_error_max);
            }
    }
}

}  // namespace pretended_rotations_test
