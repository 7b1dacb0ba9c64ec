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
std::string describe_owner(const call_board &page, uint32_t index) {
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

std::string place_of(const ending &outcome) {
    if (outcome.call.empty()) return "";
    return outcome.call == name_of(entry_point::thread) ? " in a thread of its own"
                                                        : " in " + outcome.call;
}

std::string what_happened(const ending &outcome) {
    if (!outcome.file.empty()) return "";
    if (outcome.endless)
        return format(
            "{} was called again and again, and the layer step did not end within {} ms "
            "(plugins.call_limit_ms); it was ended",
            outcome.call.empty() ? "a policy" : outcome.call, outcome.limit_ms);
    if (outcome.garbled)
        return "closed, replaced or wrote to a descriptor that is moorage's, and its output was "
               "lost";
    if (outcome.late)
        return format("did not end within {} ms after it was asked to{}, and was ended",
                      outcome.limit_ms, outcome.call.empty() ? "" : place_of(outcome));
    if (outcome.stopped)
        return format("stopped the process{}, which was ended then",
                      outcome.call.empty() ? "" : place_of(outcome));
    if (outcome.overran && outcome.call.empty())
        return format("did not end within {} ms and was ended", outcome.limit_ms);
    if (outcome.overran)
        return format("{} did not return within {} ms (plugins.call_limit_ms) and was ended",
                      outcome.call, outcome.limit_ms);
    const std::string cause =
        outcome.signal != 0 ? "died of " + outcome.signal_name()
        : outcome.call.empty()
            ? format("ended before it was done, with exit code {}", outcome.exit_code)
            : format("ended the process with exit code {}", outcome.exit_code);
    const bool killed = outcome.signal == SIGKILL;
    return cause + place_of(outcome) +
           (killed ? " (the kernel's, perhaps, for want of memory)" : "");
}

std::string describe_culprit(const ending &outcome) {
    if (outcome.call.empty() && !outcome.suspects.empty())
        return outcome.garbled ? outcome.suspects : outcome.suspects + ", outside of its calls";
    if (outcome.from_outside) return "moorage, by a signal from outside";
    if (outcome.call.empty()) return "moorage itself, with no policy at work";
    if (outcome.policy.empty()) return format("policy library {}", outcome.library);
    return format("{} policy {} ({})", outcome.kind, outcome.policy, outcome.library);
}

}  // namespace

ending read_ending(const call_board &page, int state, std::string_view said) {
    ending outcome;
    if (WIFSIGNALED(state))
        outcome.signal = WTERMSIG(state);
    else
        outcome.exit_code = WEXITSTATUS(state);
    if (const uint32_t forked = page.forked_owner; forked != 0)
        outcome.forked = describe_owner(page, forked - 1);
    const uint64_t current = current_of(page);
    const auto call = static_cast<entry_point>(static_cast<uint32_t>(current));
    outcome.finished = page.done != 0 && outcome.signal == 0 && call == entry_point::none;
    if (outcome.finished) {
        outcome.exit_code = page.exit_code;  // whatever a thread changed meanwhile
        return outcome;
    }
    outcome.file = text_of(page.file);
    // The thread that calls policies may have continued while another one died.
    if (notes_own_call(page) || page.culprit[0] != '\0') outcome.note = text_of(page.note);
    if (outcome.note.empty()) outcome.note = last_line(said);
    outcome.in_step = page.in_step != 0;
    outcome.layer = page.layer;
    outcome.token = page.token;
    if (!outcome.file.empty()) return outcome;
    const auto thread_of_its_own = static_cast<uint64_t>(entry_point::thread);
    const std::string culprit = text_of(page.culprit);
    const uint32_t known = page.culprit_owner, starter = page.threads_owner;
    const auto library_of = [&](uint64_t place) { return text_of(owner_at(page, place).library); };
    const uint64_t of_culprit = uint64_t{known - 1} << 32;
    const bool is_called =
        call != entry_point::none && known != 0 && library_of(of_culprit) == library_of(current);
    if (!culprit.empty() && !is_called) {
        outcome.call = name_of(entry_point::thread);
        if (known != 0)
            blame(outcome, page, of_culprit | thread_of_its_own);
        else
            outcome.library = culprit;
    } else if (starter != 0 && (outcome.signal == 0 || outcome.signal == SIGKILL) &&
               (call == entry_point::none ||
                library_of(uint64_t{starter - 1} << 32) != library_of(current))) {
        // The kernel does not tell which thread it was, but few libraries have threads.
        blame(outcome, page, uint64_t{starter - 1} << 32 | thread_of_its_own);
        if (call != entry_point::none && outcome.note.empty())
            outcome.note =
                format("unless {} did it in {}",
                       describe_owner(page, static_cast<uint32_t>(current >> 32)), name_of(call));
    } else {
        blame(outcome, page, current);
    }
    return outcome;
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
        if (name.empty() || page.owners[place].policy[0] != '\0')
            name = describe_owner(page, place);
    }
    std::vector<std::string> names;
    for (const auto &[library, name] : by_library) names.push_back(name);
    return listed(names, "or");
}

// Is it a signal that a faulting call does not raise, or one that another process sent?
static bool came_from_outside(const ending &outcome, const call_board &page, bool is_asked) {
    static constexpr int raised_by_calls[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP};
    if (outcome.stopped) return true;
    if (outcome.signal == 0 || is_asked || outcome.overran || outcome.late) return false;
    return page.signal_sender != 0 ||
           std::ranges::find(raised_by_calls, outcome.signal) == std::end(raised_by_calls);
}

void note_suspects(ending &outcome, const call_board &page, bool is_asked) {
    if (outcome.finished || !outcome.file.empty()) return;
    const bool is_from_outside = came_from_outside(outcome, page, is_asked);
    if (!outcome.call.empty() && !(is_from_outside && is_bundled(outcome.library))) return;
    // A fault in moorage's own code, or work of its own that takes too long, is its own fault.
    const bool is_own =
        (outcome.signal != 0 && !is_from_outside) || outcome.overran || outcome.late;
    if (outcome.call.empty() && is_own && !outcome.garbled) return;
    outcome.suspects = loaded_policies(page);
    outcome.from_outside = is_from_outside && outcome.suspects.empty();
    if (outcome.call.empty()) return;
    const std::string at_work =
        format("{} policy {} was in {}", outcome.kind, outcome.policy, outcome.call);
    outcome.note = outcome.note.empty() ? at_work : at_work + "; " + outcome.note;
    outcome.policy = outcome.library = outcome.kind = outcome.call = "";
}

void blame(ending &outcome, const call_board &page, uint64_t current) {
    const auto call = static_cast<entry_point>(static_cast<uint32_t>(current));
    if (call == entry_point::none) return;
    const auto &owner = owner_at(page, current);
    outcome.policy = text_of(owner.policy);
    outcome.library = text_of(owner.library);
    outcome.call = name_of(call);
    outcome.kind = kind_of(call);
    if (outcome.kind.empty()) outcome.kind = text_of(owner.kinds);
}

std::string ending::signal_name() const {
    if (signal == 0) return "";
    const char *name = sigabbrev_np(signal);
    return name ? std::string("SIG") + name : format("signal {}", signal);
}

std::string ending::text() const {
    if (finished) return format("ended with exit code {}", exit_code);
    std::string line = !file.empty()
                           ? format("{} changed while it was in use", file)
                           : format("{}: {}", describe_culprit(*this), what_happened(*this));
    if (in_step && layer != MOORAGE_NONE) line += format(", layer {}, token {}", layer, token);
    if (in_step && layer == MOORAGE_NONE) line += format(", from token {} on", token);
    if (!note.empty()) line += ": " + note;
    return without_controls(std::move(line));
}

json to_json(const ending &outcome) {
    const auto or_null = [](const std::string &text) {
        return text.empty() ? json(nullptr) : json(text);
    };
    const bool in_step = outcome.in_step, exited = outcome.signal == 0;
    return {
        {"error", outcome.text()},
        {"policy", or_null(outcome.policy)},
        {"library", or_null(outcome.library)},
        {"kind", or_null(outcome.kind)},
        {"call", or_null(outcome.call)},
        {"layer", in_step && outcome.layer != MOORAGE_NONE ? json(outcome.layer) : json(nullptr)},
        {"token", in_step ? json(outcome.token) : json(nullptr)},
        {"signal", or_null(outcome.signal_name())},
        {"exit_code", exited ? json(outcome.exit_code) : json(nullptr)},
        {"overran", outcome.overran},
        {"stopped", outcome.stopped},
        {"garbled", outcome.garbled},
        {"suspects", or_null(outcome.suspects)},
        {"note", or_null(outcome.note)},
        {"file", or_null(outcome.file)}};
}

}  // namespace moorage::core
