// capture.h - calls while a stream records them: the rules of stream capture.
//
// Source: CUDA C++ Programming Guide (13.0), "Creating a Graph Using Stream Capture", and the
// reference of cudaStreamBeginCapture and cudaThreadExchangeStreamCaptureMode. A call that breaks a
// rule is refused and spoils the capture, which then ends without a graph.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "tests/gpu/pretended/cuda_runtime_api.h"
#include "tests/gpu/pretended/streams.h"

namespace pretended {

struct capture {
    stream *origin = nullptr;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    std::thread::id capturing_thread;
    bool spoiled = false, ended = false;
    std::vector<step> steps;  // in the order of the calls, which keeps every dependency
    // The number of steps of each stream, and how many of them the origin waits for.
    struct member {
        uint64_t steps = 0, joined = 0;
    };
    std::map<stream *, member> members;
};

class captures {
public:
    // A capturing thread must not make such a call: cudaMalloc, cudaMemcpy, cudaEventQuery, ...
    cudaError_t unsafe_call();

    cudaError_t begin(stream &stream, cudaStreamCaptureMode mode);
    cudaError_t end(stream &stream, std::vector<step> &steps);
    // Adds a step of a stream that captures.
    cudaError_t add(stream &stream, step next);
    cudaError_t record(event &event, stream &stream);
    // For a wait in which the stream or the event is part of a capture.
    cudaError_t wait(stream &stream, const event &event);

private:
    std::set<std::shared_ptr<capture>> open_;
};

}  // namespace pretended
