// tests.h - the tests by subject; check.cpp puts them in order.
#pragma once

#include <string>
#include <vector>

#include "tools/moorage/check/check.h"
#include "tools/moorage/check/drive.h"

namespace moorage::check {

// tests_door.cpp: the library's entry point and identity
verdict loads(const test_input &);
verdict exported_symbols_one(const test_input &);
verdict scan_time(const test_input &);
verdict descriptor_consistency(const test_input &);
verdict unknown_interface_null(const test_input &);
verdict id_trailing_garbage_null(const test_input &);
verdict calls_found(const test_input &);
// tests_life.cpp: from create to destroy
verdict life_cycle(const test_input &);
verdict create_destroy_repeat(const test_input &);
verdict activate_limits_extremes(const test_input &);
verdict step_before_activate_refused(const test_input &);
verdict exception_contained(const test_input &);
verdict leak(const test_input &);
verdict older_host_tables(const test_input &);
verdict struct_size_min(const test_input &);
// tests_params.cpp: parameters
verdict params_out_of_range(const test_input &);
verdict params_fuzz(const test_input &);
// tests_step.cpp: conduct inside a step
verdict no_allocation_in_step(const test_input &);
verdict no_block_in_step(const test_input &);
verdict reads_wall_clock(const test_input &);
verdict output_canaries(const test_input &);
verdict inputs_left_alone(const test_input &);
verdict surroundings_kept(const test_input &);
verdict streams_kept(const test_input &);
// tests_advice.cpp: what is advised
verdict advice_in_range(const test_input &);
verdict advice_complete(const test_input &);
verdict advice_pinned_never_named(const test_input &);
verdict advice_over_capacity(const test_input &);
verdict advice_capacity_zero(const test_input &);
// tests_repeat.cpp: the same again
verdict determinism_same_seed(const test_input &);
verdict determinism_thread_move(const test_input &);
verdict reset_equals_new(const test_input &);
verdict replay_equals_steps(const test_input &);
// tests_wire.cpp: the messages of a wire
verdict wire_connects(const test_input &);
verdict wire_order(const test_input &);
verdict wire_sizes(const test_input &);
verdict wire_in_flight(const test_input &);
verdict wire_backpressure(const test_input &);
verdict wire_memory_stays(const test_input &);
verdict wire_channels(const test_input &);
verdict wire_registered(const test_input &);
verdict wire_idle(const test_input &);
// tests_wire_life.cpp: how its connections begin and end
verdict wire_wake(const test_input &);
verdict wire_close(const test_input &);
verdict wire_close_at_once(const test_input &);
verdict wire_peer_death(const test_input &);
verdict wire_wrong_address(const test_input &);
verdict wire_limits(const test_input &);
verdict wire_refusals(const test_input &);
verdict wire_numbers(const test_input &);
verdict wire_identity(const test_input &);

// The worlds for every test of advice: shared and per layer, roomy and tiny, one token and many,
// with and without optional parts.
std::vector<world_options> usual_worlds(const test_input &input);
world_options first_world(const test_input &input);

// An active actor in `test_world`, or the error.
core::result<std::unique_ptr<actor>> active_actor(const test_input &input, world &test_world);

}  // namespace moorage::check
