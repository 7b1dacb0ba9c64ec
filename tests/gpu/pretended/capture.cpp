// capture.cpp - keeps the rules of stream capture.
#include "tests/gpu/pretended/capture.h"

#include <algorithm>

namespace pretended {

cudaError_t captures::unsafe_call() {
    for (const std::shared_ptr<capture> &one : open_) {
        const bool meant = one->mode == cudaStreamCaptureModeGlobal ||
                           (one->mode == cudaStreamCaptureModeThreadLocal &&
                            one->by == std::this_thread::get_id());
        if (!meant) continue;
        one->spoiled = true;
        return cudaErrorStreamCaptureUnsupported;
    }
    return cudaSuccess;
}

cudaError_t captures::begin(stream &on, cudaStreamCaptureMode mode) {
    if (on.capturing) return cudaErrorInvalidValue;
    auto made = std::make_shared<capture>();
    made->origin = &on;
    made->mode = mode;
    made->by = std::this_thread::get_id();
    made->members[&on];
    on.capturing = made;
    open_.insert(made);
    return cudaSuccess;
}

cudaError_t captures::end(stream &on, std::vector<step> &out) {
    const std::shared_ptr<capture> own = on.capturing;
    if (!own) return cudaErrorInvalidValue;
    if (own->origin != &on) return cudaErrorStreamCaptureUnmatched;
    own->ended = true;
    open_.erase(own);
    bool joined = true;
    for (const auto &[member, of] : own->members) {
        member->capturing.reset();
        joined = joined && (member == &on || of.joined == of.steps);
    }
    if (own->spoiled) return cudaErrorStreamCaptureInvalidated;
    if (!joined) return cudaErrorStreamCaptureUnjoined;
    out = std::move(own->steps);
    return cudaSuccess;
}

cudaError_t captures::add(stream &on, step next) {
    capture &own = *on.capturing;
    if (own.spoiled) return cudaErrorStreamCaptureInvalidated;
    ++own.members[&on].steps;
    own.steps.push_back(std::move(next));
    return cudaSuccess;
}

cudaError_t captures::record(event &what, stream &on) {
    if (on.capturing->spoiled) return cudaErrorStreamCaptureInvalidated;
    what.within = on.capturing;
    what.where = &on;
    what.stamp = on.capturing->members[&on].steps;
    return cudaSuccess;
}

cudaError_t captures::wait(stream &on, const event &what) {
    if (!what.within) {
        on.capturing->spoiled = true;
        return cudaErrorStreamCaptureIsolation;
    }
    if (what.within->ended) return cudaErrorCapturedEvent;
    if (on.capturing && on.capturing != what.within) {
        on.capturing->spoiled = what.within->spoiled = true;
        return cudaErrorStreamCaptureMerge;
    }
    if (what.within->spoiled) return cudaErrorStreamCaptureInvalidated;
    on.capturing = what.within;
    what.within->members[&on];
    capture::member &from = what.within->members[what.where];
    if (what.where != &on) from.joined = std::max(from.joined, what.stamp);
    return cudaSuccess;
}

}  // namespace pretended
