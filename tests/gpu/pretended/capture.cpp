// capture.cpp - keeps the rules of stream capture.
#include "tests/gpu/pretended/capture.h"

#include <algorithm>

namespace pretended {

cudaError_t captures::unsafe_call() {
    for (const std::shared_ptr<capture> &open_capture : open_) {
        const bool meant = open_capture->mode == cudaStreamCaptureModeGlobal ||
                           (open_capture->mode == cudaStreamCaptureModeThreadLocal &&
                            open_capture->capturing_thread == std::this_thread::get_id());
        if (!meant) continue;
        open_capture->spoiled = true;
        return cudaErrorStreamCaptureUnsupported;
    }
    return cudaSuccess;
}

cudaError_t captures::begin(stream &stream, cudaStreamCaptureMode mode) {
    if (stream.capturing) return cudaErrorInvalidValue;
    auto new_capture = std::make_shared<capture>();
    new_capture->origin = &stream;
    new_capture->mode = mode;
    new_capture->capturing_thread = std::this_thread::get_id();
    new_capture->members[&stream];
    stream.capturing = new_capture;
    open_.insert(new_capture);
    return cudaSuccess;
}

cudaError_t captures::end(stream &stream, std::vector<step> &steps) {
    const std::shared_ptr<capture> ended_capture = stream.capturing;
    if (!ended_capture) return cudaErrorInvalidValue;
    if (ended_capture->origin != &stream) return cudaErrorStreamCaptureUnmatched;
    ended_capture->ended = true;
    open_.erase(ended_capture);
    bool joined = true;
    for (const auto &[member, counts] : ended_capture->members) {
        member->capturing.reset();
        joined = joined && (member == &stream || counts.joined == counts.steps);
    }
    if (ended_capture->spoiled) return cudaErrorStreamCaptureInvalidated;
    if (!joined) return cudaErrorStreamCaptureUnjoined;
    steps = std::move(ended_capture->steps);
    return cudaSuccess;
}

cudaError_t captures::add(stream &stream, step next) {
    capture &current = *stream.capturing;
    if (current.spoiled) return cudaErrorStreamCaptureInvalidated;
    ++current.members[&stream].steps;
    current.steps.push_back(std::move(next));
    return cudaSuccess;
}

cudaError_t captures::record(event &event, stream &stream) {
    if (stream.capturing->spoiled) return cudaErrorStreamCaptureInvalidated;
    event.recording_capture = stream.capturing;
    event.recorded_on = &stream;
    event.capture_steps = stream.capturing->members[&stream].steps;
    return cudaSuccess;
}

cudaError_t captures::wait(stream &stream, const event &event) {
    if (!event.recording_capture) {
        stream.capturing->spoiled = true;
        return cudaErrorStreamCaptureIsolation;
    }
    if (event.recording_capture->ended) return cudaErrorCapturedEvent;
    if (stream.capturing && stream.capturing != event.recording_capture) {
        stream.capturing->spoiled = event.recording_capture->spoiled = true;
        return cudaErrorStreamCaptureMerge;
    }
    if (event.recording_capture->spoiled) return cudaErrorStreamCaptureInvalidated;
    stream.capturing = event.recording_capture;
    event.recording_capture->members[&stream];
    capture::member &source_member = event.recording_capture->members[event.recorded_on];
    if (event.recorded_on != &stream)
        source_member.joined = std::max(source_member.joined, event.capture_steps);
    return cudaSuccess;
}

}  // namespace pretended
