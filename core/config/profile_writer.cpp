// profile_writer.cpp - writes keys and sources in the order in which profile_file.cpp reads them.
#include "core/config/profile_writer.h"

#include "core/base/text.h"
#include "core/config/toml_text.h"

namespace moorage::core {

namespace {

// A basic string of TOML: what could end it or is no printable ASCII is escaped or dropped.
// One table and, behind it, its sources.
class part_writer {
public:
    part_writer(std::string kind, const profile_sources &sources)
        : kind_(std::move(kind)), sources_(sources), keys_("[" + kind_ + "]\n") {}

    void label(const std::string &key, const std::string &value) {
        keys_ += key + " = " + quoted(value) + "\n";
    }
    void word(const std::string &key, const std::string &value) { figure(key, quoted(value)); }
    void whole(const std::string &key, uint64_t value) { figure(key, format("{}", value)); }
    // With its point or exponent, so that it is a number and no integer.
    void number(const std::string &key, double value) { figure(key, format("{:.4e}", value)); }
    void flag(const std::string &key, bool value) { figure(key, value ? "true" : "false"); }

    std::string text() const { return keys_ + "\n[" + kind_ + ".sources]\n" + origins_; }

private:
    void figure(const std::string &key, const std::string &value) {
        keys_ += key + " = " + value + "\n";
        const std::string *from = &sources_.otherwise;
        if (const auto part = sources_.of.find(kind_); part != sources_.of.end())
            if (const auto found = part->second.find(key); found != part->second.end())
                from = &found->second;
        origins_ += key + " = " + quoted(*from) + "\n";
    }

    std::string kind_;
    const profile_sources &sources_;
    std::string keys_, origins_;
};

std::string device_text(const device_profile &device, const profile_sources &sources) {
    part_writer out("device", sources);
    out.label("name", device.name);
    out.whole("memory_bytes", device.memory_bytes);
    out.whole("reserved_bytes", device.reserved_bytes);
    out.number("memory_bytes_per_s", device.memory_bytes_per_s);
    out.number("memory_efficiency", device.memory_efficiency);
    out.number("flops_per_s", device.flops_per_s);
    out.number("flops_efficiency", device.flops_efficiency);
    out.whole("launch_ns", device.launch_ns);
    out.whole("sync_ns", device.sync_ns);
    out.whole("layer_ns", device.layer_ns);
    out.whole("attention_kernels", device.attention_kernels);
    out.whole("expert_kernels", device.expert_kernels);
    out.flag("unified_memory", device.unified_memory);
    if (device.is_host) out.flag("is_host", true);
    if (device.compute_share != 1) out.number("compute_share", device.compute_share);
    if (device.copy_share != 1) out.number("copy_share", device.copy_share);
    if (device.load_ns != 0) out.whole("load_ns", device.load_ns);
    if (device.step_ns != 0) out.whole("step_ns", device.step_ns);
    if (device.expert_ns != 0) out.whole("expert_ns", device.expert_ns);
    if (device.token_ns != 0) out.whole("token_ns", device.token_ns);
    if (device.pass_ns != 0) out.whole("pass_ns", device.pass_ns);
    if (device.tile_tokens != 0) out.number("tile_tokens", device.tile_tokens);
    if (device.context_bytes_per_s != 0)
        out.number("context_bytes_per_s", device.context_bytes_per_s);
    if (device.cache_bytes != 0) {
        out.whole("cache_bytes", device.cache_bytes);
        out.number("cache_bytes_per_s", device.cache_bytes_per_s);
    }
    if (device.vector_flops_per_s != 0) out.number("vector_flops_per_s", device.vector_flops_per_s);
    if (device.kernel_ns != 0) out.whole("kernel_ns", device.kernel_ns);
    return out.text();
}

std::string link_text(const link_profile &link, const profile_sources &sources) {
    part_writer out("link", sources);
    out.label("name", link.name);
    out.number("h2d_bytes_per_s", link.h2d_bytes_per_s);
    out.number("d2h_bytes_per_s", link.d2h_bytes_per_s);
    out.whole("issue_ns", link.issue_ns);
    return out.text();
}

std::string node_text(const node_profile &node, const profile_sources &sources) {
    part_writer out("node", sources);
    out.label("name", node.name);
    out.whole("memory_bytes", node.memory_bytes);
    out.number("memory_bytes_per_s", node.memory_bytes_per_s);
    out.number("cpu_bytes_per_s", node.cpu_bytes_per_s);
    out.number("cpu_flops_per_s", node.cpu_flops_per_s);
    out.whole("cpu_issue_ns", node.cpu_issue_ns);
    if (node.memory_theory_bytes_per_s != 0)
        out.number("memory_theory_bytes_per_s", node.memory_theory_bytes_per_s);
    if (node.launch_ns != 0) out.whole("launch_ns", node.launch_ns);
    return out.text();
}

// This engine, whose figures the other tables are.
std::string engine_text(const hardware_profile &profile, const profile_sources &sources) {
    part_writer out("engine", sources);
    out.label("name", "moorage on " + profile.device.name);
    out.word("costs", "device");
    out.word("overlap", "layer");
    if (profile.node.cpu_handover_ns != 0) out.whole("cpu_layer_ns", profile.node.cpu_handover_ns);
    return out.text();
}

}  // namespace

std::string to_toml(const hardware_profile &profile, const profile_sources &sources,
                    std::span<const std::string> notes) {
    std::string text = "# " + profile.device.name + ": what it costs, as measured on it.\n" +
                       "kind = \"machine\"\n\n" + device_text(profile.device, sources) + "\n" +
                       link_text(profile.link, sources) + "\n" + node_text(profile.node, sources) +
                       "\n" + engine_text(profile, sources);
    if (!notes.empty()) text += "\n";
    for (const std::string &note : notes) text += note.empty() ? "#\n" : "# " + note + "\n";
    return text;
}

}  // namespace moorage::core
