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

uint64_t read_number(const char *name, uint64_t otherwise) {
    const char *text = std::getenv(name);
    return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

gpu_limits limits_of(const std::string &name) {
    for (const gpu_limits &gpu : gpus)
        if (name == gpu.name) return gpu;
    refuse("PRETENDED_GPU", name);
}

settings from_environment() {
    settings result;
    result.seed = static_cast<uint32_t>(read_number("PRETENDED_SEED", result.seed));
    result.memory_bytes = read_number("PRETENDED_BYTES", result.memory_bytes);
    result.devices = static_cast<uint32_t>(read_number("PRETENDED_DEVICES", result.devices));
    result.moves_max = read_number("PRETENDED_MOVES", result.moves_max);
    result.ignores_events = read_number("PRETENDED_DEAF", 0) != 0;
    if (const char *gpu = std::getenv("PRETENDED_GPU")) result.gpu = gpu;
    result.compiled_for =
        static_cast<uint32_t>(read_number("PRETENDED_COMPILED_FOR", result.compiled_for));
    if (const char *text = std::getenv("PRETENDED_ORDER")) {
        constexpr const char *names[] = {"drawn", "eager", "lazy", "threads"};
        const auto found = std::ranges::find(names, std::string(text));
        if (found == std::end(names)) refuse("PRETENDED_ORDER", text);
        result.stream_order = static_cast<order>(found - names);
    }
    if (const char *text = std::getenv("PRETENDED_FAIL")) {
        const std::string value = text;
        const size_t colon = value.find(':');
        if (colon == std::string::npos) refuse("PRETENDED_FAIL", value);
        result.fail_call = value.substr(0, colon);
        result.fail_at = std::strtoull(value.c_str() + colon + 1, nullptr, 10);
        result.fails_after = value.back() == '+';
        result.breaks_device = value.back() == '!';
    }
    return result;
}

std::unique_ptr<device> &current() {
    static std::unique_ptr<device> instance = [] {
        auto created = std::make_unique<device>(from_environment());
        if (std::getenv("PRETENDED_CLOCK"))
            created->rates =
                pretended_rates{2e-6, 8e-6, 6e-6, 25e9, 20e9, 1e12, 32 << 20, 3e12, 5e11, 1e14};
        return created;
    }();
    return instance;
}

cudaError_t failure_of(const std::string &call) {
    if (call == "cudaMalloc" || call == "cudaHostAlloc") return cudaErrorMemoryAllocation;
    if (call == "cudaLaunchKernel" || call == "cudaGraphLaunch") return cudaErrorLaunchFailure;
    if (call == "cudaStreamEndCapture") return cudaErrorStreamCaptureInvalidated;
    return cudaErrorUnknown;
}

}  // namespace

device &now() { return *current(); }

void begin(const settings &settings) {
    if (!now().alive().none()) {
        std::fprintf(stderr, "the last pretended GPU is still in use\n");
        std::abort();
    }
    current() = std::make_unique<device>(settings);
}
objects alive() { return now().alive(); }
uint64_t calls(const std::string &name) { return now().calls(name); }
uint64_t copies(int priority) { return now().copies(priority); }

device::device(const settings &settings)
    : streams(settings),
      settings_(settings),
      limits_(limits_of(settings.gpu)),
      used_(settings.devices),
      allocations_(settings.devices) {}

cudaError_t device::enable_peer(uint32_t peer) {
    if (peer >= settings_.devices || peer == current) return cudaErrorInvalidDevice;
    if (!settings_.peers) return cudaErrorPeerAccessUnsupported;
    return reach_.insert({current, peer}).second ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled;
}

bool device::can_access(uint32_t device, const void *address) const {
    const uint32_t owner =
        std::prev(blocks_.upper_bound(static_cast<const std::byte *>(address)))->second.device;
    return owner == device || reach_.contains({device, owner});
}

cudaError_t device::enter(const char *call, bool unsafe_in_capture) {
    const uint64_t number = ++calls_[call];
    const bool due = settings_.fail_call == call && number == settings_.fail_at;
    const bool later =
        settings_.fails_after && settings_.fail_call == call && number > settings_.fail_at;
    broken_ = broken_ || (due && settings_.breaks_device);
    if (due || later || broken_) return failure_of(settings_.fail_call);
    return unsafe_in_capture ? recorded.unsafe_call() : cudaSuccess;
}

uint64_t device::calls(const std::string &name) const {
    const auto found = calls_.find(name);
    return found == calls_.end() ? 0 : found->second;
}

objects device::alive() const {
    objects result;
    for (const auto &[address, block] : blocks_) ++(block.pinned ? result.pinned : result.memory);
    result.streams = streams.count();
    result.events = events;
    result.graphs = graphs;
    result.libraries = libraries;
    return result;
}

cudaError_t device::allocate(void **memory, size_t bytes, bool pinned, bool mapped) {
    if (!pinned && bytes > free_bytes()) return cudaErrorMemoryAllocation;
    *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    // Fills memory with NaN, so that unwritten values show. If nothing is computed, the numbers in
    // memory are the results. Large memory is not touched, since that would take longer than the
    // run.
    std::memset(*memory, rates ? 0 : 0xff, std::min(bytes, large_bytes));
    blocks_[static_cast<std::byte *>(*memory)] = {bytes, pinned, mapped, current};
    if (!pinned) used_[current] += bytes, ++allocations_[current];
    return cudaSuccess;
}

// Work under way ends first, as on a GPU.
cudaError_t device::release(void *memory, bool pinned) {
    const auto found = blocks_.find(static_cast<std::byte *>(memory));
    if (found == blocks_.end() || found->second.pinned != pinned) return cudaErrorInvalidValue;
    for (uint32_t device = 0; device < settings_.devices; ++device) (void)streams.finish(device);
    if (!pinned) used_[found->second.device] -= found->second.bytes;
    blocks_.erase(found);
    std::free(memory);
    return cudaSuccess;
}

device::place device::place_of(const void *address, size_t bytes) const {
    const auto *first = static_cast<const std::byte *>(address);
    auto found = blocks_.upper_bound(first);
    if (found == blocks_.begin()) return place::pageable;
    --found;
    if (first >= found->first + found->second.bytes) return place::pageable;
    if (first + bytes > found->first + found->second.bytes) return place::astray;
    return found->second.pinned ? place::pinned : place::device;
}

// Whether kernels may use this host memory. They fault on any other.
bool device::mapped(const void *address) const {
    const auto found = blocks_.upper_bound(static_cast<const std::byte *>(address));
    return place_of(address, 1) == place::pinned && std::prev(found)->second.mapped;
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
cudaError_t device::copy_now(void *target, const void *source, size_t bytes, cudaMemcpyKind kind) {
    if (kind != cudaMemcpyHostToDevice || place_of(target, bytes) != place::device)
        return cudaErrorInvalidValue;
    const place source_place = place_of(source, bytes);
    if (source_place == place::device || source_place == place::astray ||
        !can_access(current, target))
        return cudaErrorInvalidValue;
    stream &legacy = streams.legacy(current);
    if (rates || source_place == place::pinned) {
        (void)streams.finish(legacy);
        std::memcpy(target, source, bytes);
        return cudaSuccess;
    }
    const auto *first = static_cast<const std::byte *>(source);
    return submit(legacy, [target, staged = std::vector<std::byte>(first, first + bytes)] {
        std::memcpy(target, staged.data(), staged.size());
        return 0.0;
    });
}

cudaError_t device::copy(void *target, const void *source, size_t bytes, cudaMemcpyKind kind,
                         stream &stream) {
    const place source_place = place_of(source, bytes), target_place = place_of(target, bytes);
    if (kind == cudaMemcpyDefault)  // by the addresses
        kind = source_place != place::device   ? cudaMemcpyHostToDevice
               : target_place != place::device ? cudaMemcpyDeviceToHost
                                               : cudaMemcpyDeviceToDevice;
    const bool from_host = kind == cudaMemcpyHostToDevice, to_host = kind == cudaMemcpyDeviceToHost;
    const place host = from_host ? source_place : target_place;
    const bool right = from_host ? target_place == place::device && source_place != place::device
                       : to_host ? source_place == place::device && target_place != place::device
                                 : source_place == place::device && target_place == place::device;
    if (!right || source_place == place::astray || target_place == place::astray)
        return cudaErrorInvalidValue;
    if ((from_host || to_host) && host == place::pageable && !settings_.pageable)
        return cudaErrorInvalidValue;
    // Between devices, or from another's stream, without a request for access.
    if ((source_place == place::device && !can_access(stream.device, source)) ||
        (target_place == place::device && !can_access(stream.device, target)))
        return cudaErrorInvalidValue;
    copies_[stream.priority] += from_host;
    return submit(stream, [=, this] {
        std::memcpy(target, source, bytes);
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
                           size_t shared_bytes, stream &stream) {
    if (stream.device != current) return cudaErrorInvalidResourceHandle;
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
    if (kernel->find_told_word && !mapped(kernel->find_told_word(arguments)))
        return cudaErrorIllegalAddress;
    // A kernel is loaded when it is first launched, which must not be while a stream captures.
    if (loaded_.insert({current, kernel}).second && stream.capturing) {
        stream.capturing->spoiled = true;
        return cudaErrorStreamCaptureUnsupported;
    }
    return submit(stream, kernel->make(arguments, grid, static_cast<uint32_t>(shared_bytes)));
}

cudaError_t device::submit(stream &stream, work run) {
    if (stream.capturing) return recorded.add(stream, {std::move(run)});
    if (!rates) return streams.submit(stream, {std::move(run)}), cudaSuccess;
    stream.free_s = std::max(stream.free_s, host_s) + run();
    for (const told_word &word : told_words()) *word.address = word.bits;
    told_words().clear();
    return cudaSuccess;
}

cudaError_t device::record(event &event, stream &stream) {
    if (event.device != stream.device) return cudaErrorInvalidResourceHandle;
    if (stream.capturing) return recorded.record(event, stream);
    event.recording_capture.reset();
    event.recorded_on = &stream;
    const uint64_t number = ++event.recorded;
    if (rates) {
        event.passed = number;
        event.at_s = std::max(stream.free_s, host_s);
    } else {
        streams.submit(stream, {{}, nullptr, &event, number});
    }
    return cudaSuccess;
}

cudaError_t device::wait(stream &stream, event &event) {
    if (stream.capturing || event.recording_capture) return recorded.wait(stream, event);
    if (rates)
        stream.free_s = std::max(stream.free_s, event.at_s);
    else if (event.recorded != 0)
        streams.submit(stream, {{}, &event, nullptr, event.recorded});
    return cudaSuccess;
}

cudaError_t device::finish() {
    if (!streams.finish(current)) return cudaErrorLaunchTimeout;
    host_s = std::max(host_s, streams.free_s());
    return cudaSuccess;
}

}  // namespace pretended

void pretend_time(const pretended_rates &rates) { pretended::now().rates = rates; }
double pretended_now() { return pretended::now().host_s; }
