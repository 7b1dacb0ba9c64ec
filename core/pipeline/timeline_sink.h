// timeline_sink.h - every operation of an emulated device as spans of a timeline.
#pragma once

#include <string>
#include <string_view>

#include "core/base/text.h"
#include "core/execute/operations.h"
#include "core/report/timeline.h"

namespace moorage::core {

class timeline_sink final : public span_sink {
public:
    // `to` is borrowed; `experts` of a layer. The device's rows stand under `device`, its host's
    // under `host`.
    timeline_sink(timeline &to, uint32_t experts, std::string_view device = "GPU",
                  std::string_view host = "host")
        : to_(to), experts_(experts), device_(device), host_(host) {
        uint32_t next = 0;
        for (const char *name : {"GPU compute", "copy host to GPU", "copy GPU to host"})
            tracks_[next++] = to.track(name, device);
        tracks_[next++] = to.track("CPU pool", host);
    }
    void span(track where, const char *kind, uint32_t layer, uint32_t page, uint64_t start_ns,
              uint64_t end_ns) override {
        if (where == disk && tracks_[disk] == MOORAGE_NONE)  // most runs have none
            tracks_[disk] = to_.track("disk to host", host_);
        if (where >= count) return span_on(more_track(where), kind, layer, page, start_ns, end_ns);
        span_on(tracks_[where], kind, layer, page, start_ns, end_ns);
    }

private:
    // Of a device beyond the first.
    uint32_t more_track(track where) {
        const uint32_t device = where / count;
        const char *name = where % count == gpu ? "GPU compute" : "copy host to GPU";
        return to_.track(name, format("{} {}", device_, device));
    }
    void span_on(uint32_t at, const char *kind, uint32_t layer, uint32_t page, uint64_t start_ns,
                 uint64_t end_ns) {
        if (page == MOORAGE_NONE) {
            to_.span(at, kind, start_ns, end_ns - start_ns, {{"layer", layer}});
            return;
        }
        const std::string name = format("{} {}.{}", kind, page / experts_, page % experts_);
        to_.span(
            at, name, start_ns, end_ns - start_ns,
            {{"layer", page / experts_}, {"expert", page % experts_}, {"during layer", layer}});
    }

    timeline &to_;
    uint32_t experts_;
    std::string device_, host_;
    uint32_t tracks_[count] = {MOORAGE_NONE, MOORAGE_NONE, MOORAGE_NONE, MOORAGE_NONE,
                               MOORAGE_NONE};
};

}  // namespace moorage::core
