// moorage.rs - the C ABI for policies in Rust, and a thin layer that stops panics at the border.
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
// Optional calls are traits of their own (Admit, OnLoad, ...). The host does without a call that is
// not implemented. Slices are borrowed for the call. A panic in create makes create fail. A panic
// in any other call ends the process. The host then names the policy, the call and the step, and
// prints the panic's text.

use std::ffi::{CStr, CString};
use std::marker::PhantomData;
use std::os::raw::{c_char, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::{ptr, slice};

include!(concat!(env!("MOORAGE_SDK"), "/rust/abi.rs"));
include!(concat!(env!("MOORAGE_SDK"), "/rust/views.rs"));
include!(concat!(env!("MOORAGE_SDK"), "/rust/order.rs"));
include!(concat!(env!("MOORAGE_SDK"), "/rust/replay.rs"));

// A string literal with a final NUL, as the ABI requires.
macro_rules! text {
    ($literal:expr) => { concat!($literal, "\0").as_ptr() as *const std::os::raw::c_char };
}

include!(concat!(env!("MOORAGE_SDK"), "/rust/wire.rs"));

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

// Results that the policy writes into an array of the host. Results beyond its capacity are
// dropped.
pub struct Pages<'a> { data: &'a mut [u32], count: usize }
impl Pages<'_> {
    pub fn push(&mut self, page: u32) {
        if !self.full() { self.data[self.count] = page; self.count += 1; }
    }
    pub fn full(&self) -> bool { self.count == self.data.len() }
    pub fn len(&self) -> usize { self.count }
}
pub struct Orders<'a> {
    pages: Pages<'a>, segments: &'a mut [u8], places: &'a mut [u8], flags: &'a mut u32,
}
impl Orders<'_> {
    pub fn push(&mut self, page: u32, segments: u32) {
        self.push_to(page, segments, MOORAGE_PLACE_BUFFER);
    }
    // Orders a load into `place`: MOORAGE_PLACE_*.
    pub fn push_to(&mut self, page: u32, segments: u32, place: u8) {
        if self.full() { return; }
        self.segments[self.pages.count] = segments as u8;
        self.places[self.pages.count] = place;
        self.pages.push(page);
    }
    // The layer of target 0 waits for all orders for it.
    pub fn complete(&mut self) { *self.flags |= MOORAGE_ORDERS_COMPLETE as u32; }
    pub fn full(&self) -> bool { self.pages.full() }
    pub fn len(&self) -> usize { self.pages.len() }
}
// A budget plan. Both arrays are [layers] and come filled with the values in force.
pub struct Plan<'a> {
    pub slots: &'a mut [u32],
    pub split: &'a mut [f32],
    pub gain_ns: f64, // expected gain per token over the plan in force; 0: unknown
}

// Every policy. activate allocates all memory, within the limits. Calls of a step allocate none.
pub trait Policy: Sized + 'static {
    const ABOUT: About;
    // Bit i: parameter i should be equal in all policies of this name (module.h).
    const METHOD_PARAMS: u32 = 0;
    // The least minor version of the ABI that the policy works with.
    const MINOR_NEEDED: u32 = 0;
    fn create(setup: &Setup) -> Result<Self, String>;
    fn activate(&mut self, limits: &moorage_limits) -> Result<(), String>;
    fn deactivate(&mut self) {}
    fn reset(&mut self);
}
pub trait Observer: Policy {
    fn observe(&mut self, step: &moorage_step);
}
pub trait Router: Policy {
    // select gets the arrays of the result, [tokens, k]. It returns the number of routed tokens, or
    // 0 to keep the model's choice. ROUTE_FLAGS says whether weights are renormalised
    // (moorage_route.flags).
    const ROUTE_FLAGS: u32 = 0;
    fn select(&mut self, step: &moorage_step, experts: &mut [u32], weights: &mut [f32],
              classes: &mut [u8]) -> u32;
}
pub trait Cache: Policy {
    fn victims(&mut self, room: &moorage_room, out: &mut Pages);
}
pub trait Admit: Cache {
    fn admit(&mut self, admission: &moorage_admission) -> bool;
}
pub trait OnLoad: Cache {
    fn on_load(&mut self, page: u32, segments: u32, cause: i32);
}
pub trait OnEvict: Cache {
    fn on_evict(&mut self, page: u32, cause: i32);
}
pub trait Fill: Cache {
    // Like victims, for pages that fill the free slots.
    fn fill(&mut self, room: &moorage_room, out: &mut Pages);
}
pub trait Hold: Cache {
    fn hold(&mut self, page: u32) -> bool;
}
pub trait GiveUp: Cache {
    // Like victims, for pages to evict although no load needs their room.
    fn give_up(&mut self, room: &moorage_room, out: &mut Pages);
}
pub trait Budget: Policy {
    // Returns true to apply the plan.
    fn plan(&mut self, request: &moorage_budget_request, out: &mut Plan) -> bool;
}
pub trait Interval: Budget {
    fn interval(&mut self) -> u64;
}
pub trait Prefetch: Policy {
    fn horizon(&mut self) -> u32;
    fn plan(&mut self, step: &moorage_step, forecast: &moorage_forecast, out: &mut Orders);
}
pub trait Predict: Prefetch {
    fn predict(&mut self, step: &moorage_step, layer: u32, distance: u32, experts: &mut [u32],
               scores: &mut [f32]) -> u32;
}
pub trait Prediction: Prefetch {
    // MOORAGE_FROM_*: the input that the source predicts from.
    fn prediction(&mut self) -> u32;
}
pub trait PrefetchOutcome: Prefetch {
    fn outcome(&mut self, outcome: &moorage_prefetch_outcome);
}
pub trait Dispatch: Policy {
    // Sets one device per item, and the order in which to take the items. Returns the number of
    // items, or 0 to keep both as they come: each item on its own device.
    fn assign(&mut self, step: &moorage_step, items: &moorage_items, devices: &mut [u32],
              order: &mut [u32]) -> u32;
}
pub trait DispatchOutcome: Dispatch {
    fn outcome(&mut self, outcome: &moorage_dispatched);
}
pub trait Transport: Policy {
    fn submit(&mut self, transfer: &moorage_transfer);
    fn cancel(&mut self, id: u32);
    fn promote(&mut self, id: u32, cause: i32);
    // Transfer and bytes of the next piece, for an idle link.
    fn next(&mut self, link: u32) -> Option<(u32, u64)>;
}
pub trait Placement: Policy {
    // Pushes the copies of the plan. Returns a text if no plan exists.
    fn plan(&mut self, cluster: &moorage_cluster, demand: &moorage_demand, current: &[moorage_copy],
            copies: &mut Copies) -> Result<(), String>;
}
pub trait Adopt: Placement {
    // If it is not implemented, the host applies Prism's Eq. 4.
    fn adopt(&mut self, movement: &moorage_move) -> bool;
}
pub trait Facts: Policy {
    // Fills facts about the run or the last plan and returns their number. Names are text!("...").
    fn facts(&mut self, out: &mut [moorage_fact]) -> u32;
}
// The copies of a plan, in any order and without duplicates.
pub struct Copies<'a> { data: &'a mut [moorage_copy], count: usize }
impl Copies<'_> {
    pub fn push(&mut self, expert: u32, device: u32) {
        if let Some(copy) = self.data.get_mut(self.count) {
            *copy = moorage_copy { expert, device };
            self.count += 1;
        }
    }
}
macro_rules! thunks {
    ($($trait:ident: $type:ident $empty:tt {
        $($slot:ident($($arg:ident: $arg_type:ty),*) $(-> $ret:ty)?;
          |$policy:ident $(, $host:ident)?| $body:expr;)*
    })*) => {$(
        impl<P: $trait> Table<P, $type> {
            $(pub unsafe extern "C" fn $slot(
                plugin: *mut moorage_plugin $(, $arg: $arg_type)*
            ) $(-> $ret)? {
                $(let $host = (*(plugin as *mut Holder<P>)).host;)?
                guard::<P, _>(plugin, |$policy| $body)
            })*
            pub const TABLE: $type = $type {
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
    Router: moorage_router { size: 0, flags: 0, select: None } {
        select(step: *const moorage_step, out: *mut moorage_route) -> u32; |p| {
            let n = (*step).token_count as usize * (*step).top_k as usize;
            (*out).flags |= P::ROUTE_FLAGS;
            p.select(&*step, view_mut((*out).host_experts, n), view_mut((*out).host_weights, n),
                     view_mut((*out).host_classes, n))
        };
    }
    Cache: moorage_cache {
        size: 0, flags: 0, victims: None, admit: None, on_load: None, on_evict: None, fill: None,
        hold: None, give_up: None
    } {
        victims(room: *const moorage_room, out: *mut u32) -> u32; |p| {
            let data = view_mut(out, (*room).count as usize);
            let mut pages = Pages { data, count: 0 };
            p.victims(&*room, &mut pages);
            pages.count as u32
        };
    }
    Budget: moorage_budget { size: 0, flags: 0, plan: None, interval: None } {
        plan(request: *const moorage_budget_request, out: *mut moorage_budget_plan)
                -> u32; |p| {
            let n = (*request).layers as usize;
            let (slots, split) = (view_mut((*out).host_slots, n), view_mut((*out).host_split, n));
            let mut plan = Plan { slots, split, gain_ns: (*out).gain_ns };
            let apply = p.plan(&*request, &mut plan);
            (*out).gain_ns = plan.gain_ns;
            apply as u32
        };
    }
    Prefetch: moorage_prefetch {
        size: 0, flags: 0, horizon: None, predict: None, plan: None, outcome: None,
        prediction: None
    } {
        horizon() -> u32; |p| p.horizon();
        plan(step: *const moorage_step, forecast: *const moorage_forecast, out: *mut moorage_orders)
                -> u32; |p| {
            let n = (*out).capacity as usize;
            let pages = Pages { data: view_mut((*out).host_pages, n), count: 0 };
            let segments = view_mut((*out).host_segments, n);
            let places = view_mut((*out).host_places, n);
            let mut list = Orders { pages, segments, places, flags: &mut (*out).flags };
            p.plan(&*step, &*forecast, &mut list);
            list.pages.count as u32
        };
    }
    Dispatch: moorage_dispatch { size: 0, flags: 0, assign: None, outcome: None } {
        assign(step: *const moorage_step, items: *const moorage_items, devices: *mut u32,
               order: *mut u32) -> u32; |p| {
            let n = (*items).count as usize;
            p.assign(&*step, &*items, view_mut(devices, n), view_mut(order, n))
        };
    }
    Transport: moorage_transport {
        size: 0, flags: 0, submit: None, cancel: None, promote: None, next: None
    } {
        submit(transfer: *const moorage_transfer); |p| p.submit(&*transfer);
        cancel(id: u32); |p| p.cancel(id);
        promote(id: u32, cause: i32); |p| p.promote(id, cause);
        next(link: u32, out: *mut moorage_piece) -> u32; |p| match p.next(link) {
            Some((id, bytes)) => { (*out).id = id; (*out).bytes = bytes; 1 }
            None => 0,
        };
    }
    Placement: moorage_placement { size: 0, flags: 0, plan: None, adopt: None } {
        plan(cluster: *const moorage_cluster, demand: *const moorage_demand,
             current: *const moorage_copy, current_count: u64, out: *mut moorage_copy,
             count: *mut u64) -> i32; |p, host| {
            *count = 0;
            let current = view(current, current_count as usize);
            let room = (*demand).experts() as usize * (*cluster).devices as usize;
            let mut copies = Copies { data: view_mut(out, room), count: 0 };
            match p.plan(&*cluster, &*demand, current, &mut copies) {
                Ok(()) => { *count = copies.count as u64; MOORAGE_OK }
                Err(message) => failed(host, &message),
            }
        };
    }
}

// Optional calls are traits of their own. The table holds the calls that the type implements, and
// null for the others. For a known type, Found::<Mine>::ADMIT is the thunk if Mine: Admit, else the
// None of Absent.
pub struct Found<P>(PhantomData<P>);
macro_rules! optional {
    ($($name:ident of $trait:ident: ($($arg:ident: $arg_type:ty),*) $(-> $ret:ty)?;
       |$policy:ident| $body:expr;)*) => {
        pub trait Absent {
            $(const $name: Option<
                unsafe extern "C" fn(*mut moorage_plugin $(, $arg_type)*) $(-> $ret)?
            > = None;)*
        }
        $(impl<P: $trait> Found<P> {
            pub const $name: Option<
                unsafe extern "C" fn(*mut moorage_plugin $(, $arg_type)*) $(-> $ret)?
            > = {
                unsafe extern "C" fn thunk<P: $trait>(
                    plugin: *mut moorage_plugin $(, $arg: $arg_type)*
                ) $(-> $ret)? {
                    guard::<P, _>(plugin, |$policy| $body)
                }
                Some(thunk::<P>)
            };
        })*
    };
}
impl<P> Absent for Found<P> {}
optional! {
    OBSERVE of Observer: (step: *const moorage_step); |p| p.observe(&*step);
    ADMIT of Admit: (admission: *const moorage_admission) -> u32; |p| {
        p.admit(&*admission) as u32
    };
    ON_LOAD of OnLoad: (page: u32, segments: u32, cause: i32); |p| p.on_load(page, segments, cause);
    ON_EVICT of OnEvict: (page: u32, cause: i32); |p| p.on_evict(page, cause);
    FILL of Fill: (room: *const moorage_room, out: *mut u32) -> u32; |p| {
        let mut pages = Pages { data: view_mut(out, (*room).count as usize), count: 0 };
        p.fill(&*room, &mut pages);
        pages.count as u32
    };
    HOLD of Hold: (page: u32) -> u32; |p| p.hold(page) as u32;
    GIVE_UP of GiveUp: (room: *const moorage_room, out: *mut u32) -> u32; |p| {
        let mut pages = Pages { data: view_mut(out, (*room).count as usize), count: 0 };
        p.give_up(&*room, &mut pages);
        pages.count as u32
    };
    INTERVAL of Interval: () -> u64; |p| p.interval();
    PREDICT of Predict: (step: *const moorage_step, layer: u32, distance: u32, capacity: u32,
                         experts: *mut u32, scores: *mut f32) -> u32; |p| {
        let n = capacity as usize;
        p.predict(&*step, layer, distance, view_mut(experts, n), view_mut(scores, n))
    };
    PREDICTION of Prediction: () -> u32; |p| p.prediction();
    PREFETCH_OUTCOME of PrefetchOutcome: (outcome: *const moorage_prefetch_outcome); |p| {
        p.outcome(&*outcome)
    };
    DISPATCH_OUTCOME of DispatchOutcome: (outcome: *const moorage_dispatched); |p| {
        p.outcome(&*outcome)
    };
    ADOPT of Adopt: (movement: *const moorage_move) -> u32; |p| p.adopt(&*movement) as u32;
    FACTS of Facts: (out: *mut moorage_fact, capacity: u32) -> u32; |p| {
        p.facts(view_mut(out, capacity as usize))
    };
}

// The kinds that a type implements, found in the same way: bits, compared with the list of
// moorage_policy!.
macro_rules! kinds {
    ($($name:ident of $trait:ident = $bit:expr;)*) => {
        pub trait OfNoKind { $(const $name: u32 = 0;)* }
        $(impl<P: $trait> Found<P> { pub const $name: u32 = $bit; })*
    };
}
impl<P> OfNoKind for Found<P> {}
kinds! {
    IS_OBSERVER of Observer = 1;
    IS_ROUTER of Router = 2;
    IS_CACHE of Cache = 4;
    IS_BUDGET of Budget = 8;
    IS_PREFETCH of Prefetch = 16;
    IS_DISPATCH of Dispatch = 32;
    IS_TRANSPORT of Transport = 64;
    IS_PLACEMENT of Placement = 128;
    IS_FACTS of Facts = 256;
    IS_WIRE of Wire = 512;
}

// An instance. The C struct comes first, so the host's pointer is a pointer to it.
#[repr(C)]
pub struct Holder<P> { plugin: moorage_plugin, host: Host, policy: P }

// The text of a panic.
fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}
// Runs `work` on the policy. A panic ends the process: the policy's advice is then unknown, and
// nothing else may replace it. The host prints policy, place and this text.
unsafe fn guard<P, R>(plugin: *mut moorage_plugin, work: impl FnOnce(&mut P) -> R) -> R {
    let holder = plugin as *mut Holder<P>;
    let host = (*holder).host;
    catch_unwind(AssertUnwindSafe(|| work(&mut (*holder).policy))).unwrap_or_else(|panic| {
        host.set_error(&format!("panic: {}", panic_text(&*panic)));
        std::process::abort()
    })
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
        match guard::<P, _>(plugin, |p| p.activate(&*limits)) {
            Ok(()) => MOORAGE_OK,
            Err(message) => failed(host, &message),
        }
    }
    unsafe extern "C" fn deactivate(plugin: *mut moorage_plugin) {
        guard::<P, _>(plugin, |p| p.deactivate())
    }
    unsafe extern "C" fn reset(plugin: *mut moorage_plugin) {
        guard::<P, _>(plugin, |p| p.reset())
    }
    // moorage_module.create for a library with one policy.
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
        let policy = catch_unwind(AssertUnwindSafe(|| P::create(&setup)));
        match policy.unwrap_or_else(|panic| Err(format!("panic: {}", panic_text(&*panic)))) {
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

// Constant records that hold pointers. Nothing ever writes through them.
pub struct Shared<T>(pub T);
unsafe impl<T> Sync for Shared<T> {}

// The kind names of moorage_policy!: id and table.
macro_rules! kind {
    (id OBSERVER) => { $crate::moorage::MOORAGE_INTERFACE_OBSERVER };
    (id FACTS) => { $crate::moorage::MOORAGE_INTERFACE_FACTS };
    (id ROUTER) => { $crate::moorage::MOORAGE_INTERFACE_ROUTER };
    (id REPLAY) => { $crate::moorage::MOORAGE_INTERFACE_REPLAY };
    (id CACHE) => { $crate::moorage::MOORAGE_INTERFACE_CACHE };
    (id BUDGET) => { $crate::moorage::MOORAGE_INTERFACE_BUDGET };
    (id PREFETCH) => { $crate::moorage::MOORAGE_INTERFACE_PREFETCH };
    (id DISPATCH) => { $crate::moorage::MOORAGE_INTERFACE_DISPATCH };
    (id TRANSPORT) => { $crate::moorage::MOORAGE_INTERFACE_TRANSPORT };
    (id PLACEMENT) => { $crate::moorage::MOORAGE_INTERFACE_PLACEMENT };
    (id WIRE) => { $crate::moorage::MOORAGE_INTERFACE_WIRE };
    (type OBSERVER) => { moorage_observer };
    (type FACTS) => { moorage_facts };
    (type ROUTER) => { moorage_router };
    (type REPLAY) => { moorage_replayer };
    (type CACHE) => { moorage_cache };
    (type BUDGET) => { moorage_budget };
    (type PREFETCH) => { moorage_prefetch };
    (type DISPATCH) => { moorage_dispatch };
    (type TRANSPORT) => { moorage_transport };
    (type PLACEMENT) => { moorage_placement };
    (type WIRE) => { moorage_wire };
    (bit OBSERVER) => { 1 };
    (bit ROUTER) => { 2 };
    (bit REPLAY) => { 0 };
    (bit CACHE) => { 4 };
    (bit BUDGET) => { 8 };
    (bit PREFETCH) => { 16 };
    (bit DISPATCH) => { 32 };
    (bit TRANSPORT) => { 64 };
    (bit PLACEMENT) => { 128 };
    (bit FACTS) => { 256 };
    (bit WIRE) => { 512 };
    (table OBSERVER $policy:ty) => {
        moorage_observer {
            size: std::mem::size_of::<moorage_observer>() as u32,
            flags: 0,
            observe: Found::<$policy>::OBSERVE,
        }
    };
    (table FACTS $policy:ty) => {
        moorage_facts {
            size: std::mem::size_of::<moorage_facts>() as u32,
            flags: 0,
            facts: Found::<$policy>::FACTS,
        }
    };
    (table ROUTER $policy:ty) => { Table::<$policy, moorage_router>::TABLE };
    (table CACHE $policy:ty) => {
        moorage_cache {
            admit: Found::<$policy>::ADMIT,
            on_load: Found::<$policy>::ON_LOAD,
            on_evict: Found::<$policy>::ON_EVICT,
            fill: Found::<$policy>::FILL,
            hold: Found::<$policy>::HOLD,
            give_up: Found::<$policy>::GIVE_UP,
            ..Table::<$policy, moorage_cache>::TABLE
        }
    };
    // Beside CACHE: the fast path of counting replays, made from the cache's calls.
    (table REPLAY $policy:ty) => {{
        struct Calls;
        impl Replayed for Calls {
            const VICTIMS: unsafe extern "C" fn(
                *mut moorage_plugin, *const moorage_room, *mut u32,
            ) -> u32 = Table::<$policy, moorage_cache>::victims;
            const OBSERVE: Option<unsafe extern "C" fn(*mut moorage_plugin, *const moorage_step)> =
                Found::<$policy>::OBSERVE;
            const ADMIT: Option<
                unsafe extern "C" fn(*mut moorage_plugin, *const moorage_admission) -> u32,
            > = Found::<$policy>::ADMIT;
            const ON_LOAD: Option<unsafe extern "C" fn(*mut moorage_plugin, u32, u32, i32)> =
                Found::<$policy>::ON_LOAD;
            const ON_EVICT: Option<unsafe extern "C" fn(*mut moorage_plugin, u32, i32)> =
                Found::<$policy>::ON_EVICT;
        }
        moorage_replayer {
            size: std::mem::size_of::<moorage_replayer>() as u32,
            flags: MOORAGE_REPLAY_DERIVED,
            replay: Some(replay::<Calls>),
        }
    }};
    (table BUDGET $policy:ty) => {
        moorage_budget {
            interval: Found::<$policy>::INTERVAL,
            ..Table::<$policy, moorage_budget>::TABLE
        }
    };
    (table PREFETCH $policy:ty) => {
        moorage_prefetch {
            predict: Found::<$policy>::PREDICT,
            outcome: Found::<$policy>::PREFETCH_OUTCOME,
            prediction: Found::<$policy>::PREDICTION,
            ..Table::<$policy, moorage_prefetch>::TABLE
        }
    };
    (table DISPATCH $policy:ty) => {
        moorage_dispatch {
            outcome: Found::<$policy>::DISPATCH_OUTCOME,
            ..Table::<$policy, moorage_dispatch>::TABLE
        }
    };
    (table TRANSPORT $policy:ty) => { Table::<$policy, moorage_transport>::TABLE };
    (table PLACEMENT $policy:ty) => {
        moorage_placement {
            adopt: Found::<$policy>::ADOPT,
            ..Table::<$policy, moorage_placement>::TABLE
        }
    };
    (table WIRE $policy:ty) => {
        moorage_wire {
            pace: Found::<$policy>::PACE,
            remember: Found::<$policy>::REMEMBER,
            forget: Found::<$policy>::FORGET,
            ..Table::<$policy, moorage_wire>::TABLE
        }
    };
}

// Exports a library with one policy: id, version, type and the kinds that it answers for.
macro_rules! moorage_policy {
    ($id:expr, $version:expr, $policy:ty, [$($kind:ident),+]) => {
        const _: () = {
            use std::os::raw::{c_char, c_void};
            use $crate::moorage::*;
            const IMPLEMENTED: u32 = Found::<$policy>::IS_OBSERVER | Found::<$policy>::IS_ROUTER
                | Found::<$policy>::IS_CACHE | Found::<$policy>::IS_BUDGET
                | Found::<$policy>::IS_PREFETCH | Found::<$policy>::IS_DISPATCH
                | Found::<$policy>::IS_TRANSPORT | Found::<$policy>::IS_PLACEMENT
                | Found::<$policy>::IS_FACTS
                | Found::<$policy>::IS_WIRE;
            const _: () = assert!(IMPLEMENTED == $(kind!(bit $kind))|+,
                "the type implements a kind that moorage_policy! does not list");
            unsafe extern "C" fn get_interface(
                _plugin: *mut moorage_plugin, id: *const c_char,
            ) -> *const c_void {
                let id = std::ffi::CStr::from_ptr(id).to_bytes_with_nul();
                $(if id == kind!(id $kind).as_bytes() {
                    static TABLE: Shared<kind!(type $kind)> = Shared(kind!(table $kind $policy));
                    return &TABLE.0 as *const _ as *const c_void;
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
                method_params: <$policy>::METHOD_PARAMS,
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
                abi_minor_needed: <$policy>::MINOR_NEEDED,
                init: None,
                deinit: None,
                descriptor: Some(descriptor),
                create: Some(create),
            });
            #[no_mangle]
            pub extern "C" fn moorage_module_v2() -> *const moorage_module { &RECORD.0 }
        };
    };
}
