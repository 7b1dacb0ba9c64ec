// timeline_format.h - the formats of a timeline: each appends events to a buffer.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/report/timeline.h"

struct z_stream_s;

namespace moorage::core {

// The place of an event. Both are counted from 1. Threads are counted over all processes.
struct timeline_place {
    uint32_t process, thread;
    std::string_view name;  // name of the row
};

class timeline_format {
public:
    virtual ~timeline_format() = default;
    virtual void begin(std::string &buffer) = 0;
    virtual void process(std::string &buffer, const timeline_place &place,
                         std::string_view name) = 0;
    virtual void row(std::string &buffer, const timeline_place &place, bool counts) = 0;
    virtual void span(std::string &buffer, const timeline_place &place, std::string_view name,
                      uint64_t start_ns, uint64_t duration_ns, timeline_arguments values,
                      timeline_flow flow) = 0;
    // everywhere: the event belongs to the whole timeline.
    virtual void instant(std::string &buffer, const timeline_place &place, std::string_view name,
                         uint64_t at_ns, timeline_arguments values, bool everywhere) = 0;
    virtual void value(std::string &buffer, const timeline_place &place, uint64_t at_ns,
                       double value) = 0;
    virtual void end(std::string &buffer, uint64_t events, uint64_t left_out) = 0;
};
std::unique_ptr<timeline_format> json_timeline();
std::unique_ptr<timeline_format> perfetto_timeline();

// Writes the bytes of a gzip file (RFC 1952), piece by piece, without name and time.
class gzip_writer {
public:
    gzip_writer();
    ~gzip_writer();
    gzip_writer(const gzip_writer &) = delete;
    // Returns the bytes that are ready by now. The last piece brings all the rest.
    std::string operator()(std::string_view piece, bool last);

private:
    std::unique_ptr<z_stream_s> stream_;
};

}  // namespace moorage::core
