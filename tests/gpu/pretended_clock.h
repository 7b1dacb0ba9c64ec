// pretended_clock.h - the pretended GPU's time: what each of its operations takes, by planted
// rates.
//
//   pretend_time({.launch_s = 3e-6, ...});
//   ... events tell the time that streams take; pretended_now() tells the host's
//
// Work is then done as it is queued, copies alone: kernels only take their time. The host's clock
// stands still but where it waits for an event.
#pragma once

struct pretended_rates {
    double launch_s = 0;                                                    // of each kernel
    double h2d_s = 0, d2h_s = 0, h2d_bytes_per_s = 1, d2h_bytes_per_s = 1;  // of each copy
    // Weights that a launch reads come from the cache if they fit in it.
    double memory_bytes_per_s = 1, cache_bytes = 0, cache_bytes_per_s = 1;
    double context_bytes_per_s = 1;  // of keys and values
    double operations_per_s = 1;     // of products on the matrix units
};

// From now on; PRETENDED_CLOCK in the environment does it with some rates.
void pretend_time(const pretended_rates &rates);
double pretended_now();
