// tests.h - the tests by subject; check.cpp puts them in order.
#pragma once

#include <string>
#include <vector>

#include "tools/moorage/check/check.h"
#include "tools/moorage/check/drive.h"

namespace moorage::check {

// tests_door.cpp: the library's entry point and identity
verdict loads(const subject &);
verdict exported_symbols_one(const subject &);
verdict scan_time(const subject &);
verdict descriptor_consistency(const subject &);
verdict unknown_interface_null(const subject &);
verdict id_trailing_garbage_null(const subject &);
verdict calls_found(const subject &);
// tests_life.cpp: from create to destroy
verdict life_cycle(const subject &);
verdict create_destroy_repeat(const subject &);
verdict activate_limits_extremes(const subject &);
verdict step_before_activate_refused(const subject &);
verdict exception_contained(const subject &);
verdict leak(const subject &);
verdict older_host_tables(const subject &);
verdict struct_size_min(const subject &);
// tests_params.cpp: parameters
verdict params_out_of_range(const subject &);
verdict params_fuzz(const subject &);
// tests_step.cpp: conduct inside a step
verdict no_allocation_in_step(const subject &);
verdict no_block_in_step(const subject &);
verdict reads_wall_clock(const subject &);
verdict output_canaries(const subject &);
verdict inputs_left_alone(const subject &);
verdict surroundings_kept(const subject &);
verdict streams_kept(const subject &);
// tests_advice.cpp: what is advised
verdict advice_in_range(const subject &);
verdict advice_complete(const subject &);
verdict advice_pinned_never_named(const subject &);
verdict advice_over_capacity(const subject &);
verdict advice_capacity_zero(const subject &);
// tests_repeat.cpp: the same again
verdict determinism_same_seed(const subject &);
verdict determinism_thread_move(const subject &);
verdict reset_equals_new(const subject &);
verdict replay_equals_steps(const subject &);
// tests_wire.cpp: the messages of a wire
verdict wire_connects(const subject &);
verdict wire_order(const subject &);
verdict wire_sizes(const subject &);
verdict wire_in_flight(const subject &);
verdict wire_backpressure(const subject &);
verdict wire_memory_stays(const subject &);
verdict wire_channels(const subject &);
verdict wire_registered(const subject &);
verdict wire_idle(const subject &);
// tests_wire_life.cpp: how its connections begin and end
verdict wire_wake(const subject &);
verdict wire_close(const subject &);
verdict wire_close_at_once(const subject &);
verdict wire_peer_death(const subject &);
verdict wire_wrong_address(const subject &);
verdict wire_limits(const subject &);
verdict wire_refusals(const subject &);
verdict wire_numbers(const subject &);
verdict wire_identity(const subject &);

// The worlds for every test of advice: shared and per layer, roomy and tiny, one token and many,
// with and without optional parts.
std::vector<world_options> usual_worlds(const subject &of);
world_options first_world(const subject &of);

// An active actor in `place`, or the error.
core::result<std::unique_ptr<actor>> active_actor(const subject &of, world &place);

}  // namespace moorage::check
