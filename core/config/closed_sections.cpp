// closed_sections.cpp - the lists, section by section.
#include "core/config/closed_sections.h"

namespace moorage::core {

const std::vector<closed_section> &closed_sections() {
    static const std::vector<closed_section> sections = {
        {"run",
         {"executor", "tokens", "batch", "prefill", "seed", "threads", "arithmetic", "device",
          "guard", "guard_window", "guard_margin"}},
        {"emulator", {"policy_time", "policy_call_ns"}},
        {"hardware", {"profile", "devices", "peer", "spread", "link", "node", "disk", "engine"}},
        {"source",
         {"trace", "shape", "model", "prompt", "text", "max_tokens", "temperature", "top_p",
          "top_k", "stop", "window"}},
        {"memory",
         {"experts", "bytes", "device_experts", "host_experts", "host_bytes", "sharing",
          "buffer_experts", "split", "prefill_displaces"}},
        {"plugins", {"path", "on_fault", "guard", "call_limit_ms"}},
        {"cluster",
         {"file", "serial_calls", "returns_each", "duration_s", "requests", "bucket_s",
          "offers_max", "local_bits_per_s", "shared_interface", "own_disk", "models", "servers",
          "links", "cloud", "radio", "users", "workloads"}},
        {"registry", {"directory", "endpoints", "certificate", "key", "ca", "prefix"}},
        {"report", {"title"}},
    };
    return sections;
}

}  // namespace moorage::core
