// replay.rs - the fast path of counting replays, made from a policy's own calls. Part of
// moorage.rs.
//
// It does what the host does step by step. The host lends its residency words for the call.
// replay.hpp does the same for C++. The host checks every outcome.

// The calls of a cache policy, known at compile time. moorage_policy! implements it.
pub trait Replayed {
    const VICTIMS: unsafe extern "C" fn(*mut moorage_plugin, *const moorage_room, *mut u32) -> u32;
    const OBSERVE: Option<unsafe extern "C" fn(*mut moorage_plugin, *const moorage_step)>;
    const ADMIT: Option<unsafe extern "C" fn(*mut moorage_plugin, *const moorage_admission) -> u32>;
    const ON_LOAD: Option<unsafe extern "C" fn(*mut moorage_plugin, u32, u32, i32)>;
    const ON_EVICT: Option<unsafe extern "C" fn(*mut moorage_plugin, u32, i32)>;
}

pub unsafe extern "C" fn replay<C: Replayed>(
    plugin: *mut moorage_plugin, run: *const moorage_replay,
) {
    let view = *(*(plugin as *mut Holder<()>)).host.residency();
    let mut replayer = Replayer { plugin, run: *run, view, calls: PhantomData::<C> };
    replayer.tokens();
}

struct Replayer<C> {
    plugin: *mut moorage_plugin,
    run: moorage_replay,
    view: moorage_residency, // by value: its counts stay in registers
    calls: PhantomData<C>,
}
impl<C: Replayed> Replayer<C> {
    unsafe fn tokens(&mut self) {
        let run = self.run;
        let (stream, mut step): (u32, moorage_step) = (0, std::mem::zeroed());
        step.size = std::mem::size_of::<moorage_step>() as u32;
        step.phase = MOORAGE_DECODE;
        step.token_count = 1;
        step.top_k = run.width;
        step.distinct_count = run.width;
        step.experts = self.view.experts;
        step.index = run.first_step;
        step.visit = run.first_visit;
        step.host_streams = &stream;
        let (mut experts, mut outcomes) = (run.host_experts, run.host_outcomes);
        for token in 0..run.token_count as usize {
            step.token = run.first_token + token as u64;
            step.host_requests = run.host_requests.add(token);
            for _ in 0..run.rounds {
                for layer in 0..self.view.layers {
                    step.layer = layer;
                    for _ in 0..run.repeats {
                        step.host_chosen = experts;
                        step.host_distinct = experts;
                        self.step(&step, experts, outcomes);
                        step.index += 1;
                        experts = experts.add(run.width as usize);
                        outcomes = outcomes.add(run.width as usize);
                    }
                    step.visit += 1;
                }
            }
        }
    }

    unsafe fn step(&mut self, step: &moorage_step, experts: *const u32, outcomes: *mut u32) {
        let first = step.layer * self.view.experts;
        let width = self.run.width as usize;
        let state = |i: usize| self.run.host_state.add((first + *experts.add(i)) as usize);
        let mut misses = 0;
        for i in 0..width {
            let absent = *state(i) == 0;
            misses += absent as u32;
            *outcomes.add(i) = if absent { 0 } else { MOORAGE_REPLAY_KEPT };
            *state(i) |= MOORAGE_STATE_PINNED;
        }
        if let Some(observe) = C::OBSERVE { observe(self.plugin, step); }
        if misses > 0 { self.make_room(step.layer, misses, experts, outcomes); }
        for i in 0..width { *state(i) &= !MOORAGE_STATE_PINNED; }
    }

    unsafe fn make_room(&self, layer: u32, misses: u32, experts: *const u32, outcomes: *mut u32) {
        let pool = if self.view.pools == 1 { 0 } else { layer };
        let slots = *self.view.host_slots.add(pool as usize);
        let mut spare = slots.saturating_sub(*self.run.host_used.add(pool as usize));
        let (mut victims, mut got, mut next) = ([0u32; 64], 0, 0);
        let count = misses.saturating_sub(spare).min(slots).min(victims.len() as u32);
        if count > 0 {
            let size = std::mem::size_of::<moorage_room>() as u32;
            let need = moorage_room { size, flags: 0, pool, layer, count, cause: MOORAGE_DEMAND };
            got = (C::VICTIMS)(self.plugin, &need, victims.as_mut_ptr()).min(count) as usize;
        }
        for i in 0..self.run.width as usize {
            if *outcomes.add(i) == MOORAGE_REPLAY_KEPT { continue; }
            let full = spare == 0;
            let mut victim = MOORAGE_NONE;
            if full && next < got {
                victim = victims[next];
                next += 1;
            }
            let page = layer * self.view.experts + *experts.add(i);
            let outcome = self.load(page, pool, victim, full);
            *outcomes.add(i) = outcome;
            spare -= (!full && outcome != MOORAGE_REPLAY_BYPASS) as u32;
        }
    }

    // Loads a page that is not resident, into a free slot or into the victim's place.
    unsafe fn load(&self, page: u32, pool: u32, victim: u32, full: bool) -> u32 {
        if full && victim == MOORAGE_NONE { return MOORAGE_REPLAY_BYPASS; }
        let (segments, cause) = (MOORAGE_WHOLE, MOORAGE_DEMAND);
        if let Some(admit) = C::ADMIT {
            let size = std::mem::size_of::<moorage_admission>() as u32;
            let ask = moorage_admission { size, flags: 0, page, victim, segments, cause };
            if admit(self.plugin, &ask) == 0 { return MOORAGE_REPLAY_BYPASS; }
        }
        if full {
            if victim >= self.view.layers * self.view.experts { return victim; } // the host objects
            *self.run.host_state.add(victim as usize) &=
                !(MOORAGE_STATE_RESIDENT | MOORAGE_STATE_IN_FLIGHT);
            if let Some(on_evict) = C::ON_EVICT { on_evict(self.plugin, victim, cause); }
        } else {
            *self.run.host_used.add(pool as usize) += 1;
        }
        *self.run.host_state.add(page as usize) |= MOORAGE_WHOLE;
        if let Some(on_load) = C::ON_LOAD { on_load(self.plugin, page, segments, cause); }
        if full { victim } else { MOORAGE_REPLAY_KEPT }
    }
}
