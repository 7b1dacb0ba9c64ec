// device.cpp - memory, copies, launches and failures of the pretended GPU.
#include "tests/gpu/pretended/device.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace pretended {

namespace {

constexpr gpu_limits gpus[] = {{"sm_75", 75, 64u << 10},
                               {"sm_80", 80, 163u << 10},
                               {"sm_86", 86, 99u << 10},
                               {"sm_89", 89, 99u << 10},
                               {"sm_90", 90, 227u << 10}};

constexpr size_t large_bytes = 4 << 20;

// An invalid setting would give a check that checks nothing, so it ends the program.
[[noreturn]] void refuse(const char *name, const std::string &value) {
    std::fprintf(stderr, "%s=%s means nothing to the pretended GPU\n", name, value.c_str());
    std::abort();
}

uint64_t figure(const char *name, uint64_t otherwise) {
    const char *text = std::getenv(name);
    return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

gpu_limits limits_of(const std::string &name) {
    for (const gpu_limits &one : gpus)
        if (name == one.name) return one;
    refuse("PRETENDED_GPU", name);
}

settings from_environment() {
    settings out;
    out.seed = static_cast<uint32_t>(figure("PRETENDED_SEED", out.seed));
    out.memory_bytes = figure("PRETENDED_BYTES", out.memory_bytes);
    out.devices = static_cast<uint32_t>(figure("PRETENDED_DEVICES", out.devices));
    out.moves = figure("PRETENDED_MOVES", out.moves);
    out.deaf = figure("PRETENDED_DEAF", 0) != 0;
    if (const char *gpu = std::getenv("PRETENDED_GPU")) out.gpu = gpu;
    out.compiled_for = static_cast<uint32_t>(figure("PRETENDED_COMPILED_FOR", out.compiled_for));
    if (const char *text = std::getenv("PRETENDED_ORDER")) {
        constexpr const char *names[] = {"drawn", "eager", "lazy", "threads"};
        const auto found = std::ranges::find(names, std::string(text));
        if (found == std::end(names)) refuse("PRETENDED_ORDER", text);
        out.how = static_cast<order>(found - names);
    }
    if (const char *text = std::getenv("PRETENDED_FAIL")) {
        const std::string all = text;
        const size_t colon = all.find(':');
        if (colon == std::string::npos) refuse("PRETENDED_FAIL", all);
        out.fail_call = all.substr(0, colon);
        out.fail_at = std::strtoull(all.c_str() + colon + 1, nullptr, 10);
        out.fail_on = all.back() == '+';
        out.breaks = all.back() == '!';
    }
    return out;
}

std::unique_ptr<device> &current() {
    static std::unique_ptr<device> one = [] {
        auto made = std::make_unique<device>(from_environment());
        if (std::getenv("PRETENDED_CLOCK"))
            made->rates =
                pretended_rates{2e-6, 8e-6, 6e-6, 25e9, 20e9, 1e12, 32 << 20, 3e12, 5e11, 1e14};
        return made;
    }();
    return one;
}

cudaError_t failure_of(const std::string &call) {
    if (call == "cudaMalloc" || call == "cudaHostAlloc") return cudaErrorMemoryAllocation;
    if (call == "cudaLaunchKernel" || call == "cudaGraphLaunch") return cudaErrorLaunchFailure;
    if (call == "cudaStreamEndCapture") return cudaErrorStreamCaptureInvalidated;
    return cudaErrorUnknown;
}

}  // namespace

device &now() { return *current(); }

void begin(const settings &how) {
    if (!now().alive().none()) {
        std::fprintf(stderr, "the last pretended GPU is still in use\n");
        std::abort();
    }
    current() = std::make_unique<device>(how);
}
objects alive() { return now().alive(); }
uint64_t calls(const std::string &name) { return now().calls(name); }
uint64_t copies(int priority) { return now().copies(priority); }

device::device(const settings &how)
    : streams(how),
      how_(how),
      limits_(limits_of(how.gpu)),
      used_(how.devices),
      allocations_(how.devices) {}

cudaError_t device::reach(uint32_t peer) {
    if (peer >= how_.devices || peer == current) return cudaErrorInvalidDevice;
    if (!how_.peers) return cudaErrorPeerAccessUnsupported;
    return reach_.insert({current, peer}).second ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled;
}

bool device::reaches(uint32_t by, const void *at) const {
    const uint32_t its =
        std::prev(blocks_.upper_bound(static_cast<const std::byte *>(at)))->second.device;
    return its == by || reach_.contains({by, its});
}

cudaError_t device::enter(const char *call, bool unsafe_in_capture) {
    const uint64_t number = ++calls_[call];
    const bool due = how_.fail_call == call && number == how_.fail_at;
    const bool later = how_.fail_on && how_.fail_call == call && number > how_.fail_at;
    broken_ = broken_ || (due && how_.breaks);
    if (due || later || broken_) return failure_of(how_.fail_call);
    return unsafe_in_capture ? recorded.unsafe_call() : cudaSuccess;
}

uint64_t device::calls(const std::string &name) const {
    const auto found = calls_.find(name);
    return found == calls_.end() ? 0 : found->second;
}

objects device::alive() const {
    objects out;
    for (const auto &[at, one] : blocks_) ++(one.pinned ? out.pinned : out.memory);
    out.streams = streams.count();
    out.events = events;
    out.graphs = graphs;
    out.libraries = libraries;
    return out;
}

cudaError_t device::allocate(void **out, size_t bytes, bool pinned, bool mapped) {
    if (!pinned && bytes > free_bytes()) return cudaErrorMemoryAllocation;
    *out = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    // Fills memory with NaN, so that unwritten values show. If nothing is computed, the numbers in
    // memory are the results. Large memory is not touched, since that would take longer than the
    // run.
    std::memset(*out, rates ? 0 : 0xff, std::min(bytes, large_bytes));
    blocks_[static_cast<std::byte *>(*out)] = {bytes, pinned, mapped, current};
    if (!pinned) used_[current] += bytes, ++allocations_[current];
    return cudaSuccess;
}

// Work under way ends first, as on a GPU.
cudaError_t device::release(void *memory, bool pinned) {
    const auto found = blocks_.find(static_cast<std::byte *>(memory));
    if (found == blocks_.end() || found->second.pinned != pinned) return cudaErrorInvalidValue;
    for (uint32_t device = 0; device < how_.devices; ++device) (void)streams.finish(device);
    if (!pinned) used_[found->second.device] -= found->second.bytes;
    blocks_.erase(found);
    std::free(memory);
    return cudaSuccess;
}

device::place device::place_of(const void *at, size_t bytes) const {
    const auto *first = static_cast<const std::byte *>(at);
    auto found = blocks_.upper_bound(first);
    if (found == blocks_.begin()) return place::pageable;
    --found;
    if (first >= found->first + found->second.bytes) return place::pageable;
    if (first + bytes > found->first + found->second.bytes) return place::astray;
    return found->second.pinned ? place::pinned : place::device;
}

// Whether kernels may use this host memory. They fault on any other.
bool device::mapped(const void *at) const {
    const auto found = blocks_.upper_bound(static_cast<const std::byte *>(at));
    return place_of(at, 1) == place::pinned && std::prev(found)->second.mapped;
}

double device::copy_s(size_t bytes, cudaMemcpyKind kind) const {
    if (!rates) return 0;
    const auto count = static_cast<double>(bytes);
    if (kind == cudaMemcpyHostToDevice) return rates->h2d_s + count / rates->h2d_bytes_per_s;
    if (kind == cudaMemcpyDeviceToHost) return rates->d2h_s + count / rates->d2h_bytes_per_s;
    return 2 * count / rates->memory_bytes_per_s;  // read and written
}

// Goes through the legacy stream, for which the others do not wait. Pageable memory has been read
// when this returns, but may not have arrived.
cudaError_t device::copy_now(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
    if (kind != cudaMemcpyHostToDevice || place_of(to, bytes) != place::device)
        return cudaErrorInvalidValue;
    const place source = place_of(from, bytes);
    if (source == place::device || source == place::astray || !reaches(current, to))
        return cudaErrorInvalidValue;
    stream &legacy = streams.legacy(current);
    if (rates || source == place::pinned) {
        (void)streams.finish(legacy);
        std::memcpy(to, from, bytes);
        return cudaSuccess;
    }
    const auto *first = static_cast<const std::byte *>(from);
    return submit(legacy, [to, staged = std::vector<std::byte>(first, first + bytes)] {
        std::memcpy(to, staged.data(), staged.size());
        return 0.0;
    });
}

cudaError_t device::copy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                         stream &on) {
    const place source = place_of(from, bytes), target = place_of(to, bytes);
    if (kind == cudaMemcpyDefault)  // by the addresses
        kind = source != place::device   ? cudaMemcpyHostToDevice
               : target != place::device ? cudaMemcpyDeviceToHost
                                         : cudaMemcpyDeviceToDevice;
    const bool from_host = kind == cudaMemcpyHostToDevice, to_host = kind == cudaMemcpyDeviceToHost;
    const place host = from_host ? source : target;
    const bool right = from_host ? target == place::device && source != place::device
                       : to_host ? source == place::device && target != place::device
                                 : source == place::device && target == place::device;
    if (!right || source == place::astray || target == place::astray) return cudaErrorInvalidValue;
    if ((from_host || to_host) && host == place::pageable && !how_.pageable)
        return cudaErrorInvalidValue;
    // Between devices, or from another's stream, without a request for access.
    if ((source == place::device && !reaches(on.device, from)) ||
        (target == place::device && !reaches(on.device, to)))
        return cudaErrorInvalidValue;
    copies_[on.priority] += from_host;
    return submit(on, [=, this] {
        std::memcpy(to, from, bytes);
        return copy_s(bytes, kind);
    });
}

cudaError_t device::allow_shared(const kernel_entry *kernel, int bytes) {
    if (bytes < 0 ||
        static_cast<uint32_t>(bytes) + kernel->static_shared_bytes > limits_.shared_optin_bytes)
        return cudaErrorInvalidValue;
    allowed_[{current, kernel}] = static_cast<uint32_t>(bytes);
    return cudaSuccess;
}

cudaError_t device::launch(const kernel_entry *kernel, dim3 grid, dim3 block, const void *arguments,
                           size_t shared_bytes, stream &on) {
    if (on.device != current) return cudaErrorInvalidResourceHandle;
    const bool sized = grid.x >= 1 && grid.y >= 1 && grid.z >= 1 && grid.x <= grid_x_max &&
                       grid.y <= grid_yz_max && grid.z <= grid_yz_max;
    if (!sized || block.x != kernel->threads || block.x > block_threads_max ||
        block.y * block.z != 1)
        return cudaErrorInvalidConfiguration;
    const auto found = allowed_.find({current, kernel});
    const uint32_t allowed =
        found != allowed_.end() ? found->second + kernel->static_shared_bytes : shared_bytes_max;
    if (shared_bytes + kernel->static_shared_bytes > std::max(allowed, shared_bytes_max))
        return cudaErrorInvalidValue;
    if (kernel->tells && !mapped(kernel->tells(arguments))) return cudaErrorIllegalAddress;
    // A kernel is loaded when it is first launched, which must not be while a stream captures.
    if (loaded_.insert({current, kernel}).second && on.capturing) {
        on.capturing->spoiled = true;
        return cudaErrorStreamCaptureUnsupported;
    }
    return submit(on, kernel->make(arguments, grid, static_cast<uint32_t>(shared_bytes)));
}

cudaError_t device::submit(stream &on, work run) {
    if (on.capturing) return recorded.add(on, {std::move(run)});
    if (!rates) return streams.submit(on, {std::move(run)}), cudaSuccess;
    on.free_s = std::max(on.free_s, host_s) + run();
    for (const told_word &word : told()) *word.to = word.bits;
    told().clear();
    return cudaSuccess;
}

cudaError_t device::record(event &what, stream &on) {
    if (what.device != on.device) return cudaErrorInvalidResourceHandle;
    if (on.capturing) return recorded.record(what, on);
    what.within.reset();
    what.where = &on;
    const uint64_t number = ++what.recorded;
    if (rates) {
        what.passed = number;
        what.at_s = std::max(on.free_s, host_s);
    } else {
        streams.submit(on, {{}, nullptr, &what, number});
    }
    return cudaSuccess;
}

cudaError_t device::wait(stream &on, event &what) {
    if (on.capturing || what.within) return recorded.wait(on, what);
    if (rates)
        on.free_s = std::max(on.free_s, what.at_s);
    else if (what.recorded != 0)
        streams.submit(on, {{}, &what, nullptr, what.recorded});
    return cudaSuccess;
}

cudaError_t device::finish() {
    if (!streams.finish(current)) return cudaErrorLaunchTimeout;
    host_s = std::max(host_s, streams.free_s());
    return cudaSuccess;
}

}  // namespace pretended

void pretend_time(const pretended_rates &given) { pretended::now().rates = given; }
double pretended_now() { return pretended::now().host_s; }
