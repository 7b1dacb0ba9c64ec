// timeline_sink.h - every operation of an emulated device as spans of a timeline.
#pragma once

#include <string>
#include <string_view>

#include "core/base/text.h"
#include "core/execute/emulator.h"
#include "core/report/timeline.h"

namespace moorage::core {

class timeline_sink final : public span_sink {
public:
    // `to` is borrowed; `experts` of a layer. The device's rows stand under `device`, its host's
    // under `host`.
    timeline_sink(timeline &to, uint32_t experts, std::string_view device = "GPU",
                  std::string_view host = "host")
        : to_(to), experts_(experts), host_(host) {
        uint32_t count = 0;
        for (const char *name : {"GPU compute", "copy host to GPU", "copy GPU to host"})
            tracks_[count++] = to.track(name, device);
        tracks_[count++] = to.track("CPU pool", host);
    }
    void span(track where, const char *kind, uint32_t layer, uint32_t page, uint64_t start_ns,
              uint64_t end_ns) override {
        if (where == disk && tracks_[disk] == MOORAGE_NONE)  // most runs have none
            tracks_[disk] = to_.track("disk to host", host_);
        if (page == MOORAGE_NONE) {
            to_.span(tracks_[where], kind, start_ns, end_ns - start_ns, {{"layer", layer}});
            return;
        }
        const std::string name = format("{} {}.{}", kind, page / experts_, page % experts_);
        to_.span(
            tracks_[where], name, start_ns, end_ns - start_ns,
            {{"layer", page / experts_}, {"expert", page % experts_}, {"during layer", layer}});
    }

private:
    timeline &to_;
    uint32_t experts_;
    std::string host_;
    uint32_t tracks_[5] = {MOORAGE_NONE, MOORAGE_NONE, MOORAGE_NONE, MOORAGE_NONE, MOORAGE_NONE};
};

}  // namespace moorage::core
