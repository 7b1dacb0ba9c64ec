// views.rs - views of what the host lends: arrays as slices and values, services. Part of
// moorage.rs.
//
// Every field host_X of abi.rs has an accessor here or in moorage.rs. It is called X if the struct
// tells enough. Slices are borrowed for the call. An array that the host leaves out is empty.

// A borrowed array. A null pointer gives the empty array.
unsafe fn view<'a, T>(data: *const T, count: usize) -> &'a [T] {
    if data.is_null() { &[] } else { slice::from_raw_parts(data, count) }
}
// A row of a matrix of `rows` by `width`. Empty if the matrix is null.
unsafe fn row<'a, T>(data: *const T, rows: usize, width: usize, index: usize) -> &'a [T] {
    assert!(index < rows);
    if data.is_null() { &[] } else { slice::from_raw_parts(data.add(index * width), width) }
}
unsafe fn view_mut<'a, T>(data: *mut T, count: usize) -> &'a mut [T] {
    if data.is_null() { &mut [] } else { slice::from_raw_parts_mut(data, count) }
}

impl moorage_step {
    pub fn page(&self, expert: u32) -> u32 { self.layer * self.experts + expert }
    // Distinct chosen experts, hits and misses alike; empty for a router.
    pub fn distinct(&self) -> &[u32] {
        unsafe { view(self.host_distinct, self.distinct_count as usize) }
    }
    // Number of tokens that chose each of them; empty: one each.
    pub fn distinct_tokens(&self) -> &[u32] {
        unsafe { view(self.host_distinct_tokens, self.distinct_count as usize) }
    }
    // Largest gate score or weight of each of them; empty if the source has none.
    pub fn distinct_scores(&self) -> &[f32] {
        unsafe { view(self.host_distinct_scores, self.distinct_count as usize) }
    }
    pub fn chosen(&self, token: usize) -> &[u32] { self.row(self.host_chosen, self.top_k, token) }
    // Router weights of the chosen experts; empty if the source has none.
    pub fn weights(&self, token: usize) -> &[f32] { self.row(self.host_weights, self.top_k, token) }
    // MOORAGE_CLASS_* of the chosen experts; empty: all TOP.
    pub fn classes(&self, token: usize) -> &[u8] { self.row(self.host_classes, self.top_k, token) }
    // Scores of all experts for one token; empty if the source has none.
    pub fn gate_scores(&self, token: usize) -> &[f32] {
        self.row(self.host_gate_scores, self.experts, token)
    }
    pub fn predicted(&self) -> &[u32] {
        unsafe { view(self.host_predicted, self.prediction_count as usize) }
    }
    // For each token: the running number of its request, and its stream.
    pub fn requests(&self) -> &[u64] {
        unsafe { view(self.host_requests, self.token_count as usize) }
    }
    pub fn streams(&self) -> &[u32] {
        unsafe { view(self.host_streams, self.token_count as usize) }
    }
    // Ids in the model's vocabulary, and positions in the request; empty if the source has none.
    pub fn token_ids(&self) -> &[i32] {
        unsafe { view(self.host_token_ids, self.token_count as usize) }
    }
    pub fn positions(&self) -> &[u32] {
        unsafe { view(self.host_positions, self.token_count as usize) }
    }
    // The router's input; empty if the policy did not ask for it or this machine does not have it.
    pub fn hidden(&self, token: usize) -> &[f32] {
        self.row(self.host_hidden, self.hidden_size, token)
    }
    fn row<T>(&self, data: *const T, width: u32, token: usize) -> &[T] {
        unsafe { row(data, self.token_count as usize, width as usize, token) }
    }
}

impl moorage_residency {
    pub fn state(&self, page: u32) -> u32 {
        assert!(page < self.layers * self.experts);
        unsafe { ptr::read_volatile(self.host_state.add(page as usize)) } // the host writes it
    }
    pub fn resident(&self, page: u32) -> bool { self.state(page) & MOORAGE_STATE_RESIDENT != 0 }
    // Segments that are neither resident nor in flight.
    pub fn missing(&self, page: u32) -> u8 {
        let state = self.state(page);
        !(state | state >> MOORAGE_STATE_IN_FLIGHT_SHIFT | state >> MOORAGE_STATE_BUFFERED_SHIFT)
            as u8
    }
    // The store that loads into this one come from. None: this store has everything.
    pub fn below(&self) -> Option<&moorage_residency> { unsafe { self.host_below.as_ref() } }
    // For a policy of that store: the store that is loaded from it.
    pub fn above(&self) -> Option<&moorage_residency> { unsafe { self.host_above.as_ref() } }
    // The page holds no slot and gets none in the running step. An order may forget it.
    pub fn departed(&self, page: u32) -> bool {
        let held = MOORAGE_STATE_RESIDENT | MOORAGE_STATE_IN_FLIGHT | MOORAGE_STATE_PINNED;
        self.state(page) & held == 0
    }
    // The page is in a cache slot, where its bytes may still be arriving, and may be evicted.
    pub fn evictable(&self, page: u32) -> bool {
        let state = self.state(page);
        state & (MOORAGE_STATE_RESIDENT | MOORAGE_STATE_IN_FLIGHT) != 0
            && state & (MOORAGE_STATE_PINNED | MOORAGE_STATE_BUFFERED) == 0
    }
    pub fn slots(&self, pool: u32) -> u32 {
        assert!(pool < self.pools);
        unsafe { ptr::read_volatile(self.host_slots.add(pool as usize)) }
    }
    pub fn used(&self, pool: u32) -> u32 {
        assert!(pool < self.pools);
        unsafe { ptr::read_volatile(self.host_used.add(pool as usize)) }
    }
    // The first segment's share of an expert of the layer.
    pub fn split(&self, layer: u32) -> f32 {
        assert!(layer < self.layers);
        unsafe { ptr::read_volatile(self.host_split.add(layer as usize)) }
    }
    // Free slots in the pool of `layer`.
    pub fn free_slots(&self, layer: u32) -> u32 {
        let pool = if self.pools == 1 { 0 } else { layer };
        self.slots(pool).saturating_sub(self.used(pool))
    }
}

impl moorage_limits {
    pub fn stores(&self) -> &[moorage_store] {
        unsafe { view(self.host_stores, self.stores as usize) }
    }
    pub fn devices(&self) -> &[moorage_device] {
        unsafe { view(self.host_devices, self.devices as usize) }
    }
    pub fn links(&self) -> &[moorage_link] {
        unsafe { view(self.host_links, self.links as usize) }
    }
}

// The host's services. Asking for a missing service panics, so the call fails.
#[derive(Clone, Copy)]
pub struct Host(pub *const moorage_host);
impl Host {
    pub fn service<T>(&self, id: &'static str) -> Option<&'static T> {
        unsafe {
            let find = (*self.0).get_service?;
            (find(self.0, id.as_ptr() as *const c_char) as *const T).as_ref()
        }
    }
    fn need<T>(&self, id: &'static str) -> &'static T { self.service(id).expect(id) }
    // Valid from activate on.
    pub fn residency(&self) -> &'static moorage_residency {
        let table = self.need::<moorage_residency_service>(MOORAGE_SERVICE_RESIDENCY);
        unsafe { table.view.and_then(|view| view(self.0).as_ref()).expect("residency") }
    }
    // None if time is not modelled.
    pub fn costs(&self) -> Option<&'static moorage_costs> {
        let table = self.service::<moorage_costs_service>(MOORAGE_SERVICE_COSTS)?;
        unsafe { table.view.and_then(|view| view(self.0).as_ref()) }
    }
    pub fn random(&self) -> u64 {
        unsafe { (self.need::<moorage_random>(MOORAGE_SERVICE_RANDOM).next.unwrap())(self.0) }
    }
    pub fn now_ns(&self) -> u64 {
        unsafe { (self.need::<moorage_clock>(MOORAGE_SERVICE_CLOCK).now_ns.unwrap())(self.0) }
    }
    pub fn has_future(&self) -> bool {
        self.service::<moorage_future>(MOORAGE_SERVICE_FUTURE).is_some()
    }
    // The first step after `step` that requests the page, or MOORAGE_NEVER.
    pub fn next_use(&self, page: u32, step: u64) -> u64 { self.next_use_at(page, step).0 }
    // The same, with the token of that step.
    pub fn next_use_at(&self, page: u32, step: u64) -> (u64, u64) {
        let table = self.need::<moorage_future>(MOORAGE_SERVICE_FUTURE);
        let mut token = MOORAGE_NEVER;
        let next = unsafe { (table.next_use.unwrap())(self.0, page, step, &mut token) };
        (next, token)
    }
    // Whether the calling thread is in a [control] or [load] call, or in a [step] call.
    pub fn in_control(&self) -> bool {
        let table = self.need::<moorage_thread_check>(MOORAGE_SERVICE_THREAD_CHECK);
        unsafe { (table.in_control.unwrap())(self.0) != 0 }
    }
    pub fn in_step(&self) -> bool {
        let table = self.need::<moorage_thread_check>(MOORAGE_SERVICE_THREAD_CHECK);
        unsafe { (table.in_step.unwrap())(self.0) != 0 }
    }
    pub fn log(&self, level: i32, line: &str) {
        if let (Some(table), Ok(line)) =
            (self.service::<moorage_log>(MOORAGE_SERVICE_LOG), CString::new(line))
        {
            if let Some(write) = table.write { unsafe { write(self.0, level, line.as_ptr()) } }
        }
    }
    fn set_error(&self, message: &str) {
        let text = CString::new(message.replace('\0', " ")).unwrap_or_default();
        unsafe { if let Some(set) = (*self.0).set_error { set(self.0, text.as_ptr()) } }
    }
}

impl moorage_budget_request {
    // Values in force, [layers].
    pub fn slots(&self) -> &[u32] { unsafe { view(self.host_slots, self.layers as usize) } }
    pub fn split(&self) -> &[f32] { unsafe { view(self.host_split, self.layers as usize) } }
}

impl moorage_forecast {
    fn offsets(&self) -> &[u32] {
        unsafe { view(self.host_offsets, self.target_count as usize + 1) }
    }
    fn target_of<T>(&self, data: *const T, index: u32) -> &[T] {
        let offsets = self.offsets();
        let values = unsafe { view(data, offsets[self.target_count as usize] as usize) };
        if values.is_empty() { return values; }
        &values[offsets[index as usize] as usize..offsets[index as usize + 1] as usize]
    }
    // Scores of a target's experts; empty if there are none.
    pub fn scores(&self, index: u32) -> &[f32] { self.target_of(self.host_scores, index) }
    // Experts of one token for target 0, best first; empty if not known.
    pub fn token_experts(&self, token: u32) -> &[u32] {
        let width = self.token_predictions as usize;
        let entries = unsafe {
            row(self.host_token_experts, self.token_count as usize, width, token as usize)
        };
        let count = entries.iter().position(|&expert| expert == MOORAGE_NONE);
        &entries[..count.unwrap_or(entries.len())]
    }
    pub fn token_scores(&self, token: u32) -> &[f32] {
        let width = self.token_predictions as usize;
        let entries = unsafe {
            row(self.host_token_scores, self.token_count as usize, width, token as usize)
        };
        &entries[..entries.len().min(self.token_experts(token).len())]
    }
    // Layer and predicted experts of a target, best first.
    pub fn target(&self, index: u32) -> (u32, &[u32]) {
        let layers = unsafe { view(self.host_layers, self.target_count as usize) };
        (layers[index as usize], self.target_of(self.host_experts, index))
    }
}

impl moorage_items {
    pub fn experts(&self) -> &[u32] { unsafe { view(self.host_experts, self.count as usize) } }
    pub fn tokens(&self) -> &[u32] { unsafe { view(self.host_tokens, self.count as usize) } }
    // Empty if there are none.
    pub fn scores(&self) -> &[f32] { unsafe { view(self.host_scores, self.count as usize) } }
    pub fn missing(&self) -> &[u8] { unsafe { view(self.host_missing, self.count as usize) } }
    pub fn load_ns(&self) -> &[u64] { unsafe { view(self.host_load_ns, self.count as usize) } }
    pub fn gpu_ns(&self) -> &[u64] { unsafe { view(self.host_gpu_ns, self.count as usize) } }
    pub fn cpu_ns(&self) -> &[u64] { unsafe { view(self.host_cpu_ns, self.count as usize) } }
    // The CPU's number among the devices.
    pub fn cpu(&self) -> u32 { self.gpus }
    pub fn devices(&self) -> &[moorage_device] {
        unsafe { view(self.host_devices, self.devices as usize) }
    }
    // The servers that have an item's expert, ascending.
    pub fn remote_devices(&self, item: usize) -> &[u32] {
        self.remote(self.host_remote_devices, item)
    }
    // The time of a call to each of them, both ways included.
    pub fn remote_ns(&self, item: usize) -> &[u64] { self.remote(self.host_remote_ns, item) }
    // The part of it that counts once, however many items of the step the server computes.
    pub fn once_ns(&self, item: usize) -> &[u64] { self.remote(self.host_once_ns, item) }
    // Each item's own device.
    pub fn device(&self) -> &[u32] { unsafe { view(self.host_device, self.count as usize) } }
    // For each of several GPUs: how long its link is busy, and the time of hidden states both ways.
    pub fn device_backlog_ns(&self) -> &[u64] {
        unsafe { view(self.host_device_backlog_ns, self.gpus as usize) }
    }
    pub fn device_once_ns(&self) -> &[u64] {
        unsafe { view(self.host_device_once_ns, self.gpus as usize) }
    }
    fn remote<T>(&self, data: *const T, item: usize) -> &[T] {
        assert!(item < self.count as usize);
        unsafe {
            let first = view(self.host_remote_first, self.count as usize + 1);
            if first.is_empty() { return &[]; }
            let entries = view(data, first[self.count as usize] as usize);
            if entries.is_empty() { return entries; }
            &entries[first[item] as usize..first[item + 1] as usize]
        }
    }
}

impl moorage_move {
    // Whether the savings until the next decision exceed the time to load the added copies and drop
    // the removed ones.
    pub fn pays(&self) -> bool {
        let saved = (self.remote_per_s_current - self.remote_per_s_candidate) * self.remote_call_s;
        saved * self.interval_s > self.added_s + self.removed_s
    }
    pub fn cluster(&self) -> &moorage_cluster { unsafe { &*self.host_cluster } }
    pub fn demand(&self) -> &moorage_demand { unsafe { &*self.host_demand } }
    pub fn current(&self) -> &[moorage_copy] {
        unsafe { view(self.host_current, self.current_count as usize) }
    }
    pub fn candidate(&self) -> &[moorage_copy] {
        unsafe { view(self.host_candidate, self.candidate_count as usize) }
    }
}
// Accessors of arrays: name, field, length or rows and width, element.
macro_rules! arrays {
    ($($name:ident: $field:ident[$length:ident $(+ $extra:literal)?] $type:ty;)*) => {$(
        pub fn $name(&self) -> &[$type] {
            unsafe { view(self.$field, self.$length as usize $(+ $extra)?) }
        }
    )*};
}
macro_rules! rows {
    ($($name:ident: $field:ident[$rows:ident, $width:ident] $type:ty;)*) => {$(
        pub fn $name(&self, index: u32) -> &[$type] {
            let (rows, width) = (self.$rows as usize, self.$width as usize);
            unsafe { row(self.$field, rows, width, index as usize) }
        }
    )*};
}

// Fields as in placement.h. Those of the cloud are empty without a cloud.
impl moorage_cluster {
    arrays! {
        device_server: host_device_server[devices] u32;
        device_bytes: host_device_bytes[devices] u64;
        device_load_bytes_per_s: host_device_load_bytes_per_s[devices] f64;
        cloud_up_bytes_per_s: host_cloud_up_bytes_per_s[servers] f64;
        cloud_down_bytes_per_s: host_cloud_down_bytes_per_s[servers] f64;
        cloud_s: host_cloud_s[servers] f64;
        cloud_call_s: host_cloud_call_s[models] f64;
        home_server: host_home_server[homes] u32;
        home_up_bytes_per_s: host_home_up_bytes_per_s[homes] f64;
        home_down_bytes_per_s: host_home_down_bytes_per_s[homes] f64;
    }
    rows! { // of a device, by model; of a server, to each; of a home, by model
        device_call_s: host_device_call_s[devices, models] f64;
        device_token_s: host_device_token_s[devices, models] f64;
        link_bytes_per_s: host_link_bytes_per_s[servers, servers] f64;
        link_s: host_link_s[servers, servers] f64;
        home_call_s: host_home_call_s[homes, models] f64;
    }
    pub fn has_cloud(&self) -> bool { !self.host_cloud_s.is_null() }
}

impl moorage_demand {
    arrays! {
        model_first: host_model_first[models + 1] u32;
        model_layers: host_model_layers[models] u32;
        model_experts: host_model_experts[models] u32;
        model_top_k: host_model_top_k[models] u32;
        model_groups: host_model_groups[models] u32;
        expert_bytes: host_expert_bytes[models] u64;
        hidden_bytes: host_hidden_bytes[models] u64;
        tokens_per_s: host_home_tokens_per_s[homes] f64;
        home_batch: host_home_batch[homes] f64;
        home_single_share: host_home_single_share[homes] f64;
    }
    rows! {
        home_model: host_home_model[homes, models] f64;
    }
    // Experts of all models: one past the last number.
    pub fn experts(&self) -> u32 { self.model_first()[self.models as usize] }
    // How often a token of the home chooses each expert, [experts].
    pub fn frequency(&self, home: u32) -> &[f64] {
        let (homes, experts) = (self.homes as usize, self.experts() as usize);
        unsafe { row(self.host_frequency, homes, experts, home as usize) }
    }
    // 1 for each expert that the home has itself, [experts]; empty: it has none.
    pub fn home_holds(&self, home: u32) -> &[u8] {
        let (homes, experts) = (self.homes as usize, self.experts() as usize);
        unsafe { row(self.host_home_holds, homes, experts, home as usize) }
    }
    // Groups that a home's tokens call, and the share of its tokens that calls each. Empty if only
    // frequencies are known.
    pub fn calls(&self, home: u32) -> (&[u32], &[f64]) {
        assert!(home < self.homes);
        if self.calls == 0 { return (&[], &[]); }
        unsafe {
            let first = view(self.host_home_first_call, self.homes as usize + 1);
            let range = first[home as usize] as usize..first[home as usize + 1] as usize;
            let groups = view(self.host_call_group, self.calls as usize);
            (&groups[range.clone()], &view(self.host_call_share, self.calls as usize)[range])
        }
    }
    // Experts of a group, by number, ascending.
    pub fn group(&self, group: u32) -> &[u32] {
        unsafe {
            let first = view(self.host_group_first, self.groups as usize + 1);
            let experts = view(self.host_group_experts, first[self.groups as usize] as usize);
            &experts[first[group as usize] as usize..first[group as usize + 1] as usize]
        }
    }
}
