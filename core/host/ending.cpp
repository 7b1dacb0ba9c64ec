// ending.cpp - what a board says about a death, and the words for it.
#include "core/host/ending.h"

#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <map>
#include <vector>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/host/registry.h"
#include "moorage/base.h"

namespace moorage::core {

namespace {

// A process that went wrong may have written anything to its board, so no text needs a terminating
// zero.
template <size_t Bytes>
std::string text_of(const char (&place)[Bytes]) {
    return {place, strnlen(place, Bytes)};
}

// The owner in a board's `current`, whatever its value.
const call_board::owner &owner_at(const call_board &page, uint64_t current) {
    return page.owners[std::min<uint64_t>(current >> 32, call_board::owners_max - 1)];
}

uint64_t current_of(const call_board &page, uint32_t lane) {
    return page.lanes[std::min(lane, call_board::lanes_max - 1)].current;
}
bool notes_own_call(const call_board &page) {
    const uint32_t lane = std::min<uint32_t>(page.note_lane, call_board::lanes_max - 1);
    return page.note_call == page.lanes[lane].calls;
}
// The call to blame: a call that was ended, otherwise that of a thread that noted its death,
// otherwise any call.
uint64_t current_of(const call_board &page) {
    if (const uint32_t overran = page.overran_lane; overran != 0)
        return current_of(page, overran - 1);
    const uint64_t noted = current_of(page, page.note_lane);
    if (notes_own_call(page) && static_cast<uint32_t>(noted) != 0) return noted;
    const uint64_t first = current_of(page, 0);
    return static_cast<uint32_t>(first) != 0 ? first : current_of(page, 1);
}

// "policy mine (./mine.so)", "policy library ./mine.so"
std::string who_owns(const call_board &page, uint32_t index) {
    const auto &owner = owner_at(page, uint64_t{index} << 32);
    const std::string policy = text_of(owner.policy), library = text_of(owner.library);
    return policy.empty() ? format("policy library {}", library)
                          : format("policy {} ({})", policy, library);
}

std::string last_line(std::string_view said) {
    while (!said.empty() && said.back() == '\n') said.remove_suffix(1);
    const size_t start = said.rfind('\n');
    return std::string(said.substr(start == std::string_view::npos ? 0 : start + 1).substr(0, 300));
}

// Replaces control characters in policies' texts, which could rewrite the terminal.
std::string without_controls(std::string text) {
    std::replace_if(
        text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
    return text;
}

std::string place_of(const ending &how) {
    if (how.call.empty()) return "";
    return how.call == name_of(entry_point::thread) ? " in a thread of its own" : " in " + how.call;
}

std::string what_happened(const ending &how) {
    if (!how.file.empty()) return "";
    if (how.endless)
        return format(
            "{} was called again and again, and the layer step did not end within {} ms "
            "(plugins.call_limit_ms); it was ended",
            how.call.empty() ? "a policy" : how.call, how.limit_ms);
    if (how.garbled)
        return "closed, replaced or wrote to a descriptor that is moorage's, and its output was "
               "lost";
    if (how.late)
        return format("did not end within {} ms after it was asked to{}, and was ended",
                      how.limit_ms, how.call.empty() ? "" : place_of(how));
    if (how.stopped)
        return format("stopped the process{}, which was ended then",
                      how.call.empty() ? "" : place_of(how));
    if (how.overran && how.call.empty())
        return format("did not end within {} ms and was ended", how.limit_ms);
    if (how.overran)
        return format("{} did not return within {} ms (plugins.call_limit_ms) and was ended",
                      how.call, how.limit_ms);
    const std::string what =
        how.signal != 0    ? "died of " + how.signal_name()
        : how.call.empty() ? format("ended before it was done, with exit code {}", how.exit_code)
                           : format("ended the process with exit code {}", how.exit_code);
    const bool killed = how.signal == SIGKILL;
    return what + place_of(how) + (killed ? " (the kernel's, perhaps, for want of memory)" : "");
}

std::string who(const ending &how) {
    if (how.call.empty() && !how.suspects.empty())
        return how.garbled ? how.suspects : how.suspects + ", outside of its calls";
    if (how.call.empty()) return "moorage itself, with no policy at work";
    if (how.policy.empty()) return format("policy library {}", how.library);
    return format("{} policy {} ({})", how.kind, how.policy, how.library);
}

}  // namespace

ending read_ending(const call_board &page, int state, std::string_view said) {
    ending how;
    if (WIFSIGNALED(state))
        how.signal = WTERMSIG(state);
    else
        how.exit_code = WEXITSTATUS(state);
    if (const uint32_t forked = page.forked_owner; forked != 0)
        how.forked = who_owns(page, forked - 1);
    const uint64_t current = current_of(page);
    const auto call = static_cast<entry_point>(static_cast<uint32_t>(current));
    how.finished = page.done != 0 && how.signal == 0 && call == entry_point::none;
    if (how.finished) {
        how.exit_code = page.exit_code;  // whatever a thread changed meanwhile
        return how;
    }
    how.file = text_of(page.file);
    // The thread that calls policies may have continued while another one died.
    if (notes_own_call(page) || page.culprit[0] != '\0') how.note = text_of(page.note);
    if (how.note.empty()) how.note = last_line(said);
    how.in_step = page.in_step != 0;
    how.layer = page.layer;
    how.token = page.token;
    if (!how.file.empty()) return how;
    const auto thread_of_its_own = static_cast<uint64_t>(entry_point::thread);
    const std::string culprit = text_of(page.culprit);
    const uint32_t known = page.culprit_owner, starter = page.threads_owner;
    const auto library_of = [&](uint64_t place) { return text_of(owner_at(page, place).library); };
    const uint64_t of_culprit = uint64_t{known - 1} << 32;
    const bool is_called =
        call != entry_point::none && known != 0 && library_of(of_culprit) == library_of(current);
    if (!culprit.empty() && !is_called) {
        how.call = name_of(entry_point::thread);
        if (known != 0)
            blame(how, page, of_culprit | thread_of_its_own);
        else
            how.library = culprit;
    } else if (starter != 0 && (how.signal == 0 || how.signal == SIGKILL) &&
               (call == entry_point::none ||
                library_of(uint64_t{starter - 1} << 32) != library_of(current))) {
        // The kernel does not tell which thread it was, but few libraries have threads.
        blame(how, page, uint64_t{starter - 1} << 32 | thread_of_its_own);
        if (call != entry_point::none && how.note.empty())
            how.note = format("unless {} did it in {}",
                              who_owns(page, static_cast<uint32_t>(current >> 32)), name_of(call));
    } else {
        blame(how, page, current);
    }
    return how;
}

// Whether a library is the program's own. The path may be cut off.
static bool is_bundled(const std::string &library) {
    const std::string folder = registry::bundled_folder().string();
    return !folder.empty() && library.starts_with(folder + "/");
}

std::string loaded_policies(const call_board &page) {
    std::map<std::string, std::string> by_library;
    const uint32_t count = std::min(page.owner_count.load(), call_board::owners_max);
    for (uint32_t place = 0; place < count; ++place) {
        const std::string library = text_of(page.owners[place].library);
        if (library.empty() || is_bundled(library)) continue;
        std::string &name = by_library[library];
        if (name.empty() || page.owners[place].policy[0] != '\0') name = who_owns(page, place);
    }
    std::vector<std::string> names;
    for (const auto &[library, name] : by_library) names.push_back(name);
    return listed(names, "or");
}

void note_suspects(ending &how, const call_board &page, bool is_asked) {
    if (how.finished || !how.file.empty()) return;
    static constexpr int raised_by_calls[] = {SIGSEGV, SIGBUS,  SIGFPE, SIGILL,
                                              SIGABRT, SIGTRAP, SIGKILL};
    const bool came_from_outside = how.stopped || (how.signal != 0 && !is_asked && !how.overran &&
                                                   std::ranges::find(raised_by_calls, how.signal) ==
                                                       std::end(raised_by_calls));
    if (!how.call.empty() && !(came_from_outside && is_bundled(how.library))) return;
    // A fault in moorage's own code, or work of its own that takes too long, is its own fault.
    const bool is_own = (how.signal != 0 && !came_from_outside) || how.overran || how.late;
    if (how.call.empty() && is_own && !how.garbled) return;
    how.suspects = loaded_policies(page);
    if (how.suspects.empty() || how.call.empty()) return;
    const std::string at_work = format("{} policy {} was in {}", how.kind, how.policy, how.call);
    how.note = how.note.empty() ? at_work : at_work + "; " + how.note;
    how.policy = how.library = how.kind = how.call = "";
}

void blame(ending &how, const call_board &page, uint64_t current) {
    const auto call = static_cast<entry_point>(static_cast<uint32_t>(current));
    if (call == entry_point::none) return;
    const auto &owner = owner_at(page, current);
    how.policy = text_of(owner.policy);
    how.library = text_of(owner.library);
    how.call = name_of(call);
    how.kind = kind_of(call);
    if (how.kind.empty()) how.kind = text_of(owner.kinds);
}

std::string ending::signal_name() const {
    if (signal == 0) return "";
    const char *name = sigabbrev_np(signal);
    return name ? std::string("SIG") + name : format("signal {}", signal);
}

std::string ending::text() const {
    if (finished) return format("ended with exit code {}", exit_code);
    std::string line = !file.empty() ? format("{} changed while it was in use", file)
                                     : format("{}: {}", who(*this), what_happened(*this));
    if (in_step && layer != MOORAGE_NONE) line += format(", layer {}, token {}", layer, token);
    if (in_step && layer == MOORAGE_NONE) line += format(", from token {} on", token);
    if (!note.empty()) line += ": " + note;
    return without_controls(std::move(line));
}

json to_json(const ending &how) {
    const auto or_null = [](const std::string &text) {
        return text.empty() ? json(nullptr) : json(text);
    };
    const bool in_step = how.in_step, exited = how.signal == 0;
    return {{"error", how.text()},
            {"policy", or_null(how.policy)},
            {"library", or_null(how.library)},
            {"kind", or_null(how.kind)},
            {"call", or_null(how.call)},
            {"layer", in_step && how.layer != MOORAGE_NONE ? json(how.layer) : json(nullptr)},
            {"token", in_step ? json(how.token) : json(nullptr)},
            {"signal", or_null(how.signal_name())},
            {"exit_code", exited ? json(how.exit_code) : json(nullptr)},
            {"overran", how.overran},
            {"stopped", how.stopped},
            {"garbled", how.garbled},
            {"suspects", or_null(how.suspects)},
            {"note", or_null(how.note)},
            {"file", or_null(how.file)}};
}

}  // namespace moorage::core
