// log.cpp - spdlog behind four functions; the only file that includes it.
#include "core/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace moorage::core {

namespace {

spdlog::logger &logger() {
    static const auto instance = [] {
        auto made = std::make_shared<spdlog::logger>(
            "moorage", std::make_shared<spdlog::sinks::stderr_sink_mt>());
        made->set_pattern("moorage: %l: %v");
        made->set_level(spdlog::level::warn);
        return made;
    }();
    return *instance;
}

spdlog::string_view_t view(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

void set_log_level(log_level level) {
    static constexpr spdlog::level::level_enum levels[] = {spdlog::level::debug,
                                                           spdlog::level::info, spdlog::level::warn,
                                                           spdlog::level::err, spdlog::level::off};
    logger().set_level(levels[static_cast<size_t>(level)]);
}
void log_debug(std::string_view text) { logger().debug("{}", view(text)); }
void log_info(std::string_view text) { logger().info("{}", view(text)); }
void log_warning(std::string_view text) { logger().warn("{}", view(text)); }
void log_error(std::string_view text) { logger().error("{}", view(text)); }

}  // namespace moorage::core
