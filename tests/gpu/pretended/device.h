// device.h - the pretended GPUs behind their calls: streams, memory, limits, the call that fails
// next.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/gpu/pretended/capture.h"
#include "tests/gpu/pretended/cublas_v2.h"
#include "tests/gpu/pretended/pretended.h"
#include "tests/gpu/pretended/streams.h"

namespace pretended {

// The limits that differ between GPUs. Source: CUDA C++ Programming Guide (13.0), "Technical
// Specifications per Compute Capability".
struct gpu_limits {
    const char *name;
    uint32_t capability;          // compute capability, major and minor as one
    uint32_t shared_optin_bytes;  // of a block, on request
};
// Limits that are the same for all of them, from the same table.
constexpr uint32_t shared_bytes_max = 48u << 10;  // of a block, without a request
constexpr uint32_t block_threads_max = 1024;
constexpr uint32_t grid_x_max = 0x7fffffff, grid_yz_max = 65535;
constexpr size_t argument_bytes_max = 4096;  // more from CUDA 12.1 on

// Stands for the address of a kernel.
struct kernel_entry {
    work (*make)(const void *kernel, dim3 grid, uint32_t shared_bytes);
    uint32_t threads;
    uint32_t static_shared_bytes;
    // The word in host memory by which the kernel says that it has run. Null: it writes to none.
    const void *(*find_told_word)(const void *kernel) = nullptr;
};

struct graph {
    uint32_t device = 0;
    std::vector<step> steps;
    event launched;  // of an executable one
};

struct library {
    uint32_t device = 0;
    stream *used_stream = nullptr;
};

class device {
public:
    explicit device(const settings &settings);

    // Every call that may fail begins with this.
    cudaError_t enter(const char *call, bool unsafe_in_capture = false);
    uint64_t calls(const std::string &name) const;
    uint64_t copies(int priority) { return copies_[priority]; }
    objects alive() const;

    cudaError_t allocate(void **memory, size_t bytes, bool pinned, bool mapped = false);
    cudaError_t release(void *memory, bool pinned);
    size_t free_bytes() const { return settings_.memory_bytes - used_[current]; }
    size_t total_bytes() const { return settings_.memory_bytes; }
    uint64_t allocation_count(uint32_t device) const { return allocations_.at(device); }
    cudaError_t copy_now(void *target, const void *source, size_t bytes, cudaMemcpyKind kind);
    cudaError_t copy(void *target, const void *source, size_t bytes, cudaMemcpyKind kind,
                     stream &stream);

    cudaError_t allow_shared(const kernel_entry *kernel, int bytes);
    cudaError_t launch(const kernel_entry *kernel, dim3 grid, dim3 block, const void *arguments,
                       size_t shared_bytes, stream &stream);
    cudaError_t submit(stream &stream, work run);
    cudaError_t record(event &event, stream &stream);
    cudaError_t wait(stream &stream, event &event);
    // Finishes all work under way on the current device. An error if streams hang.
    cudaError_t finish();

    const gpu_limits &limits() const { return limits_; }
    uint32_t kernels_compiled_for() const {
        return settings_.compiled_for ? settings_.compiled_for : limits_.capability;
    }
    uint32_t devices() const { return settings_.devices; }
    bool peers() const { return settings_.peers; }
    // From now on the current device can access the memory of `peer`.
    cudaError_t enable_peer(uint32_t peer);

    uint32_t current = 0;  // the device that calls without a stream are for, and launches

    std::optional<pretended_rates> rates;
    double host_s = 0;  // the host's clock, where time is kept
    all_streams streams;
    captures recorded;
    uint64_t events = 0, graphs = 0, libraries = 0;

private:
    struct block {
        size_t bytes;
        bool pinned, mapped;
        uint32_t device;
    };
    enum class place : uint8_t { device, pinned, pageable, astray };
    place place_of(const void *address, size_t bytes) const;
    bool mapped(const void *address) const;
    // Whether a copy on a stream of `device` can access the memory at `address`.
    bool can_access(uint32_t device, const void *address) const;
    double copy_s(size_t bytes, cudaMemcpyKind kind) const;

    settings settings_;
    gpu_limits limits_;
    std::vector<uint64_t> used_, allocations_;       // [devices]
    std::set<std::pair<uint32_t, uint32_t>> reach_;  // from, to
    bool broken_ = false;                            // every call fails
    std::map<const std::byte *, block> blocks_;
    std::map<std::string, uint64_t> calls_;
    std::map<int, uint64_t> copies_;  // from the host, by priority
    std::map<std::pair<uint32_t, const kernel_entry *>, uint32_t> allowed_;
    std::set<std::pair<uint32_t, const kernel_entry *>> loaded_;
};

device &now();

}  // namespace pretended
