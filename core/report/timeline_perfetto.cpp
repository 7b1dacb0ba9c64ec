// timeline_perfetto.cpp - Perfetto's protobuf (protos/perfetto/trace of its repository): packets of
// track descriptors and track events. A message is written by hand, as ten fields need no library.
#include <bit>
#include <cmath>

#include <zlib.h>

#include "core/base/json_fwd.h"
#include "core/report/timeline_format.h"

namespace moorage::core {

namespace {

// Field numbers, by message.
namespace trace {
constexpr uint32_t packet = 1;
}
namespace trace_packet {
constexpr uint32_t timestamp = 8, trusted_packet_sequence_id = 10, track_event = 11,
                   sequence_flags = 13, track_descriptor = 60;
constexpr uint64_t incremental_state_cleared = 1;
}  // namespace trace_packet
namespace track_descriptor {
constexpr uint32_t uuid = 1, name = 2, process = 3, parent_uuid = 5, counter = 8,
                   child_ordering = 11, sibling_order_rank = 12;
constexpr uint64_t ordered_explicitly = 3;
}  // namespace track_descriptor
namespace process_descriptor {
constexpr uint32_t pid = 1, process_name = 6;
}
namespace track_event {
constexpr uint32_t debug_annotations = 4, type = 9, track_uuid = 11, name = 23,
                   double_counter_value = 44, flow_ids = 47, terminating_flow_ids = 48;
enum : uint64_t { slice_begin = 1, slice_end = 2, is_instant = 3, is_counter = 4 };
}  // namespace track_event
namespace debug_annotation {
constexpr uint32_t uint_value = 3, int_value = 4, double_value = 5, string_value = 6, name = 10;
}

// A message under way: fields are appended in any order.
class message {
public:
    std::string bytes;

    void varint(uint32_t field, uint64_t value) {
        raw(uint64_t{field} << 3);
        raw(value);
    }
    void fixed64(uint32_t field, uint64_t value) {
        raw(uint64_t{field} << 3 | 1);
        for (int shift = 0; shift < 64; shift += 8) bytes += static_cast<char>(value >> shift);
    }
    void number(uint32_t field, double value) { fixed64(field, std::bit_cast<uint64_t>(value)); }
    void text(uint32_t field, std::string_view value) {
        raw(uint64_t{field} << 3 | 2);
        raw(value.size());
        bytes += value;
    }
    void add(uint32_t field, const message &inner) { text(field, inner.bytes); }

private:
    void raw(uint64_t value) {
        for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
        bytes += static_cast<char>(value);
    }
};

uint64_t uuid_of(const timeline_place &place) {
    return uint64_t{place.process} << 32 | place.thread;
}
uint64_t uuid_of_process(const timeline_place &place) { return uint64_t{place.process} << 32; }

message annotation_of(const timeline_argument &argument) {
    using namespace debug_annotation;
    message annotation;
    annotation.text(name, repaired_utf8(argument.key));
    if (const auto *number = std::get_if<int64_t>(&argument.value))
        annotation.varint(int_value, static_cast<uint64_t>(*number));
    else if (const auto *count = std::get_if<uint64_t>(&argument.value))
        annotation.varint(uint_value, *count);
    else if (const auto *real = std::get_if<double>(&argument.value))
        annotation.number(double_value, *real);
    else
        annotation.text(string_value, repaired_utf8(std::get<std::string_view>(argument.value)));
    return annotation;
}

class packets final : public timeline_format {
public:
    void begin(std::string &) override {}
    void process(std::string &buffer, const timeline_place &place, std::string_view name) override {
        message described, track;
        described.varint(process_descriptor::pid, place.process);
        described.text(process_descriptor::process_name, repaired_utf8(name));
        track.varint(track_descriptor::uuid, uuid_of_process(place));
        track.add(track_descriptor::process, described);
        track.varint(track_descriptor::child_ordering, track_descriptor::ordered_explicitly);
        describe(buffer, track);
    }
    void row(std::string &buffer, const timeline_place &place, bool counts) override {
        message track;
        track.varint(track_descriptor::uuid, uuid_of(place));
        track.varint(track_descriptor::parent_uuid, uuid_of_process(place));
        track.text(track_descriptor::name, repaired_utf8(place.name));
        if (counts) track.add(track_descriptor::counter, {});
        track.varint(track_descriptor::sibling_order_rank, place.thread);
        describe(buffer, track);
    }
    void span(std::string &buffer, const timeline_place &place, std::string_view name,
              uint64_t start_ns, uint64_t duration_ns, timeline_arguments values,
              timeline_flow flow) override {
        message begun = event(place, track_event::slice_begin);
        begun.text(track_event::name, repaired_utf8(name));
        for (const timeline_argument &argument : values)
            begun.add(track_event::debug_annotations, annotation_of(argument));
        if (flow.id != 0)
            begun.fixed64(flow.ends ? track_event::terminating_flow_ids : track_event::flow_ids,
                          flow.id);
        put(buffer, start_ns, begun);
        put(buffer, start_ns + duration_ns, event(place, track_event::slice_end));
    }
    void instant(std::string &buffer, const timeline_place &place, std::string_view name,
                 uint64_t at_ns, timeline_arguments values, bool) override {
        message fields = event(place, track_event::is_instant);
        fields.text(track_event::name, repaired_utf8(name));
        for (const timeline_argument &argument : values)
            fields.add(track_event::debug_annotations, annotation_of(argument));
        put(buffer, at_ns, fields);
    }
    void value(std::string &buffer, const timeline_place &place, uint64_t at_ns,
               double value) override {
        message fields = event(place, track_event::is_counter);
        fields.number(track_event::double_counter_value, value);
        put(buffer, at_ns, fields);
    }
    void end(std::string &, uint64_t, uint64_t) override {}

private:
    static message event(const timeline_place &place, uint64_t type) {
        message fields;
        fields.varint(track_event::type, type);
        fields.varint(track_event::track_uuid, uuid_of(place));
        return fields;
    }
    void describe(std::string &buffer, const message &track) {
        message fields;
        fields.add(trace_packet::track_descriptor, track);
        packet(buffer, fields);
    }
    void put(std::string &buffer, uint64_t ns, const message &event) {
        message fields;
        fields.varint(trace_packet::timestamp, ns);
        fields.add(trace_packet::track_event, event);
        packet(buffer, fields);
    }
    void packet(std::string &buffer, message &fields) {
        fields.varint(trace_packet::trusted_packet_sequence_id, 1);
        if (first_)
            fields.varint(trace_packet::sequence_flags, trace_packet::incremental_state_cleared);
        first_ = false;
        message outer;
        outer.add(trace::packet, fields);
        buffer += outer.bytes;
    }

    bool first_ = true;
};

}  // namespace

std::unique_ptr<timeline_format> perfetto_timeline() { return std::make_unique<packets>(); }

gzip_writer::gzip_writer() : stream_(std::make_unique<z_stream>()) {
    *stream_ = {};
    constexpr int gzip_not_zlib = 15 + 16, memory_default = 8;
    deflateInit2(stream_.get(), 6, Z_DEFLATED, gzip_not_zlib, memory_default, Z_DEFAULT_STRATEGY);
}

gzip_writer::~gzip_writer() { deflateEnd(stream_.get()); }

std::string gzip_writer::operator()(std::string_view piece, bool last) {
    std::string packed;
    char part[1 << 16];
    stream_->next_in = reinterpret_cast<Bytef *>(const_cast<char *>(piece.data()));
    stream_->avail_in = static_cast<uInt>(piece.size());
    do {
        stream_->next_out = reinterpret_cast<Bytef *>(part);
        stream_->avail_out = sizeof(part);
        deflate(stream_.get(), last ? Z_FINISH : Z_NO_FLUSH);
        packed.append(part, sizeof(part) - stream_->avail_out);
    } while (stream_->avail_out == 0);
    return packed;
}

}  // namespace moorage::core
