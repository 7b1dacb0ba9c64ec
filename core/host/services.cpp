// services.cpp - the tables of services. Each function finds its instance through host_data.
#include "core/host/services.h"

#include <array>
#include <string_view>

#include "core/base/log.h"
#include "core/base/text.h"
#include "core/host/call.h"

namespace moorage::core {

namespace {

thread_local const service_host *control_of_thread = nullptr;

service_host &host_of(const moorage_host *host) {
    return *static_cast<service_host *>(host->host_data);
}

void write_log(const moorage_host *host, int32_t level, const char *text) {
    const std::string line = format("{}: {}", host_of(host).label, text ? text : "(null)");
    switch (level) {
        case MOORAGE_LOG_DEBUG:
            return log_debug(line);
        case MOORAGE_LOG_INFO:
            return log_info(line);
        case MOORAGE_LOG_WARNING:
            return log_warning(line);
        default:
            return log_error(line);
    }
}

uint32_t asks_in_control(const moorage_host *host) {
    return control_of_thread == &host_of(host) ? 1 : 0;
}
uint32_t asks_in_step(const moorage_host *) { return instance::stepping::now() ? 1 : 0; }
uint64_t now_ns(const moorage_host *host) {
    const uint64_t *clock = host_of(host).inputs.now_ns;
    return clock ? *clock : 0;
}
uint64_t next_random(const moorage_host *host) { return host_of(host).random.next(); }
const moorage_residency *residency_view(const moorage_host *host) {
    return host_of(host).mapped ? host_of(host).inputs.residency : nullptr;
}
const moorage_costs *costs_view(const moorage_host *host) {
    return host_of(host).mapped ? host_of(host).inputs.costs : nullptr;
}
uint64_t next_use(const moorage_host *host, uint32_t page, uint64_t step, uint64_t *token) {
    return host_of(host).inputs.future->next_use(page, step, token);
}

const void *get_service(const moorage_host *host, const char *name) {
    static constexpr moorage_log log{sizeof(log), 0, write_log};
    static constexpr moorage_thread_check thread{sizeof(thread), 0, asks_in_control, asks_in_step};
    static constexpr moorage_clock clock{sizeof(clock), 0, now_ns};
    static constexpr moorage_random random{sizeof(random), 0, next_random};
    static constexpr moorage_residency_service residency{sizeof(residency), 0, residency_view};
    static constexpr moorage_costs_service costs{sizeof(costs), 0, costs_view};
    static constexpr moorage_future future{sizeof(future), 0, next_use};
    const std::string_view id = name ? name : "";
    if (id == MOORAGE_SERVICE_LOG) return &log;
    if (id == MOORAGE_SERVICE_THREAD_CHECK) return &thread;
    if (id == MOORAGE_SERVICE_CLOCK) return &clock;
    if (id == MOORAGE_SERVICE_RANDOM) return &random;
    if (id == MOORAGE_SERVICE_RESIDENCY) return &residency;
    if (id == MOORAGE_SERVICE_COSTS) return &costs;
    if (id == MOORAGE_SERVICE_FUTURE && host_of(host).inputs.future) return &future;
    return nullptr;
}

void set_error(const moorage_host *host, const char *text) {
    host_of(host).last_error = text ? text : "";
    note_on_board(host_of(host).last_error);
}

}  // namespace

random_stream policy_stream(uint64_t seed, std::string_view policy) {
    uint64_t name_hash = 0xcbf29ce484222325u;  // FNV-1a
    for (const char c : policy) name_hash = (name_hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
    seed_stream spread(seed_stream(seed).next() ^ name_hash);
    return random_stream(std::array{spread.next(), spread.next(), spread.next(), spread.next()});
}

service_host::service_host(const environment &environment, std::string name)
    : table{sizeof(moorage_host), 0,        MOORAGE_ABI_MAJOR, MOORAGE_ABI_MINOR, this,
            get_service,          set_error},
      inputs(environment),
      label(std::move(name)) {}

in_control::in_control(const service_host &host) : outer_(control_of_thread) {
    control_of_thread = &host;
}
in_control::~in_control() { control_of_thread = outer_; }

}  // namespace moorage::core
