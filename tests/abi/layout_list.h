/* layout_list.h - every struct, constant and id of the ABI, as a list to be expanded (no guard);
 * made from sdk/include/moorage by tools/abi_tables; do not edit.
 *
 * STRUCT opens a struct, FIELD names its fields in order, END closes it. The expansion checks that
 * the fields touch each other and fill the struct.
 */
/* base.h */
STRUCT(moorage_residency)
    FIELD(size) FIELD(flags) FIELD(layers) FIELD(experts) FIELD(pools) FIELD(store)
    FIELD(host_state) FIELD(host_slots) FIELD(host_used) FIELD(host_split) FIELD(host_below)
    FIELD(host_above)
END
STRUCT(moorage_costs)
    FIELD(size) FIELD(flags) FIELD(expert_bytes) FIELD(load_ns) FIELD(transfer_issue_ns)
    FIELD(attention_ns) FIELD(gpu_expert_ns) FIELD(gpu_token_ns) FIELD(cpu_expert_ns)
    FIELD(cpu_token_ns) FIELD(head_ns) FIELD(disk_read_ns)
END
/* host.h */
STRUCT(moorage_host)
    FIELD(size) FIELD(flags) FIELD(abi_major) FIELD(abi_minor) FIELD(host_data) FIELD(get_service)
    FIELD(set_error)
END
STRUCT(moorage_log)
    FIELD(size) FIELD(flags) FIELD(write)
END
STRUCT(moorage_thread_check)
    FIELD(size) FIELD(flags) FIELD(in_control) FIELD(in_step)
END
STRUCT(moorage_clock)
    FIELD(size) FIELD(flags) FIELD(now_ns)
END
STRUCT(moorage_random)
    FIELD(size) FIELD(flags) FIELD(next)
END
STRUCT(moorage_residency_service)
    FIELD(size) FIELD(flags) FIELD(view)
END
STRUCT(moorage_costs_service)
    FIELD(size) FIELD(flags) FIELD(view)
END
STRUCT(moorage_future)
    FIELD(size) FIELD(flags) FIELD(next_use)
END
/* machine.h */
STRUCT(moorage_store)
    FIELD(size) FIELD(kind) FIELD(slots) FIELD(versions)
END
STRUCT(moorage_device)
    FIELD(size) FIELD(kind) FIELD(store) FIELD(distance)
END
STRUCT(moorage_link)
    FIELD(size) FIELD(from) FIELD(to) FIELD(reserved) FIELD(bytes_per_s)
END
/* module.h */
STRUCT(moorage_param)
    FIELD(size) FIELD(type) FIELD(plugin_key) FIELD(plugin_help) FIELD(integer_default)
    FIELD(integer_min) FIELD(integer_max) FIELD(real_default) FIELD(real_min) FIELD(real_max)
    FIELD(plugin_text_default) FIELD(plugin_text_choices)
END
STRUCT(moorage_value)
    FIELD(size) FIELD(type) FIELD(integer) FIELD(real) FIELD(host_text)
END
STRUCT(moorage_descriptor)
    FIELD(size) FIELD(flags) FIELD(plugin_name) FIELD(plugin_version) FIELD(plugin_summary)
    FIELD(plugin_source) FIELD(plugin_kinds) FIELD(plugin_params) FIELD(kind_count)
    FIELD(param_count) FIELD(needs) FIELD(method_params)
END
STRUCT(moorage_limits)
    FIELD(size) FIELD(flags) FIELD(layers) FIELD(experts) FIELD(top_k) FIELD(tokens_max)
    FIELD(requests_max) FIELD(pools) FIELD(slots) FIELD(buffer_slots) FIELD(segments)
    FIELD(predictions_max) FIELD(hidden_size) FIELD(transfers_max) FIELD(stores) FIELD(devices)
    FIELD(links) FIELD(reserved) FIELD(expert_bytes) FIELD(host_stores) FIELD(host_devices)
    FIELD(host_links)
END
STRUCT(moorage_plugin)
    FIELD(size) FIELD(flags) FIELD(plugin_data) FIELD(destroy) FIELD(activate) FIELD(deactivate)
    FIELD(reset) FIELD(get_interface)
END
STRUCT(moorage_module)
    FIELD(size) FIELD(flags) FIELD(abi_major) FIELD(abi_minor) FIELD(plugin_id)
    FIELD(plugin_version) FIELD(descriptor_count) FIELD(abi_minor_needed) FIELD(init) FIELD(deinit)
    FIELD(descriptor) FIELD(create)
END
STRUCT(moorage_fact)
    FIELD(plugin_name) FIELD(value)
END
STRUCT(moorage_facts)
    FIELD(size) FIELD(flags) FIELD(facts)
END
/* step.h */
STRUCT(moorage_step)
    FIELD(size) FIELD(flags) FIELD(index) FIELD(visit) FIELD(token) FIELD(layer) FIELD(phase)
    FIELD(token_count) FIELD(top_k) FIELD(experts) FIELD(distinct_count) FIELD(prediction_count)
    FIELD(hidden_size) FIELD(host_streams) FIELD(host_requests) FIELD(host_chosen)
    FIELD(host_weights) FIELD(host_classes) FIELD(host_gate_scores) FIELD(host_distinct)
    FIELD(host_distinct_tokens) FIELD(host_distinct_scores) FIELD(host_predicted)
    FIELD(host_token_ids) FIELD(host_positions) FIELD(host_hidden)
END
STRUCT(moorage_observer)
    FIELD(size) FIELD(flags) FIELD(observe)
END
/* router.h */
STRUCT(moorage_route)
    FIELD(size) FIELD(flags) FIELD(host_experts) FIELD(host_weights) FIELD(host_classes)
END
STRUCT(moorage_router)
    FIELD(size) FIELD(flags) FIELD(select)
END
/* cache.h */
STRUCT(moorage_room)
    FIELD(size) FIELD(flags) FIELD(pool) FIELD(layer) FIELD(count) FIELD(cause)
END
STRUCT(moorage_admission)
    FIELD(size) FIELD(flags) FIELD(page) FIELD(victim) FIELD(segments) FIELD(cause)
END
STRUCT(moorage_cache)
    FIELD(size) FIELD(flags) FIELD(victims) FIELD(admit) FIELD(on_load) FIELD(on_evict) FIELD(fill)
    FIELD(hold) FIELD(give_up)
END
STRUCT(moorage_replay)
    FIELD(size) FIELD(flags) FIELD(first_step) FIELD(first_visit) FIELD(first_token)
    FIELD(token_count) FIELD(rounds) FIELD(repeats) FIELD(width) FIELD(host_experts)
    FIELD(host_requests) FIELD(host_state) FIELD(host_used) FIELD(host_outcomes)
END
STRUCT(moorage_replayer)
    FIELD(size) FIELD(flags) FIELD(replay)
END
/* budget.h */
STRUCT(moorage_budget_request)
    FIELD(size) FIELD(flags) FIELD(layers) FIELD(experts) FIELD(slots) FIELD(segments) FIELD(token)
    FIELD(host_slots) FIELD(host_split) FIELD(idle) FIELD(split_step)
END
STRUCT(moorage_budget_plan)
    FIELD(size) FIELD(flags) FIELD(host_slots) FIELD(host_split) FIELD(gain_ns)
END
STRUCT(moorage_budget)
    FIELD(size) FIELD(flags) FIELD(plan) FIELD(interval)
END
/* prefetch.h */
STRUCT(moorage_forecast)
    FIELD(size) FIELD(flags) FIELD(target_count) FIELD(buffer_free) FIELD(window_ns)
    FIELD(backlog_ns) FIELD(host_layers) FIELD(host_offsets) FIELD(host_experts) FIELD(host_scores)
    FIELD(token_count) FIELD(token_predictions) FIELD(host_token_experts) FIELD(host_token_scores)
END
STRUCT(moorage_orders)
    FIELD(size) FIELD(flags) FIELD(capacity) FIELD(reserved) FIELD(host_pages) FIELD(host_segments)
    FIELD(host_places) FIELD(host_versions)
END
STRUCT(moorage_prefetch_outcome)
    FIELD(size) FIELD(flags) FIELD(layer) FIELD(used) FIELD(late) FIELD(wasted) FIELD(cut_off)
    FIELD(reserved) FIELD(wasted_bytes)
END
STRUCT(moorage_prefetch)
    FIELD(size) FIELD(flags) FIELD(horizon) FIELD(predict) FIELD(plan) FIELD(outcome)
    FIELD(prediction)
END
/* dispatch.h */
STRUCT(moorage_items)
    FIELD(size) FIELD(flags) FIELD(count) FIELD(devices) FIELD(gpus) FIELD(reserved)
    FIELD(host_devices) FIELD(load_backlog_ns) FIELD(behind_backlog_ns) FIELD(host_experts)
    FIELD(host_tokens) FIELD(host_missing) FIELD(host_scores) FIELD(host_device) FIELD(host_load_ns)
    FIELD(host_gpu_ns) FIELD(host_cpu_ns) FIELD(host_remote_first) FIELD(host_remote_devices)
    FIELD(host_remote_ns) FIELD(host_once_ns) FIELD(host_device_backlog_ns)
    FIELD(host_device_once_ns)
END
STRUCT(moorage_dispatched)
    FIELD(size) FIELD(flags) FIELD(layer) FIELD(expert) FIELD(device) FIELD(tokens) FIELD(load_ns)
    FIELD(run_ns)
END
STRUCT(moorage_dispatch)
    FIELD(size) FIELD(flags) FIELD(assign) FIELD(outcome)
END
/* placement.h */
STRUCT(moorage_cluster)
    FIELD(size) FIELD(flags) FIELD(servers) FIELD(devices) FIELD(homes) FIELD(models)
    FIELD(host_device_server) FIELD(host_device_bytes) FIELD(host_device_load_bytes_per_s)
    FIELD(host_device_call_s) FIELD(host_device_token_s) FIELD(host_link_bytes_per_s)
    FIELD(host_link_s) FIELD(host_cloud_up_bytes_per_s) FIELD(host_cloud_down_bytes_per_s)
    FIELD(host_cloud_s) FIELD(host_cloud_call_s) FIELD(host_home_server)
    FIELD(host_home_up_bytes_per_s) FIELD(host_home_down_bytes_per_s) FIELD(host_home_call_s)
END
STRUCT(moorage_demand)
    FIELD(size) FIELD(flags) FIELD(models) FIELD(homes) FIELD(host_model_first)
    FIELD(host_model_layers) FIELD(host_model_experts) FIELD(host_model_top_k)
    FIELD(host_model_groups) FIELD(host_expert_bytes) FIELD(host_hidden_bytes)
    FIELD(host_home_tokens_per_s) FIELD(host_home_batch) FIELD(host_home_model)
    FIELD(host_frequency) FIELD(calls) FIELD(host_home_first_call) FIELD(host_call_group)
    FIELD(host_call_share) FIELD(groups) FIELD(host_group_first) FIELD(host_group_experts)
    FIELD(host_home_holds) FIELD(window_s) FIELD(host_home_single_share)
END
STRUCT(moorage_copy)
    FIELD(expert) FIELD(device)
END
STRUCT(moorage_move)
    FIELD(size) FIELD(flags) FIELD(host_cluster) FIELD(host_demand) FIELD(host_current)
    FIELD(current_count) FIELD(host_candidate) FIELD(candidate_count) FIELD(added_copies)
    FIELD(added_bytes) FIELD(removed_copies) FIELD(added_s) FIELD(removed_s)
    FIELD(remote_per_s_current) FIELD(remote_per_s_candidate) FIELD(remote_call_s) FIELD(interval_s)
END
STRUCT(moorage_placement)
    FIELD(size) FIELD(flags) FIELD(plan) FIELD(adopt)
END
/* transport.h */
STRUCT(moorage_transfer)
    FIELD(size) FIELD(flags) FIELD(id) FIELD(link) FIELD(cause) FIELD(page) FIELD(bytes)
END
STRUCT(moorage_piece)
    FIELD(size) FIELD(id) FIELD(bytes)
END
STRUCT(moorage_transport)
    FIELD(size) FIELD(flags) FIELD(submit) FIELD(cancel) FIELD(promote) FIELD(next)
END
/* wire.h */
STRUCT(moorage_wire_limits)
    FIELD(size) FIELD(flags) FIELD(connections_max) FIELD(handshakes_max) FIELD(handshakes_per_s)
    FIELD(queue_messages_max) FIELD(message_bytes_max) FIELD(queue_bytes_max)
    FIELD(receive_bytes_max) FIELD(connect_ns) FIELD(close_ns)
END
STRUCT(moorage_wire_target)
    FIELD(size) FIELD(channel) FIELD(host_addresses) FIELD(address_count) FIELD(reserved)
    FIELD(host_identity)
END
STRUCT(moorage_wire_part)
    FIELD(host_data) FIELD(bytes) FIELD(memory)
END
STRUCT(moorage_wire_event)
    FIELD(kind) FIELD(channel) FIELD(reason) FIELD(flags) FIELD(connection) FIELD(listener)
    FIELD(user) FIELD(message) FIELD(plugin_data) FIELD(bytes) FIELD(plugin_identity)
    FIELD(plugin_address) FIELD(plugin_text) FIELD(count) FIELD(reserved)
END
STRUCT(moorage_wire)
    FIELD(size) FIELD(flags) FIELD(open) FIELD(listen) FIELD(connect) FIELD(send) FIELD(poll)
    FIELD(wake) FIELD(release) FIELD(close) FIELD(pace) FIELD(remember) FIELD(forget)
END
CONSTANT(MOORAGE_ABI_MAJOR) CONSTANT(MOORAGE_ABI_MINOR) CONSTANT(MOORAGE_NONE)
CONSTANT(MOORAGE_NEVER) CONSTANT(MOORAGE_WHOLE) CONSTANT(MOORAGE_STATE_RESIDENT)
CONSTANT(MOORAGE_STATE_IN_FLIGHT) CONSTANT(MOORAGE_STATE_IN_FLIGHT_SHIFT)
CONSTANT(MOORAGE_STATE_BUFFERED) CONSTANT(MOORAGE_STATE_BUFFERED_SHIFT)
CONSTANT(MOORAGE_STATE_VERSION) CONSTANT(MOORAGE_STATE_VERSION_SHIFT) CONSTANT(MOORAGE_STATE_PINNED)
CONSTANT(MOORAGE_OK) CONSTANT(MOORAGE_INVALID_ARGUMENT) CONSTANT(MOORAGE_UNSUPPORTED)
CONSTANT(MOORAGE_OUT_OF_MEMORY) CONSTANT(MOORAGE_WRONG_STATE) CONSTANT(MOORAGE_INTERNAL)
CONSTANT(MOORAGE_DEMAND) CONSTANT(MOORAGE_PREFETCH) CONSTANT(MOORAGE_BUDGET)
CONSTANT(MOORAGE_MIGRATION) CONSTANT(MOORAGE_ADVICE) CONSTANT(MOORAGE_PREFILL)
CONSTANT(MOORAGE_DECODE) CONSTANT(MOORAGE_DRAFT) CONSTANT(MOORAGE_VERIFY)
CONSTANT(MOORAGE_LOG_DEBUG) CONSTANT(MOORAGE_LOG_INFO) CONSTANT(MOORAGE_LOG_WARNING)
CONSTANT(MOORAGE_LOG_ERROR) CONSTANT(MOORAGE_STORE_FAST) CONSTANT(MOORAGE_STORE_HOST)
CONSTANT(MOORAGE_STORE_DISK) CONSTANT(MOORAGE_STORE_SERVER) CONSTANT(MOORAGE_DEVICE_GPU)
CONSTANT(MOORAGE_DEVICE_CPU) CONSTANT(MOORAGE_DEVICE_SERVER) CONSTANT(MOORAGE_DISTANCE_OWN)
CONSTANT(MOORAGE_DISTANCE_OTHER) CONSTANT(MOORAGE_DISTANCE_CLOUD) CONSTANT(MOORAGE_PARAM_INTEGER)
CONSTANT(MOORAGE_PARAM_REAL) CONSTANT(MOORAGE_PARAM_FLAG) CONSTANT(MOORAGE_PARAM_TEXT)
CONSTANT(MOORAGE_NEEDS_GATE_SCORES) CONSTANT(MOORAGE_NEEDS_WEIGHTS)
CONSTANT(MOORAGE_NEEDS_PREDICTIONS) CONSTANT(MOORAGE_NEEDS_FUTURE) CONSTANT(MOORAGE_NEEDS_PER_LAYER)
CONSTANT(MOORAGE_NEEDS_LAYER_BUFFER) CONSTANT(MOORAGE_NEEDS_SERVERS) CONSTANT(MOORAGE_POLICY_LOSSY)
CONSTANT(MOORAGE_POLICY_RANDOMISED) CONSTANT(MOORAGE_POLICY_SEGMENTS)
CONSTANT(MOORAGE_POLICY_HIDDEN) CONSTANT(MOORAGE_CLASS_TOP) CONSTANT(MOORAGE_CLASS_LOW)
CONSTANT(MOORAGE_CLASS_SUBSTITUTE) CONSTANT(MOORAGE_CLASS_DROPPED) CONSTANT(MOORAGE_CLASS_SMALL)
CONSTANT(MOORAGE_ROUTE_RENORMALISE) CONSTANT(MOORAGE_REPLAY_KEPT) CONSTANT(MOORAGE_REPLAY_BYPASS)
CONSTANT(MOORAGE_REPLAY_DERIVED) CONSTANT(MOORAGE_PLACE_BUFFER) CONSTANT(MOORAGE_PLACE_SLOT)
CONSTANT(MOORAGE_PLACE_HOST) CONSTANT(MOORAGE_ORDERS_COMPLETE) CONSTANT(MOORAGE_FROM_ACTIVATION)
CONSTANT(MOORAGE_FROM_RESIDENT) CONSTANT(MOORAGE_AND_LOAD) CONSTANT(MOORAGE_ITEMS_SERIAL)
CONSTANT(MOORAGE_CALLS_SERIAL) CONSTANT(MOORAGE_RETURNS_EACH) CONSTANT(MOORAGE_LINKS_SHARED)
CONSTANT(MOORAGE_WIRE_CHANNELS) CONSTANT(MOORAGE_WIRE_PARTS_MAX) CONSTANT(MOORAGE_WIRE_ADDRESS_MAX)
CONSTANT(MOORAGE_WIRE_CALLS) CONSTANT(MOORAGE_WIRE_BULK) CONSTANT(MOORAGE_WIRE_DONE)
CONSTANT(MOORAGE_WIRE_TAKEN) CONSTANT(MOORAGE_WIRE_FULL) CONSTANT(MOORAGE_WIRE_GONE)
CONSTANT(MOORAGE_WIRE_REFUSED) CONSTANT(MOORAGE_WIRE_CONNECTED) CONSTANT(MOORAGE_WIRE_ACCEPTED)
CONSTANT(MOORAGE_WIRE_MESSAGE) CONSTANT(MOORAGE_WIRE_SENT) CONSTANT(MOORAGE_WIRE_WRITABLE)
CONSTANT(MOORAGE_WIRE_CLOSED) CONSTANT(MOORAGE_WIRE_TURNED_AWAY) CONSTANT(MOORAGE_WIRE_BY_HOST)
CONSTANT(MOORAGE_WIRE_BY_PEER) CONSTANT(MOORAGE_WIRE_LOST) CONSTANT(MOORAGE_WIRE_UNREACHABLE)
CONSTANT(MOORAGE_WIRE_STRANGER) CONSTANT(MOORAGE_WIRE_MALFORMED) CONSTANT(MOORAGE_WIRE_TOO_LONG)
CONSTANT(MOORAGE_WIRE_TOO_MANY) CONSTANT(MOORAGE_WIRE_TOO_SLOW) CONSTANT(MOORAGE_WIRE_SECURE)
ID(MOORAGE_SERVICE_LOG) ID(MOORAGE_SERVICE_THREAD_CHECK) ID(MOORAGE_SERVICE_CLOCK)
ID(MOORAGE_SERVICE_RANDOM) ID(MOORAGE_SERVICE_RESIDENCY) ID(MOORAGE_SERVICE_COSTS)
ID(MOORAGE_SERVICE_FUTURE) ID(MOORAGE_MODULE_SYMBOL) ID(MOORAGE_INTERFACE_FACTS)
ID(MOORAGE_INTERFACE_OBSERVER) ID(MOORAGE_INTERFACE_ROUTER) ID(MOORAGE_INTERFACE_CACHE)
ID(MOORAGE_INTERFACE_REPLAY) ID(MOORAGE_INTERFACE_BUDGET) ID(MOORAGE_INTERFACE_PREFETCH)
ID(MOORAGE_INTERFACE_DISPATCH) ID(MOORAGE_INTERFACE_PLACEMENT) ID(MOORAGE_INTERFACE_TRANSPORT)
ID(MOORAGE_INTERFACE_WIRE)
