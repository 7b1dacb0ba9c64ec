// moorage.rs - the C ABI for policies in Rust, and a thin layer that keeps panics on this side.
//
// rustc 1.63 or newer, standard library only. A policy library includes it by path:
//
//   #[macro_use]
//   #[allow(dead_code, unused_macros, non_camel_case_types)]
//   mod moorage {
//       include!(concat!(env!("MOORAGE_SDK"), "/rust/moorage.rs"));
//   }
//
// implements Policy and the traits of its kinds, and ends with
// moorage_policy!("org.example.mine", "0.1.0", Mine, [OBSERVER, CACHE]);
// Slices are borrowed for the call. A panic inside a call ends there: the host gets "no advice".

use std::ffi::{CStr, CString};
use std::marker::PhantomData;
use std::os::raw::{c_char, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::{ptr, slice};

include!(concat!(env!("MOORAGE_SDK"), "/rust/abi.rs"));

// A string literal as the ABI wants it.
macro_rules! text {
    ($literal:expr) => { concat!($literal, "\0").as_ptr() as *const std::os::raw::c_char };
}

// Borrowed array; a null pointer is the empty one.
unsafe fn view<'a, T>(data: *const T, count: usize) -> &'a [T] {
    if data.is_null() { &[] } else { slice::from_raw_parts(data, count) }
}
unsafe fn view_mut<'a, T>(data: *mut T, count: usize) -> &'a mut [T] {
    if data.is_null() { &mut [] } else { slice::from_raw_parts_mut(data, count) }
}

impl moorage_step {
    pub fn page(&self, expert: u32) -> u32 { self.layer * self.experts + expert }
    // Distinct chosen experts, hits and misses alike.
    pub fn distinct(&self) -> &[u32] {
        unsafe { view(self.host_distinct, self.distinct_count as usize) }
    }
    pub fn chosen(&self, token: usize) -> &[u32] {
        let k = self.top_k as usize;
        let all = unsafe { view(self.host_chosen, self.token_count as usize * k) };
        &all[token * k..(token + 1) * k]
    }
    // Scores of all experts for one token; empty where the source has none.
    pub fn gate_scores(&self, token: usize) -> &[f32] {
        let experts = self.experts as usize;
        let all = unsafe { view(self.host_gate_scores, self.token_count as usize * experts) };
        if all.is_empty() { all } else { &all[token * experts..(token + 1) * experts] }
    }
    pub fn predicted(&self) -> &[u32] {
        unsafe { view(self.host_predicted, self.prediction_count as usize) }
    }
}
impl moorage_residency {
    pub fn state(&self, page: u32) -> u8 {
        assert!(page < self.layers * self.experts);
        unsafe { ptr::read_volatile(self.host_state.add(page as usize)) } // the host writes it
    }
    pub fn resident(&self, page: u32) -> bool { self.state(page) & MOORAGE_STATE_RESIDENT != 0 }
    // In a cache slot (its bytes may still be arriving) and free to go.
    pub fn evictable(&self, page: u32) -> bool {
        let state = self.state(page);
        state & (MOORAGE_STATE_RESIDENT | MOORAGE_STATE_IN_FLIGHT) != 0
            && state & (MOORAGE_STATE_PINNED | MOORAGE_STATE_BUFFERED) == 0
    }
}

// The host's services. A missing service that is asked for panics, which ends as a failed call.
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
    // From activate on.
    pub fn residency(&self) -> &'static moorage_residency {
        let table = self.need::<moorage_residency_service>(MOORAGE_SERVICE_RESIDENCY);
        unsafe { table.view.and_then(|view| view(self.0).as_ref()).expect("residency") }
    }
    // None where time is not modelled.
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
    // First step after `step` that requests the page, or MOORAGE_NEVER.
    pub fn next_use(&self, page: u32, step: u64) -> u64 {
        let table = self.need::<moorage_future>(MOORAGE_SERVICE_FUTURE);
        unsafe { (table.next_use.unwrap())(self.0, page, step, ptr::null_mut()) }
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

// Description of a policy; texts come from text!("...").
pub struct About {
    pub name: *const c_char,
    pub version: *const c_char,
    pub summary: *const c_char,
    pub source: *const c_char,
    pub flags: u32, // MOORAGE_POLICY_*
    pub needs: u32, // MOORAGE_NEEDS_*
    pub params: &'static [moorage_param],
}

pub const EMPTY_PARAM: moorage_param = moorage_param {
    size: std::mem::size_of::<moorage_param>() as u32, r#type: 0,
    plugin_key: ptr::null(), plugin_help: ptr::null(),
    integer_default: 0, integer_min: 0, integer_max: 0,
    real_default: 0.0, real_min: 0.0, real_max: 0.0,
    plugin_text_default: ptr::null(), plugin_text_choices: ptr::null(),
};

// Checked parameter values, in the order of their declaration.
pub struct Setup<'a> {
    pub host: Host,
    values: &'a [moorage_value],
}
impl Setup<'_> {
    pub fn integer(&self, index: usize) -> i64 { self.values[index].integer }
    pub fn flag(&self, index: usize) -> bool { self.values[index].integer != 0 }
    pub fn real(&self, index: usize) -> f64 { self.values[index].real }
    pub fn text(&self, index: usize) -> String {
        unsafe { CStr::from_ptr(self.values[index].host_text).to_string_lossy().into_owned() }
    }
}

// Results being written into an array of the host; what goes beyond its capacity is dropped.
pub struct Pages<'a> { data: &'a mut [u32], count: usize }
impl Pages<'_> {
    pub fn push(&mut self, page: u32) {
        if !self.full() { self.data[self.count] = page; self.count += 1; }
    }
    pub fn full(&self) -> bool { self.count == self.data.len() }
}
pub struct Orders<'a> { pages: Pages<'a>, segments: &'a mut [u8] }
impl Orders<'_> {
    pub fn push(&mut self, page: u32, segments: u32) {
        if self.full() { return; }
        self.segments[self.pages.count] = segments as u8;
        self.pages.push(page);
    }
    pub fn full(&self) -> bool { self.pages.full() }
}

// Every policy. activate takes all memory, within the limits; calls of a step take none.
pub trait Policy: Sized + 'static {
    const ABOUT: About;
    fn create(setup: &Setup) -> Result<Self, String>;
    fn activate(&mut self, limits: &moorage_limits) -> Result<(), String>;
    fn deactivate(&mut self) {}
    fn reset(&mut self);
}
pub trait Observer: Policy {
    fn observe(&mut self, step: &moorage_step);
}
pub trait Router: Policy {
    // Arrays of the result, [tokens, k]. Returns the tokens routed; 0: the model's choice stands.
    fn select(&mut self, step: &moorage_step, experts: &mut [u32], weights: &mut [f32],
              classes: &mut [u8]) -> u32;
}
pub trait Cache: Policy {
    fn victims(&mut self, room: &moorage_room, out: &mut Pages);
    fn admit(&mut self, _admission: &moorage_admission) -> bool { true }
    fn on_load(&mut self, _page: u32, _segments: u32, _cause: i32) {}
    fn on_evict(&mut self, _page: u32, _cause: i32) {}
}
pub trait Budget: Policy {
    // Both arrays are [layers] and hold what is in force; true applies them.
    fn plan(&mut self, request: &moorage_budget_request, slots: &mut [u32], split: &mut [f32])
        -> bool;
    fn interval(&mut self) -> u64 { 0 }
}
pub trait Prefetch: Policy {
    fn horizon(&mut self) -> u32;
    fn predict(&mut self, _step: &moorage_step, _layer: u32, _distance: u32, _experts: &mut [u32],
               _scores: &mut [f32]) -> u32 { 0 }
    fn plan(&mut self, step: &moorage_step, forecast: &moorage_forecast, out: &mut Orders);
    fn outcome(&mut self, _outcome: &moorage_prefetch_outcome) {}
}
impl moorage_forecast {
    // Layer and predicted experts of a target, best first.
    pub fn target(&self, index: u32) -> (u32, &[u32]) {
        let (i, n) = (index as usize, self.target_count as usize);
        unsafe {
            let offsets = view(self.host_offsets, n + 1);
            let all = view(self.host_experts, offsets[n] as usize);
            (view(self.host_layers, n)[i], &all[offsets[i] as usize..offsets[i + 1] as usize])
        }
    }
}
pub trait Dispatch: Policy {
    // One site per item, and the items in the order to take them. Returns the items, or 0: all GPU.
    fn assign(&mut self, step: &moorage_step, items: &moorage_items, sites: &mut [u32],
              order: &mut [u32]) -> u32;
    fn outcome(&mut self, _outcome: &moorage_dispatched) {}
}
impl moorage_items {
    pub fn missing(&self) -> &[u8] { unsafe { view(self.host_missing, self.count as usize) } }
    pub fn load_ns(&self) -> &[u64] { unsafe { view(self.host_load_ns, self.count as usize) } }
    pub fn gpu_ns(&self) -> &[u64] { unsafe { view(self.host_gpu_ns, self.count as usize) } }
    pub fn cpu_ns(&self) -> &[u64] { unsafe { view(self.host_cpu_ns, self.count as usize) } }
    // Servers that have an item's expert, ascending.
    pub fn remote_servers(&self, item: usize) -> &[u32] {
        assert!(item < self.count as usize);
        unsafe {
            let first = view(self.host_remote_first, self.count as usize + 1);
            if first.is_empty() { return &[]; }
            let all = view(self.host_remote_servers, first[self.count as usize] as usize);
            &all[first[item] as usize..first[item + 1] as usize]
        }
    }
    // Time of each of them, the way there and back included.
    pub fn remote_ns(&self, item: usize) -> &[u64] {
        assert!(item < self.count as usize);
        unsafe {
            let first = view(self.host_remote_first, self.count as usize + 1);
            if first.is_empty() { return &[]; }
            let all = view(self.host_remote_ns, first[self.count as usize] as usize);
            &all[first[item] as usize..first[item + 1] as usize]
        }
    }
}
pub trait Transport: Policy {
    fn submit(&mut self, transfer: &moorage_transfer);
    fn cancel(&mut self, id: u32);
    fn promote(&mut self, id: u32, cause: i32);
    // Transfer and bytes of the next piece for an idle link.
    fn next(&mut self, link: u32) -> Option<(u32, u64)>;
}
pub trait Placement: Policy {
    // Pushes the copies of the plan; a text where no plan exists.
    fn plan(&mut self, cluster: &moorage_cluster, demand: &moorage_demand, current: &[moorage_copy],
            copies: &mut Copies) -> Result<(), String>;
    // Left out: the host's rule, Prism's Eq. 4.
    fn adopt(&mut self, movement: &moorage_move) -> bool { movement.pays() }
    // Fills facts about the last plan, returns how many; names are text!("...").
    fn facts(&mut self, _out: &mut [moorage_fact]) -> u32 { 0 }
}
// A plan being made: copies in any order, none twice.
pub struct Copies<'a> { data: &'a mut [moorage_copy], count: usize }
impl Copies<'_> {
    pub fn push(&mut self, expert: u32, device: u32) {
        if let Some(copy) = self.data.get_mut(self.count) {
            *copy = moorage_copy { expert, device };
            self.count += 1;
        }
    }
}
impl moorage_move {
    // What is saved until the next decision against what loading the added copies and dropping the
    // removed ones takes.
    pub fn pays(&self) -> bool {
        let saved = (self.remote_per_s_current - self.remote_per_s_candidate) * self.remote_call_s;
        saved * self.interval_s > self.added_s + self.removed_s
    }
}
impl moorage_cluster {
    pub fn device_bytes(&self) -> &[u64] {
        unsafe { view(self.host_device_bytes, self.devices as usize) }
    }
    pub fn device_server(&self) -> &[u32] {
        unsafe { view(self.host_device_server, self.devices as usize) }
    }
    pub fn home_server(&self) -> &[u32] {
        unsafe { view(self.host_home_server, self.homes as usize) }
    }
    pub fn has_cloud(&self) -> bool { !self.host_cloud_s.is_null() }
}
impl moorage_demand {
    // Of each model, and one more: the number of experts of all.
    pub fn model_first(&self) -> &[u32] {
        unsafe { view(self.host_model_first, self.models as usize + 1) }
    }
    pub fn experts(&self) -> u32 { self.model_first()[self.models as usize] }
    pub fn expert_bytes(&self) -> &[u64] {
        unsafe { view(self.host_expert_bytes, self.models as usize) }
    }
    pub fn tokens_per_s(&self) -> &[f64] {
        unsafe { view(self.host_home_tokens_per_s, self.homes as usize) }
    }
    // How often a token of the home chooses each expert, [experts].
    pub fn frequency(&self, home: u32) -> &[f64] {
        assert!(home < self.homes);
        let experts = self.experts() as usize;
        unsafe { view(self.host_frequency.add(home as usize * experts), experts) }
    }
}

macro_rules! thunks {
    ($($trait:ident: $type:ident $empty:tt {
        $($slot:ident($($arg:ident: $arg_type:ty),*) $(-> $ret:ty = $fallback:expr)?;
          |$policy:ident $(, $host:ident)?| $body:expr;)*
    })*) => {$(
        impl<P: $trait> Table<P, $type> {
            $(unsafe extern "C" fn $slot(
                plugin: *mut moorage_plugin $(, $arg: $arg_type)*
            ) $(-> $ret)? {
                $(let $host = (*(plugin as *mut Holder<P>)).host;)?
                guard::<P, _>(plugin, { $($fallback)? }, |$policy| $body)
            })*
            pub const TABLE: &'static $type = &$type {
                size: std::mem::size_of::<$type>() as u32,
                flags: 0,
                $($slot: Some(Self::$slot),)*
                ..$type $empty
            };
        }
    )*};
}
pub struct Table<P, T>(PhantomData<(P, T)>);
thunks! {
    Observer: moorage_observer { size: 0, flags: 0, observe: None } {
        observe(step: *const moorage_step); |p| p.observe(&*step);
    }
    Router: moorage_router { size: 0, flags: 0, select: None } {
        select(step: *const moorage_step, out: *mut moorage_route) -> u32 = 0; |p| {
            let n = (*step).token_count as usize * (*step).top_k as usize;
            p.select(&*step, view_mut((*out).host_experts, n), view_mut((*out).host_weights, n),
                     view_mut((*out).host_classes, n))
        };
    }
    Cache: moorage_cache {
        size: 0, flags: 0, victims: None, admit: None, on_load: None, on_evict: None, replay: None,
        fill: None
    } {
        victims(room: *const moorage_room, out: *mut u32) -> u32 = 0; |p| {
            let data = view_mut(out, (*room).count as usize);
            let mut pages = Pages { data, count: 0 };
            p.victims(&*room, &mut pages);
            pages.count as u32
        };
        admit(admission: *const moorage_admission) -> u32 = 1; |p| p.admit(&*admission) as u32;
        on_load(page: u32, segments: u32, cause: i32); |p| p.on_load(page, segments, cause);
        on_evict(page: u32, cause: i32); |p| p.on_evict(page, cause);
    }
    Budget: moorage_budget { size: 0, flags: 0, plan: None, interval: None } {
        plan(request: *const moorage_budget_request, out: *mut moorage_budget_plan)
                -> u32 = 0; |p| {
            let n = (*request).layers as usize;
            let (slots, split) = (view_mut((*out).host_slots, n), view_mut((*out).host_split, n));
            p.plan(&*request, slots, split) as u32
        };
        interval() -> u64 = 0; |p| p.interval();
    }
    Prefetch: moorage_prefetch {
        size: 0, flags: 0, horizon: None, predict: None, plan: None, outcome: None,
        prediction: None
    } {
        horizon() -> u32 = 0; |p| p.horizon();
        predict(step: *const moorage_step, layer: u32, distance: u32, capacity: u32,
                experts: *mut u32, scores: *mut f32) -> u32 = 0; |p| {
            let n = capacity as usize;
            p.predict(&*step, layer, distance, view_mut(experts, n), view_mut(scores, n))
        };
        plan(step: *const moorage_step, forecast: *const moorage_forecast, out: *mut moorage_orders)
                -> u32 = 0; |p| {
            let n = (*out).capacity as usize;
            let pages = Pages { data: view_mut((*out).host_pages, n), count: 0 };
            let mut list = Orders { pages, segments: view_mut((*out).host_segments, n) };
            p.plan(&*step, &*forecast, &mut list);
            list.pages.count as u32
        };
        outcome(outcome: *const moorage_prefetch_outcome); |p| p.outcome(&*outcome);
    }
    Dispatch: moorage_dispatch { size: 0, flags: 0, assign: None, outcome: None } {
        assign(step: *const moorage_step, items: *const moorage_items, sites: *mut u32,
               order: *mut u32) -> u32 = 0; |p| {
            let n = (*items).count as usize;
            p.assign(&*step, &*items, view_mut(sites, n), view_mut(order, n))
        };
        outcome(outcome: *const moorage_dispatched); |p| p.outcome(&*outcome);
    }
    Transport: moorage_transport {
        size: 0, flags: 0, submit: None, cancel: None, promote: None, next: None
    } {
        submit(transfer: *const moorage_transfer); |p| p.submit(&*transfer);
        cancel(id: u32); |p| p.cancel(id);
        promote(id: u32, cause: i32); |p| p.promote(id, cause);
        next(link: u32, out: *mut moorage_piece) -> u32 = 0; |p| match p.next(link) {
            Some((id, bytes)) => { (*out).id = id; (*out).bytes = bytes; 1 }
            None => 0,
        };
    }
    Placement: moorage_placement { size: 0, flags: 0, plan: None, adopt: None, facts: None } {
        plan(cluster: *const moorage_cluster, demand: *const moorage_demand,
             current: *const moorage_copy, current_count: u64, out: *mut moorage_copy,
             count: *mut u64) -> i32 = MOORAGE_INTERNAL; |p, host| {
            *count = 0;
            host.set_error("panic in plan"); // stands unless a return follows
            let current = view(current, current_count as usize);
            let room = (*demand).experts() as usize * (*cluster).devices as usize;
            let mut copies = Copies { data: view_mut(out, room), count: 0 };
            match p.plan(&*cluster, &*demand, current, &mut copies) {
                Ok(()) => { *count = copies.count as u64; MOORAGE_OK }
                Err(message) => failed(host, &message),
            }
        };
        adopt(movement: *const moorage_move) -> u32 = 0; |p| p.adopt(&*movement) as u32;
        facts(out: *mut moorage_fact, capacity: u32) -> u32 = 0; |p| {
            p.facts(view_mut(out, capacity as usize))
        };
    }
}

// An instance: the C struct first, so that the host's pointer is ours.
#[repr(C)]
pub struct Holder<P> { plugin: moorage_plugin, host: Host, policy: P }

// Runs `work` on the policy; a panic ends here and gives `fallback`.
unsafe fn guard<P, R>(plugin: *mut moorage_plugin, fallback: R, work: impl FnOnce(&mut P) -> R)
    -> R {
    let holder = plugin as *mut Holder<P>;
    catch_unwind(AssertUnwindSafe(|| work(&mut (*holder).policy))).unwrap_or(fallback)
}
unsafe fn failed(host: Host, message: &str) -> i32 {
    host.set_error(message);
    MOORAGE_INVALID_ARGUMENT
}
impl<P: Policy> Holder<P> {
    unsafe extern "C" fn destroy(plugin: *mut moorage_plugin) {
        let _ = catch_unwind(|| drop(Box::from_raw(plugin as *mut Self)));
    }
    unsafe extern "C" fn activate(plugin: *mut moorage_plugin, limits: *const moorage_limits)
        -> i32 {
        let host = (*(plugin as *mut Self)).host;
        match guard::<P, _>(plugin, Err("panic in activate".into()), |p| p.activate(&*limits)) {
            Ok(()) => MOORAGE_OK,
            Err(message) => failed(host, &message),
        }
    }
    unsafe extern "C" fn deactivate(plugin: *mut moorage_plugin) {
        guard::<P, _>(plugin, (), |p| p.deactivate())
    }
    unsafe extern "C" fn reset(plugin: *mut moorage_plugin) {
        guard::<P, _>(plugin, (), |p| p.reset())
    }
    // moorage_module.create for a library of one policy.
    pub unsafe fn create(
        name: *const c_char, host: *const moorage_host, values: *const moorage_value, count: u32,
        out: *mut *mut moorage_plugin,
        get_interface: unsafe extern "C" fn(*mut moorage_plugin, *const c_char) -> *const c_void,
    ) -> i32 {
        let host = Host(host);
        if CStr::from_ptr(name) != CStr::from_ptr(P::ABOUT.name) {
            return failed(host, "no policy of this name in the library");
        }
        if count as usize != P::ABOUT.params.len() {
            return failed(host, "as many values as declared parameters are needed");
        }
        let setup = Setup { host, values: view(values, count as usize) };
        let made = catch_unwind(AssertUnwindSafe(|| P::create(&setup)));
        match made.unwrap_or_else(|_| Err("panic in create".into())) {
            Err(message) => failed(host, &message),
            Ok(policy) => {
                let plugin = moorage_plugin {
                    size: std::mem::size_of::<moorage_plugin>() as u32,
                    flags: 0,
                    plugin_data: ptr::null_mut(),
                    destroy: Some(Self::destroy),
                    activate: Some(Self::activate),
                    deactivate: Some(Self::deactivate),
                    reset: Some(Self::reset),
                    get_interface: Some(get_interface),
                };
                let holder = Box::new(Self { plugin, host, policy });
                *out = Box::into_raw(holder) as *mut moorage_plugin;
                MOORAGE_OK
            }
        }
    }
}

// Constant records hold pointers; nothing ever writes through them.
pub struct Shared<T>(pub T);
unsafe impl<T> Sync for Shared<T> {}

// The kind names of moorage_policy!: id and table.
macro_rules! kind {
    (id OBSERVER) => { $crate::moorage::MOORAGE_INTERFACE_OBSERVER };
    (id ROUTER) => { $crate::moorage::MOORAGE_INTERFACE_ROUTER };
    (id CACHE) => { $crate::moorage::MOORAGE_INTERFACE_CACHE };
    (id BUDGET) => { $crate::moorage::MOORAGE_INTERFACE_BUDGET };
    (id PREFETCH) => { $crate::moorage::MOORAGE_INTERFACE_PREFETCH };
    (id DISPATCH) => { $crate::moorage::MOORAGE_INTERFACE_DISPATCH };
    (id TRANSPORT) => { $crate::moorage::MOORAGE_INTERFACE_TRANSPORT };
    (id PLACEMENT) => { $crate::moorage::MOORAGE_INTERFACE_PLACEMENT };
    (table OBSERVER) => { $crate::moorage::moorage_observer };
    (table ROUTER) => { $crate::moorage::moorage_router };
    (table CACHE) => { $crate::moorage::moorage_cache };
    (table BUDGET) => { $crate::moorage::moorage_budget };
    (table PREFETCH) => { $crate::moorage::moorage_prefetch };
    (table DISPATCH) => { $crate::moorage::moorage_dispatch };
    (table TRANSPORT) => { $crate::moorage::moorage_transport };
    (table PLACEMENT) => { $crate::moorage::moorage_placement };
}

// Exports a library of one policy: id, version, type, and the kinds it answers for.
macro_rules! moorage_policy {
    ($id:expr, $version:expr, $policy:ty, [$($kind:ident),+]) => {
        const _: () = {
            use std::os::raw::{c_char, c_void};
            use $crate::moorage::*;
            unsafe extern "C" fn get_interface(
                _plugin: *mut moorage_plugin, id: *const c_char,
            ) -> *const c_void {
                let id = std::ffi::CStr::from_ptr(id).to_bytes_with_nul();
                $(if id == kind!(id $kind).as_bytes() {
                    return Table::<$policy, kind!(table $kind)>::TABLE as *const _ as *const c_void;
                })+
                std::ptr::null()
            }
            const KINDS: &[*const c_char] = &[$(kind!(id $kind).as_ptr() as *const c_char),+];
            static DESCRIPTOR: Shared<moorage_descriptor> = Shared(moorage_descriptor {
                size: std::mem::size_of::<moorage_descriptor>() as u32,
                flags: <$policy>::ABOUT.flags,
                plugin_name: <$policy>::ABOUT.name,
                plugin_version: <$policy>::ABOUT.version,
                plugin_summary: <$policy>::ABOUT.summary,
                plugin_source: <$policy>::ABOUT.source,
                plugin_kinds: KINDS.as_ptr(),
                plugin_params: <$policy>::ABOUT.params.as_ptr(),
                kind_count: KINDS.len() as u32,
                param_count: <$policy>::ABOUT.params.len() as u32,
                needs: <$policy>::ABOUT.needs,
                reserved: 0,
            });
            unsafe extern "C" fn descriptor(index: u32) -> *const moorage_descriptor {
                if index == 0 { &DESCRIPTOR.0 } else { std::ptr::null() }
            }
            unsafe extern "C" fn create(
                name: *const c_char, host: *const moorage_host, values: *const moorage_value,
                count: u32, out: *mut *mut moorage_plugin,
            ) -> i32 {
                Holder::<$policy>::create(name, host, values, count, out, get_interface)
            }
            static RECORD: Shared<moorage_module> = Shared(moorage_module {
                size: std::mem::size_of::<moorage_module>() as u32,
                flags: 0,
                abi_major: MOORAGE_ABI_MAJOR,
                abi_minor: MOORAGE_ABI_MINOR,
                plugin_id: text!($id),
                plugin_version: text!($version),
                descriptor_count: 1,
                reserved: 0,
                init: None,
                deinit: None,
                descriptor: Some(descriptor),
                create: Some(create),
            });
            #[no_mangle]
            pub extern "C" fn moorage_module_v1() -> *const moorage_module { &RECORD.0 }
        };
    };
}
