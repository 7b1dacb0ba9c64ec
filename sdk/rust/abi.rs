// abi.rs - structs, constants and ids of the C headers in Rust; moorage.rs includes it;
// made from sdk/include/moorage by tools/abi_tables; do not edit.
//
// The headers explain every field. Ids end with a NUL.

macro_rules! mirror {
    ($(struct $name:ident { $($field:ident : $type:ty),* $(,)? })*) => {$(
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub struct $name { $(pub $field: $type),* }
    )*};
}

mirror! {
    // base.h
    struct moorage_residency {
        size: u32,
        flags: u32,
        layers: u32,
        experts: u32,
        pools: u32,
        store: u32,
        host_state: *const u32,
        host_slots: *const u32,
        host_used: *const u32,
        host_split: *const f32,
        host_below: *const moorage_residency,
        host_above: *const moorage_residency,
    }
    struct moorage_costs {
        size: u32,
        flags: u32,
        expert_bytes: u64,
        load_ns: u64,
        transfer_issue_ns: u64,
        attention_ns: u64,
        gpu_expert_ns: u64,
        gpu_token_ns: u64,
        cpu_expert_ns: u64,
        cpu_token_ns: u64,
        head_ns: u64,
        disk_read_ns: u64,
    }
    // host.h
    struct moorage_host {
        size: u32,
        flags: u32,
        abi_major: u32,
        abi_minor: u32,
        host_data: *mut c_void,
        get_service: Option<unsafe extern "C" fn(*const moorage_host, *const c_char) -> *const
            c_void>,
        set_error: Option<unsafe extern "C" fn(*const moorage_host, *const c_char)>,
    }
    struct moorage_log {
        size: u32,
        flags: u32,
        write: Option<unsafe extern "C" fn(*const moorage_host, i32, *const c_char)>,
    }
    struct moorage_thread_check {
        size: u32,
        flags: u32,
        in_control: Option<unsafe extern "C" fn(*const moorage_host) -> u32>,
        in_step: Option<unsafe extern "C" fn(*const moorage_host) -> u32>,
    }
    struct moorage_clock {
        size: u32,
        flags: u32,
        now_ns: Option<unsafe extern "C" fn(*const moorage_host) -> u64>,
    }
    struct moorage_random {
        size: u32,
        flags: u32,
        next: Option<unsafe extern "C" fn(*const moorage_host) -> u64>,
    }
    struct moorage_residency_service {
        size: u32,
        flags: u32,
        view: Option<unsafe extern "C" fn(*const moorage_host) -> *const moorage_residency>,
    }
    struct moorage_costs_service {
        size: u32,
        flags: u32,
        view: Option<unsafe extern "C" fn(*const moorage_host) -> *const moorage_costs>,
    }
    struct moorage_future {
        size: u32,
        flags: u32,
        next_use: Option<unsafe extern "C" fn(*const moorage_host, u32, u64, *mut u64) -> u64>,
    }
    // machine.h
    struct moorage_store {
        size: u32,
        kind: i32,
        slots: u32,
        versions: u32,
    }
    struct moorage_device {
        size: u32,
        kind: i32,
        store: u32,
        distance: u32,
    }
    struct moorage_link {
        size: u32,
        from: u32,
        to: u32,
        reserved: u32,
        bytes_per_s: f64,
    }
    // module.h
    struct moorage_param {
        size: u32,
        r#type: i32,
        plugin_key: *const c_char,
        plugin_help: *const c_char,
        integer_default: i64,
        integer_min: i64,
        integer_max: i64,
        real_default: f64,
        real_min: f64,
        real_max: f64,
        plugin_text_default: *const c_char,
        plugin_text_choices: *const c_char,
    }
    struct moorage_value {
        size: u32,
        r#type: i32,
        integer: i64,
        real: f64,
        host_text: *const c_char,
    }
    struct moorage_descriptor {
        size: u32,
        flags: u32,
        plugin_name: *const c_char,
        plugin_version: *const c_char,
        plugin_summary: *const c_char,
        plugin_source: *const c_char,
        plugin_kinds: *const *const c_char,
        plugin_params: *const moorage_param,
        kind_count: u32,
        param_count: u32,
        needs: u32,
        method_params: u32,
    }
    struct moorage_limits {
        size: u32,
        flags: u32,
        layers: u32,
        experts: u32,
        top_k: u32,
        tokens_max: u32,
        requests_max: u32,
        pools: u32,
        slots: u32,
        buffer_slots: u32,
        segments: u32,
        predictions_max: u32,
        hidden_size: u32,
        transfers_max: u32,
        stores: u32,
        devices: u32,
        links: u32,
        reserved: u32,
        expert_bytes: u64,
        host_stores: *const moorage_store,
        host_devices: *const moorage_device,
        host_links: *const moorage_link,
    }
    struct moorage_plugin {
        size: u32,
        flags: u32,
        plugin_data: *mut c_void,
        destroy: Option<unsafe extern "C" fn(*mut moorage_plugin)>,
        activate: Option<unsafe extern "C" fn(*mut moorage_plugin, *const moorage_limits) -> i32>,
        deactivate: Option<unsafe extern "C" fn(*mut moorage_plugin)>,
        reset: Option<unsafe extern "C" fn(*mut moorage_plugin)>,
        get_interface: Option<unsafe extern "C" fn(*mut moorage_plugin, *const c_char) -> *const
            c_void>,
    }
    struct moorage_module {
        size: u32,
        flags: u32,
        abi_major: u32,
        abi_minor: u32,
        plugin_id: *const c_char,
        plugin_version: *const c_char,
        descriptor_count: u32,
        abi_minor_needed: u32,
        init: Option<unsafe extern "C" fn(*const moorage_host) -> i32>,
        deinit: Option<unsafe extern "C" fn()>,
        descriptor: Option<unsafe extern "C" fn(u32) -> *const moorage_descriptor>,
        create: Option<unsafe extern "C" fn(*const c_char, *const moorage_host, *const
            moorage_value, u32, *mut *mut moorage_plugin) -> i32>,
    }
    struct moorage_fact {
        plugin_name: *const c_char,
        value: f64,
    }
    struct moorage_facts {
        size: u32,
        flags: u32,
        facts: Option<unsafe extern "C" fn(*mut moorage_plugin, *mut moorage_fact, u32) -> u32>,
    }
    // step.h
    struct moorage_step {
        size: u32,
        flags: u32,
        index: u64,
        visit: u64,
        token: u64,
        layer: u32,
        phase: i32,
        token_count: u32,
        top_k: u32,
        experts: u32,
        distinct_count: u32,
        prediction_count: u32,
        hidden_size: u32,
        host_streams: *const u32,
        host_requests: *const u64,
        host_chosen: *const u32,
        host_weights: *const f32,
        host_classes: *const u8,
        host_gate_scores: *const f32,
        host_distinct: *const u32,
        host_distinct_tokens: *const u32,
        host_distinct_scores: *const f32,
        host_predicted: *const u32,
        host_token_ids: *const i32,
        host_positions: *const u32,
        host_hidden: *const f32,
    }
    struct moorage_observer {
        size: u32,
        flags: u32,
        observe: Option<unsafe extern "C" fn(*mut moorage_plugin, *const moorage_step)>,
    }
    // router.h
    struct moorage_route {
        size: u32,
        flags: u32,
        host_experts: *mut u32,
        host_weights: *mut f32,
        host_classes: *mut u8,
    }
    struct moorage_router {
        size: u32,
        flags: u32,
        select: Option<unsafe extern "C" fn(*mut moorage_plugin, *const moorage_step, *mut
            moorage_route) -> u32>,
    }
    // cache.h
    struct moorage_room {
        size: u32,
        flags: u32,
        pool: u32,
        layer: u32,
        count: u32,
        cause: i32,
    }
    struct moorage_admission {
        size: u32,
        flags: u32,
        page: u32,
        victim: u32,
        segments: u32,
        cause: i32,
    }
    struct moorage_cache {
        size: u32,
        flags: u32,
        victims: Option<unsafe extern "C" fn(*mut moorage_plugin, *const moorage_room, *mut u32) ->
            u32>,
        admit: Option<unsafe extern "C" fn(*mut moorage_plugin, *const moorage_admission) -> u32>,
        on_load: Option<unsafe extern "C" fn(*mut moorage_plugin, u32, u32, i32)>,
        on_evict: Option<unsafe extern "C" fn(*mut moorage_plugin, u32, i32)>,
        fill: Option<unsafe extern "C" fn(*mut moorage_plugin, *const moorage_room, *mut u32) ->
            u32>,
        hold: Option<unsafe extern "C" fn(*mut moorage_plugin, u32) -> u32>,
        give_up: Option<unsafe extern "C" fn(*mut moorage_plugin, *const moorage_room, *mut u32) ->
            u32>,
    }
    struct moorage_replay {
        size: u32,
        flags: u32,
        first_step: u64,
        first_visit: u64,
        first_token: u64,
        token_count: u32,
        rounds: u32,
        repeats: u32,
        width: u32,
        host_experts: *const u32,
        host_requests: *const u64,
        host_state: *mut u32,
        host_used: *mut u32,
        host_outcomes: *mut u32,
    }
    struct moorage_replayer {
        size: u32,
        flags: u32,
        replay: Option<unsafe extern "C" fn(*mut moorage_plugin, *const moorage_replay)>,
    }
    // budget.h
    struct moorage_budget_request {
        size: u32,
        flags: u32,
        layers: u32,
        experts: u32,
        slots: u32,
        segments: u32,
        token: u64,
        host_slots: *const u32,
        host_split: *const f32,
        idle: u32,
        split_step: f32,
    }
    struct moorage_budget_plan {
        size: u32,
        flags: u32,
        host_slots: *mut u32,
        host_split: *mut f32,
        gain_ns: f64,
    }
    struct moorage_budget {
        size: u32,
        flags: u32,
        plan: Option<unsafe extern "C" fn(*mut moorage_plugin, *const moorage_budget_request, *mut
            moorage_budget_plan) -> u32>,
        interval: Option<unsafe extern "C" fn(*mut moorage_plugin) -> u64>,
    }
    // prefetch.h
    struct moorage_forecast {
        size: u32,
        flags: u32,
        target_count: u32,
        buffer_free: u32,
        window_ns: u64,
        backlog_ns: u64,
        host_layers: *const u32,
        host_offsets: *const u32,
        host_experts: *const u32,
        host_scores: *const f32,
        token_count: u32,
        token_predictions: u32,
        host_token_experts: *const u32,
        host_token_scores: *const f32,
    }
    struct moorage_orders {
        size: u32,
        flags: u32,
        capacity: u32,
        reserved: u32,
        host_pages: *mut u32,
        host_segments: *mut u8,
        host_places: *mut u8,
        host_versions: *mut u8,
    }
    struct moorage_prefetch_outcome {
        size: u32,
        flags: u32,
        layer: u32,
        used: u32,
        late: u32,
        wasted: u32,
        cut_off: u32,
        reserved: u32,
        wasted_bytes: u64,
    }
    struct moorage_prefetch {
        size: u32,
        flags: u32,
        horizon: Option<unsafe extern "C" fn(*mut moorage_plugin) -> u32>,
        predict: Option<unsafe extern "C" fn(*mut moorage_plugin, *const moorage_step, u32, u32,
            u32, *mut u32, *mut f32) -> u32>,
        plan: Option<unsafe extern "C" fn(*mut moorage_plugin, *const moorage_step, *const
            moorage_forecast, *mut moorage_orders) -> u32>,
        outcome: Option<unsafe extern "C" fn(*mut moorage_plugin, *const moorage_prefetch_outcome)>,
        prediction: Option<unsafe extern "C" fn(*mut moorage_plugin) -> u32>,
    }
    // dispatch.h
    struct moorage_items {
        size: u32,
        flags: u32,
        count: u32,
        devices: u32,
        gpus: u32,
        reserved: u32,
        host_devices: *const moorage_device,
        load_backlog_ns: u64,
        behind_backlog_ns: u64,
        host_experts: *const u32,
        host_tokens: *const u32,
        host_missing: *const u8,
        host_scores: *const f32,
        host_device: *const u32,
        host_load_ns: *const u64,
        host_gpu_ns: *const u64,
        host_cpu_ns: *const u64,
        host_remote_first: *const u32,
        host_remote_devices: *const u32,
        host_remote_ns: *const u64,
        host_once_ns: *const u64,
        host_device_backlog_ns: *const u64,
        host_device_once_ns: *const u64,
    }
    struct moorage_dispatched {
        size: u32,
        flags: u32,
        layer: u32,
        expert: u32,
        device: u32,
        tokens: u32,
        load_ns: u64,
        run_ns: u64,
    }
    struct moorage_dispatch {
        size: u32,
        flags: u32,
        assign: Option<unsafe extern "C" fn(*mut moorage_plugin, *const moorage_step, *const
            moorage_items, *mut u32, *mut u32) -> u32>,
        outcome: Option<unsafe extern "C" fn(*mut moorage_plugin, *const moorage_dispatched)>,
    }
    // placement.h
    struct moorage_cluster {
        size: u32,
        flags: u32,
        servers: u32,
        devices: u32,
        homes: u32,
        models: u32,
        host_device_server: *const u32,
        host_device_bytes: *const u64,
        host_device_load_bytes_per_s: *const f64,
        host_device_call_s: *const f64,
        host_device_token_s: *const f64,
        host_link_bytes_per_s: *const f64,
        host_link_s: *const f64,
        host_cloud_up_bytes_per_s: *const f64,
        host_cloud_down_bytes_per_s: *const f64,
        host_cloud_s: *const f64,
        host_cloud_call_s: *const f64,
        host_home_server: *const u32,
        host_home_up_bytes_per_s: *const f64,
        host_home_down_bytes_per_s: *const f64,
        host_home_call_s: *const f64,
    }
    struct moorage_demand {
        size: u32,
        flags: u32,
        models: u32,
        homes: u32,
        host_model_first: *const u32,
        host_model_layers: *const u32,
        host_model_experts: *const u32,
        host_model_top_k: *const u32,
        host_model_groups: *const u32,
        host_expert_bytes: *const u64,
        host_hidden_bytes: *const u64,
        host_home_tokens_per_s: *const f64,
        host_home_batch: *const f64,
        host_home_model: *const f64,
        host_frequency: *const f64,
        calls: u64,
        host_home_first_call: *const u64,
        host_call_group: *const u32,
        host_call_share: *const f64,
        groups: u64,
        host_group_first: *const u64,
        host_group_experts: *const u32,
        host_home_holds: *const u8,
        window_s: f64,
        host_home_single_share: *const f64,
    }
    struct moorage_copy {
        expert: u32,
        device: u32,
    }
    struct moorage_move {
        size: u32,
        flags: u32,
        host_cluster: *const moorage_cluster,
        host_demand: *const moorage_demand,
        host_current: *const moorage_copy,
        current_count: u64,
        host_candidate: *const moorage_copy,
        candidate_count: u64,
        added_copies: u64,
        added_bytes: u64,
        removed_copies: u64,
        added_s: f64,
        removed_s: f64,
        remote_per_s_current: f64,
        remote_per_s_candidate: f64,
        remote_call_s: f64,
        interval_s: f64,
    }
    struct moorage_placement {
        size: u32,
        flags: u32,
        plan: Option<unsafe extern "C" fn(*mut moorage_plugin, *const moorage_cluster, *const
            moorage_demand, *const moorage_copy, u64, *mut moorage_copy, *mut u64) -> i32>,
        adopt: Option<unsafe extern "C" fn(*mut moorage_plugin, *const moorage_move) -> u32>,
    }
    // transport.h
    struct moorage_transfer {
        size: u32,
        flags: u32,
        id: u32,
        link: u32,
        cause: i32,
        page: u32,
        bytes: u64,
    }
    struct moorage_piece {
        size: u32,
        id: u32,
        bytes: u64,
    }
    struct moorage_transport {
        size: u32,
        flags: u32,
        submit: Option<unsafe extern "C" fn(*mut moorage_plugin, *const moorage_transfer)>,
        cancel: Option<unsafe extern "C" fn(*mut moorage_plugin, u32)>,
        promote: Option<unsafe extern "C" fn(*mut moorage_plugin, u32, i32)>,
        next: Option<unsafe extern "C" fn(*mut moorage_plugin, u32, *mut moorage_piece) -> u32>,
    }
    // wire.h
    struct moorage_wire_limits {
        size: u32,
        flags: u32,
        connections_max: u32,
        handshakes_max: u32,
        handshakes_per_s: u32,
        queue_messages_max: u32,
        message_bytes_max: [u64; 2],
        queue_bytes_max: u64,
        receive_bytes_max: u64,
        connect_ns: u64,
        close_ns: u64,
    }
    struct moorage_wire_target {
        size: u32,
        channel: i32,
        host_addresses: *const *const c_char,
        address_count: u32,
        reserved: u32,
        host_identity: *const c_char,
    }
    struct moorage_wire_part {
        host_data: *const c_void,
        bytes: u64,
        memory: u64,
    }
    struct moorage_wire_event {
        kind: i32,
        channel: i32,
        reason: i32,
        flags: u32,
        connection: u64,
        listener: u64,
        user: u64,
        message: u64,
        plugin_data: *const c_void,
        bytes: u64,
        plugin_identity: *const c_char,
        plugin_address: *const c_char,
        plugin_text: *const c_char,
        count: u32,
        reserved: u32,
    }
    struct moorage_wire {
        size: u32,
        flags: u32,
        open: Option<unsafe extern "C" fn(*mut moorage_plugin, *const moorage_wire_limits) -> i32>,
        listen: Option<unsafe extern "C" fn(*mut moorage_plugin, *const c_char, *mut c_char, *mut
            u64) -> i32>,
        connect: Option<unsafe extern "C" fn(*mut moorage_plugin, *const moorage_wire_target, *mut
            u64) -> i32>,
        send: Option<unsafe extern "C" fn(*mut moorage_plugin, u64, *const moorage_wire_part, u32,
            u64) -> u32>,
        poll: Option<unsafe extern "C" fn(*mut moorage_plugin, *mut moorage_wire_event, u32, u64) ->
            u32>,
        wake: Option<unsafe extern "C" fn(*mut moorage_plugin)>,
        release: Option<unsafe extern "C" fn(*mut moorage_plugin, u64)>,
        close: Option<unsafe extern "C" fn(*mut moorage_plugin, u64, u32)>,
        pace: Option<unsafe extern "C" fn(*mut moorage_plugin, u64, u64)>,
        remember: Option<unsafe extern "C" fn(*mut moorage_plugin, *const c_void, u64, *mut u64) ->
            i32>,
        forget: Option<unsafe extern "C" fn(*mut moorage_plugin, u64)>,
    }
}

pub const MOORAGE_ABI_MAJOR: u32 = 2;
pub const MOORAGE_ABI_MINOR: u32 = 1;
pub const MOORAGE_NONE: u32 = u32::MAX;
pub const MOORAGE_WHOLE: u32 = 0xff;
pub const MOORAGE_STATE_RESIDENT: u32 = 0x000000ff;
pub const MOORAGE_STATE_IN_FLIGHT: u32 = 0x0000ff00;
pub const MOORAGE_STATE_IN_FLIGHT_SHIFT: u32 = 8;
pub const MOORAGE_STATE_BUFFERED: u32 = 0x00ff0000;
pub const MOORAGE_STATE_BUFFERED_SHIFT: u32 = 16;
pub const MOORAGE_STATE_VERSION: u32 = 0x0f000000;
pub const MOORAGE_STATE_VERSION_SHIFT: u32 = 24;
pub const MOORAGE_STATE_PINNED: u32 = 0x80000000;
pub const MOORAGE_DISTANCE_OWN: u32 = 0;
pub const MOORAGE_DISTANCE_OTHER: u32 = 1;
pub const MOORAGE_DISTANCE_CLOUD: u32 = 2;
pub const MOORAGE_NEEDS_GATE_SCORES: u32 = 1;
pub const MOORAGE_NEEDS_WEIGHTS: u32 = 2;
pub const MOORAGE_NEEDS_PREDICTIONS: u32 = 4;
pub const MOORAGE_NEEDS_FUTURE: u32 = 8;
pub const MOORAGE_NEEDS_PER_LAYER: u32 = 16;
pub const MOORAGE_NEEDS_LAYER_BUFFER: u32 = 32;
pub const MOORAGE_NEEDS_SERVERS: u32 = 64;
pub const MOORAGE_POLICY_LOSSY: u32 = 1;
pub const MOORAGE_POLICY_RANDOMISED: u32 = 2;
pub const MOORAGE_POLICY_SEGMENTS: u32 = 4;
pub const MOORAGE_POLICY_HIDDEN: u32 = 8;
pub const MOORAGE_ROUTE_RENORMALISE: u32 = 1;
pub const MOORAGE_REPLAY_KEPT: u32 = 0xffffffff;
pub const MOORAGE_REPLAY_BYPASS: u32 = 0xfffffffe;
pub const MOORAGE_REPLAY_DERIVED: u32 = 1;
pub const MOORAGE_AND_LOAD: u32 = 0x80000000;
pub const MOORAGE_ITEMS_SERIAL: u32 = 1;
pub const MOORAGE_CALLS_SERIAL: u32 = 1;
pub const MOORAGE_RETURNS_EACH: u32 = 2;
pub const MOORAGE_LINKS_SHARED: u32 = 4;
pub const MOORAGE_WIRE_CHANNELS: u32 = 2;
pub const MOORAGE_WIRE_PARTS_MAX: u32 = 64;
pub const MOORAGE_WIRE_ADDRESS_MAX: u32 = 256;
pub const MOORAGE_WIRE_DONE: u32 = 0;
pub const MOORAGE_WIRE_TAKEN: u32 = 1;
pub const MOORAGE_WIRE_FULL: u32 = 2;
pub const MOORAGE_WIRE_GONE: u32 = 3;
pub const MOORAGE_WIRE_REFUSED: u32 = 4;
pub const MOORAGE_WIRE_SECURE: u32 = 1;
pub const MOORAGE_NEVER: u64 = u64::MAX;
pub const MOORAGE_OK: i32 = 0;
pub const MOORAGE_INVALID_ARGUMENT: i32 = 1;
pub const MOORAGE_UNSUPPORTED: i32 = 2;
pub const MOORAGE_OUT_OF_MEMORY: i32 = 3;
pub const MOORAGE_WRONG_STATE: i32 = 4;
pub const MOORAGE_INTERNAL: i32 = 5;
pub const MOORAGE_DEMAND: i32 = 0;
pub const MOORAGE_PREFETCH: i32 = 1;
pub const MOORAGE_BUDGET: i32 = 2;
pub const MOORAGE_MIGRATION: i32 = 3;
pub const MOORAGE_ADVICE: i32 = 4;
pub const MOORAGE_PREFILL: i32 = 0;
pub const MOORAGE_DECODE: i32 = 1;
pub const MOORAGE_DRAFT: i32 = 2;
pub const MOORAGE_VERIFY: i32 = 3;
pub const MOORAGE_LOG_DEBUG: i32 = 0;
pub const MOORAGE_LOG_INFO: i32 = 1;
pub const MOORAGE_LOG_WARNING: i32 = 2;
pub const MOORAGE_LOG_ERROR: i32 = 3;
pub const MOORAGE_STORE_FAST: i32 = 0;
pub const MOORAGE_STORE_HOST: i32 = 1;
pub const MOORAGE_STORE_DISK: i32 = 2;
pub const MOORAGE_STORE_SERVER: i32 = 3;
pub const MOORAGE_DEVICE_GPU: i32 = 0;
pub const MOORAGE_DEVICE_CPU: i32 = 1;
pub const MOORAGE_DEVICE_SERVER: i32 = 2;
pub const MOORAGE_PARAM_INTEGER: i32 = 1;
pub const MOORAGE_PARAM_REAL: i32 = 2;
pub const MOORAGE_PARAM_FLAG: i32 = 3;
pub const MOORAGE_PARAM_TEXT: i32 = 4;
pub const MOORAGE_ORDERS_COMPLETE: i32 = 1;
pub const MOORAGE_FROM_ACTIVATION: i32 = 0;
pub const MOORAGE_FROM_RESIDENT: i32 = 1;
pub const MOORAGE_WIRE_CALLS: i32 = 0;
pub const MOORAGE_WIRE_BULK: i32 = 1;
pub const MOORAGE_WIRE_CONNECTED: i32 = 1;
pub const MOORAGE_WIRE_ACCEPTED: i32 = 2;
pub const MOORAGE_WIRE_MESSAGE: i32 = 3;
pub const MOORAGE_WIRE_SENT: i32 = 4;
pub const MOORAGE_WIRE_WRITABLE: i32 = 5;
pub const MOORAGE_WIRE_CLOSED: i32 = 6;
pub const MOORAGE_WIRE_TURNED_AWAY: i32 = 7;
pub const MOORAGE_WIRE_BY_HOST: i32 = 1;
pub const MOORAGE_WIRE_BY_PEER: i32 = 2;
pub const MOORAGE_WIRE_LOST: i32 = 3;
pub const MOORAGE_WIRE_UNREACHABLE: i32 = 4;
pub const MOORAGE_WIRE_STRANGER: i32 = 5;
pub const MOORAGE_WIRE_MALFORMED: i32 = 6;
pub const MOORAGE_WIRE_TOO_LONG: i32 = 7;
pub const MOORAGE_WIRE_TOO_MANY: i32 = 8;
pub const MOORAGE_WIRE_TOO_SLOW: i32 = 9;
pub const MOORAGE_SERVICE_LOG: &str = "moorage.host.log/1\0";
pub const MOORAGE_SERVICE_THREAD_CHECK: &str = "moorage.host.thread-check/1\0";
pub const MOORAGE_SERVICE_CLOCK: &str = "moorage.host.clock/1\0";
pub const MOORAGE_SERVICE_RANDOM: &str = "moorage.host.random/1\0";
pub const MOORAGE_SERVICE_RESIDENCY: &str = "moorage.host.residency/1\0";
pub const MOORAGE_SERVICE_COSTS: &str = "moorage.host.costs/1\0";
pub const MOORAGE_SERVICE_FUTURE: &str = "moorage.host.future/1\0";
pub const MOORAGE_MODULE_SYMBOL: &str = "moorage_module_v2\0";
pub const MOORAGE_INTERFACE_FACTS: &str = "moorage.facts/1\0";
pub const MOORAGE_INTERFACE_OBSERVER: &str = "moorage.observer/1\0";
pub const MOORAGE_INTERFACE_ROUTER: &str = "moorage.router/1\0";
pub const MOORAGE_INTERFACE_CACHE: &str = "moorage.cache/1\0";
pub const MOORAGE_INTERFACE_REPLAY: &str = "moorage.replay/1\0";
pub const MOORAGE_INTERFACE_BUDGET: &str = "moorage.budget/1\0";
pub const MOORAGE_INTERFACE_PREFETCH: &str = "moorage.prefetch/1\0";
pub const MOORAGE_INTERFACE_DISPATCH: &str = "moorage.dispatch/1\0";
pub const MOORAGE_INTERFACE_PLACEMENT: &str = "moorage.placement/1\0";
pub const MOORAGE_INTERFACE_TRANSPORT: &str = "moorage.transport/1\0";
pub const MOORAGE_INTERFACE_WIRE: &str = "moorage.wire/1\0";
pub const MOORAGE_CLASS_TOP: u8 = 0;
pub const MOORAGE_CLASS_LOW: u8 = 1;
pub const MOORAGE_CLASS_SUBSTITUTE: u8 = 2;
pub const MOORAGE_CLASS_DROPPED: u8 = 3;
pub const MOORAGE_CLASS_SMALL: u8 = 4;
pub const MOORAGE_PLACE_BUFFER: u8 = 0;
pub const MOORAGE_PLACE_SLOT: u8 = 1;
pub const MOORAGE_PLACE_HOST: u8 = 2;
