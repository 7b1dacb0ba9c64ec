// wire.rs - the trait of wires (wire.h) and their table; moorage.rs includes it.
//
// `wake` comes from any thread, also while another call runs. So all calls take &self. Keep state
// that a wire changes behind a Mutex or atomic.

pub trait Wire: Policy + Sync {
    fn open(&self, limits: &moorage_wire_limits) -> Result<(), String>;
    // Returns the number of the listener and the bound address.
    fn listen(&self, address: &str) -> Result<(u64, String), String>;
    fn connect(&self, target: &moorage_wire_target) -> Result<u64, String>;
    // MOORAGE_WIRE_DONE, TAKEN, FULL or GONE. A text if the message is refused.
    fn send(&self, connection: u64, parts: &[moorage_wire_part], user: u64) -> Result<u32, String>;
    // Fills events, which come empty, and returns their number. Texts stay until the next poll,
    // lent messages until their release.
    fn poll(&self, events: &mut [moorage_wire_event], wait_ns: u64) -> u32;
    fn wake(&self);
    fn release(&self, message: u64);
    fn close(&self, number: u64, at_once: bool);
}
pub trait Pace: Wire {
    fn pace(&self, connection: u64, bytes_per_s: u64);
}
pub trait Remember: Wire {
    fn remember(&self, memory: *const c_void, bytes: u64) -> Result<u64, String>;
    fn forget(&self, memory: u64);
}

impl moorage_wire_target {
    pub fn addresses(&self) -> Vec<String> {
        let addresses = unsafe { view(self.host_addresses, self.address_count as usize) };
        addresses.iter().map(|&text| unsafe { text_of(text) }).collect()
    }
    // The identity that the peer must prove; "": any peer.
    pub fn identity(&self) -> String { unsafe { text_of(self.host_identity) } }
}
impl moorage_wire_part {
    pub fn bytes(&self) -> &[u8] { unsafe { view(self.host_data as *const u8, self.bytes as usize) } }
}
unsafe fn text_of(text: *const c_char) -> String {
    if text.is_null() { return String::new(); }
    CStr::from_ptr(text).to_string_lossy().into_owned()
}

pub const EMPTY_WIRE_EVENT: moorage_wire_event = moorage_wire_event {
    kind: 0, channel: 0, reason: 0, flags: 0, connection: 0, listener: 0, user: 0, message: 0,
    plugin_data: ptr::null(), bytes: 0, plugin_identity: text!(""), plugin_address: text!(""),
    plugin_text: text!(""), count: 0, reserved: 0,
};

// Like guard(), for calls that may come while another one runs.
unsafe fn guard_shared<P, R>(plugin: *mut moorage_plugin, work: impl FnOnce(&P, Host) -> R) -> R {
    let holder = plugin as *const Holder<P>;
    let host = (*holder).host;
    catch_unwind(AssertUnwindSafe(|| work(&(*holder).policy, host))).unwrap_or_else(|panic| {
        host.set_error(&format!("panic: {}", panic_text(&*panic)));
        std::process::abort()
    })
}
fn status_of(host: Host, done: Result<(), String>) -> i32 {
    match done {
        Ok(()) => MOORAGE_OK,
        Err(message) => unsafe { failed(host, &message) },
    }
}

impl<P: Wire> Table<P, moorage_wire> {
    unsafe extern "C" fn open(plugin: *mut moorage_plugin, limits: *const moorage_wire_limits)
        -> i32 {
        guard_shared::<P, _>(plugin, |p, host| status_of(host, p.open(&*limits)))
    }
    unsafe extern "C" fn listen(
        plugin: *mut moorage_plugin, address: *const c_char, bound: *mut c_char, number: *mut u64,
    ) -> i32 {
        guard_shared::<P, _>(plugin, |p, host| {
            let status = p.listen(&text_of(address)).map(|(listener, text)| {
                let room = view_mut(bound as *mut u8, MOORAGE_WIRE_ADDRESS_MAX as usize);
                let count = text.len().min(room.len() - 1);
                room[..count].copy_from_slice(&text.as_bytes()[..count]);
                room[count] = 0;
                *number = listener;
            });
            status_of(host, status)
        })
    }
    unsafe extern "C" fn connect(
        plugin: *mut moorage_plugin, target: *const moorage_wire_target, number: *mut u64,
    ) -> i32 {
        guard_shared::<P, _>(plugin, |p, host| {
            status_of(host, p.connect(&*target).map(|connection| *number = connection))
        })
    }
    unsafe extern "C" fn send(
        plugin: *mut moorage_plugin, connection: u64, parts: *const moorage_wire_part, count: u32,
        user: u64,
    ) -> u32 {
        guard_shared::<P, _>(plugin, |p, host| {
            p.send(connection, view(parts, count as usize), user).unwrap_or_else(|message| {
                host.set_error(&message);
                MOORAGE_WIRE_REFUSED
            })
        })
    }
    unsafe extern "C" fn poll(
        plugin: *mut moorage_plugin, events: *mut moorage_wire_event, capacity: u32, wait_ns: u64,
    ) -> u32 {
        guard_shared::<P, _>(plugin, |p, _| {
            let room = view_mut(events, capacity as usize);
            room.fill(EMPTY_WIRE_EVENT);
            p.poll(room, wait_ns)
        })
    }
    unsafe extern "C" fn wake(plugin: *mut moorage_plugin) {
        guard_shared::<P, _>(plugin, |p, _| p.wake())
    }
    unsafe extern "C" fn release(plugin: *mut moorage_plugin, message: u64) {
        guard_shared::<P, _>(plugin, |p, _| p.release(message))
    }
    unsafe extern "C" fn close(plugin: *mut moorage_plugin, number: u64, at_once: u32) {
        guard_shared::<P, _>(plugin, |p, _| p.close(number, at_once != 0))
    }
    pub const TABLE: moorage_wire = moorage_wire {
        size: std::mem::size_of::<moorage_wire>() as u32,
        flags: 0,
        open: Some(Self::open),
        listen: Some(Self::listen),
        connect: Some(Self::connect),
        send: Some(Self::send),
        poll: Some(Self::poll),
        wake: Some(Self::wake),
        release: Some(Self::release),
        close: Some(Self::close),
        pace: None,
        remember: None,
        forget: None,
    };
}

// Thunks of the optional calls, for Found.
pub unsafe extern "C" fn pace_thunk<P: Pace>(
    plugin: *mut moorage_plugin, connection: u64, bytes_per_s: u64,
) {
    guard_shared::<P, _>(plugin, |p, _| p.pace(connection, bytes_per_s))
}
pub unsafe extern "C" fn remember_thunk<P: Remember>(
    plugin: *mut moorage_plugin, memory: *const c_void, bytes: u64, number: *mut u64,
) -> i32 {
    guard_shared::<P, _>(plugin, |p, host| {
        status_of(host, p.remember(memory, bytes).map(|memory_number| *number = memory_number))
    })
}
pub unsafe extern "C" fn forget_thunk<P: Remember>(plugin: *mut moorage_plugin, memory: u64) {
    guard_shared::<P, _>(plugin, |p, _| p.forget(memory))
}
pub trait AbsentInWires {
    const PACE: Option<unsafe extern "C" fn(*mut moorage_plugin, u64, u64)> = None;
    const REMEMBER: Option<
        unsafe extern "C" fn(*mut moorage_plugin, *const c_void, u64, *mut u64) -> i32,
    > = None;
    const FORGET: Option<unsafe extern "C" fn(*mut moorage_plugin, u64)> = None;
}
impl<P> AbsentInWires for Found<P> {}
impl<P: Pace> Found<P> {
    pub const PACE: Option<unsafe extern "C" fn(*mut moorage_plugin, u64, u64)> =
        Some(pace_thunk::<P>);
}
impl<P: Remember> Found<P> {
    pub const REMEMBER: Option<
        unsafe extern "C" fn(*mut moorage_plugin, *const c_void, u64, *mut u64) -> i32,
    > = Some(remember_thunk::<P>);
    pub const FORGET: Option<unsafe extern "C" fn(*mut moorage_plugin, u64)> =
        Some(forget_thunk::<P>);
}
