// pretended.h - the behaviour of the pretended GPU, and questions that a test may ask.
//
//   pretended::begin({.stream_order = pretended::order::lazy, .seed = 3});  // or by environment
//   ... the executor runs over it
//   pretended::alive().none()                                               // all given back
//
// PRETENDED_ORDER drawn, eager, lazy or threads; PRETENDED_SEED the random seed; PRETENDED_GPU
// sm_75, sm_80, sm_86, sm_89 or sm_90; PRETENDED_COMPILED_FOR 80 for kernels of sm_80 (by default
// the GPU's); PRETENDED_DEVICES their number; PRETENDED_BYTES of memory; PRETENDED_FAIL CALL:N lets
// the N-th call of that name fail, CALL:N+ all later ones too; after PRETENDED_MOVES steps all
// streams hang; PRETENDED_DEAF: no stream waits for another's events (results that depend on it
// must then be wrong); PRETENDED_CLOCK keeps time, see pretended_rates.
#pragma once

#include <cstdint>
#include <string>

namespace pretended {

// When the streams advance.
enum class order : uint8_t {
    drawn,   // a step of a stream drawn by chance whenever an event is asked for
    eager,   // work runs as soon as it is queued, if it can
    lazy,    // nothing, until the host has asked for an event of the stream, often more than once
    threads  // a thread for each
};

struct settings {
    order stream_order = order::drawn;
    uint32_t seed = 5;
    std::string gpu = "sm_86";
    // Architecture that the program's kernels are compiled for, 80 for sm_80. 0: the GPU's own.
    uint32_t compiled_for = 0;
    uint64_t memory_bytes = uint64_t{1} << 33;  // of each device
    std::string fail_call{};                    // the name of a call
    uint64_t fail_at = 0;                       // which of them, from 1
    bool fails_after = false;                   // those of its name behind it fail too
    bool breaks_device =
        false;  // every call behind it fails, as on a GPU after a fault of a kernel
    uint64_t moves_max = UINT64_MAX;
    bool ignores_events = false;
    // Asynchronous copies from and to memory that is not pinned read and write late. Otherwise they
    // are refused, because they may be synchronous on a GPU.
    bool pageable = false;
    uint32_t devices = 1;
    bool peers = true;  // they can read each other's memory
};

// A new GPU. Requires: nothing of the last one is alive.
void begin(const settings &settings);

// Objects that were created and not yet released.
struct objects {
    uint64_t memory = 0, pinned = 0, streams = 0, events = 0, graphs = 0, libraries = 0;
    bool none() const { return memory + pinned + streams + events + graphs + libraries == 0; }
};
objects alive();
// Number of calls of that name so far; only for calls that may fail.
uint64_t calls(const std::string &name);
// Number of copies from the host that streams of that priority got; the lower number goes first.
uint64_t copies(int priority);

}  // namespace pretended

// Planted rates: the time of each operation of the pretended GPU. With them, work is done as it is
// queued. Only copies are really done; kernels just take their time. The host's clock moves only
// when it waits for an event.
struct pretended_rates {
    double launch_s = 0;                                                    // of each kernel
    double h2d_s = 0, d2h_s = 0, h2d_bytes_per_s = 1, d2h_bytes_per_s = 1;  // of each copy
    // Weights of a launch come from the cache if they fit in it.
    double memory_bytes_per_s = 1, cache_bytes = 0, cache_bytes_per_s = 1;
    double context_bytes_per_s = 1;  // of keys and values
    double operations_per_s = 1;     // of products on the matrix units
};

// Keeps time from now on. PRETENDED_CLOCK in the environment does it with some rates.
void pretend_time(const pretended_rates &rates);
double pretended_now();
