// child.cpp - a supervised process for each test, and its verdict.
#include "tools/moorage/check/child.h"

#include <csignal>
#include <cstring>

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/text.h"
#include "core/host/supervise.h"
#include "tools/moorage/check/hooks.h"

namespace moorage::check {

namespace {

using core::format;

// Shared between parent and child. A child that must not make system calls can still write here.
struct verdict_record {
    volatile int done;
    int result;
    char text[1500];
};
verdict_record *verdict_page = nullptr;

void become_child() {
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    const rlimit memory{rlim_t{4} << 30, rlim_t{4} << 30};
    if (can_watch()) setrlimit(RLIMIT_AS, &memory);  // a sanitizer needs terabytes of addresses
    core::set_log_level(core::log_level::off);
    core::board->call_limit_ms = 0;  // the test as a whole has a limit
}

std::string call_suffix(const core::ending &ending) {
    return ending.call.empty() ? "" : " in " + call_text(ending.kind, ending.call);
}

verdict verdict_of(const core::ending &ending, double timeout_s) {
    if (verdict_page->done) return {static_cast<outcome>(verdict_page->result), verdict_page->text};
    if (ending.overran)
        return failed(format("did not end within {} s{}", timeout_s, call_suffix(ending)));
    const std::string note = ending.note.empty() ? "" : "; it said: " + ending.note.substr(0, 200);
    if (ending.signal != 0)
        return {outcome::crashed, format("signal {} ({}){}{}", ending.signal,
                                         strsignal(ending.signal), call_suffix(ending), note)};
    return {outcome::crashed, format("the process ended with exit code {}{}{}", ending.exit_code,
                                     call_suffix(ending), note)};
}

}  // namespace

std::string call_text(std::string_view kind, std::string_view call) {
    const bool shared = call == "plan" || call == "outcome";  // by several kinds
    return shared ? format("{} ({})", call, kind) : std::string(call);
}

void end_child(outcome result, const char *text) {
    verdict_page->result = static_cast<int>(result);
    std::strncpy(verdict_page->text, text, sizeof(verdict_page->text) - 1);
    verdict_page->done = 1;
    _exit(0);
}

verdict run_in_child(const std::function<verdict()> &work, double timeout_s) {
    void *page = mmap(nullptr, sizeof(verdict_record), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return {outcome::skipped, "no memory for a child process"};
    verdict_page = static_cast<verdict_record *>(page);
    const core::ending ending = core::supervise(
        [&](const core::sender &) -> int {
            become_child();
            verdict found;
            try {
                found = work();
            } catch (const std::exception &error) {
                found = failed(format("an exception left the policy: {}", error.what()));
            } catch (...) {
                found = failed("an exception left the policy");
            }
            end_child(found.result, found.text.c_str());
        },
        {timeout_s, /*quiet=*/true});
    const verdict found = verdict_of(ending, timeout_s);
    munmap(page, sizeof(verdict_record));
    return found;
}

}  // namespace moorage::check
