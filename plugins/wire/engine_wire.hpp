// engine_wire.hpp - hands the calls of a wire on to an engine, which `open` creates.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include <moorage/moorage.hpp>

namespace wire {

// Settings: the values of the parameters, filled by the policy. Engine is made from them and the
// limits.
template <class Engine, class Settings>
class engine_wire {
public:
    void deactivate() { engine_.reset(); }
    void open(const moorage_wire_limits &limits) {
        if (engine_) throw std::logic_error("it is open already");
        engine_.emplace(settings_, limits);
    }
    uint64_t listen(std::string_view address, std::string &bound) {
        return opened().listen(address, bound);
    }
    uint64_t connect(const moorage::wire_target &target) { return opened().connect(target); }
    uint32_t send(uint64_t connection, std::span<const moorage_wire_part> parts, uint64_t user) {
        if (!engine_) return MOORAGE_WIRE_GONE;
        std::string refused;
        const uint32_t done = engine_->send(connection, parts, user, refused);
        if (done == MOORAGE_WIRE_REFUSED) host_.refuse(refused.c_str());
        return done;
    }
    uint32_t poll(std::span<moorage_wire_event> events, uint64_t wait_ns) {
        return engine_ ? engine_->poll(events, wait_ns) : 0;
    }
    void wake() {
        if (engine_) engine_->wake();
    }
    void release(uint64_t message) {
        if (engine_) engine_->release(message);
    }
    void close(uint64_t number, bool at_once) {
        if (engine_) engine_->close(number, at_once);
    }

protected:
    explicit engine_wire(const moorage::setup &setup) : host_(setup.host) {
        settings_.poll_us = static_cast<uint64_t>(setup.integer("poll_us"));
        settings_.silence_ms = static_cast<uint64_t>(setup.integer("silence_ms"));
    }

    const moorage::host host_;
    Settings settings_;
    std::optional<Engine> engine_;

private:
    Engine &opened() {
        if (!engine_) throw std::logic_error("it is not open");
        return *engine_;
    }
};

}  // namespace wire
