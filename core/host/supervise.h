// supervise.h - runs work in child processes and says how it ended (core/decisions/0019, 0048).
//
//   const ending outcome = supervise([&](const sender &) { return work(); }, {});
//   if (outcome.died()) report(outcome.text());
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "core/host/call.h"

namespace moorage::core {

struct ending {
    int exit_code = 0;      // of the work, or of the process if no signal ended it
    int signal = 0;         // that ended it; 0: none
    bool finished = false;  // the work returned
    bool overran = false;   // ended because a call, or all of the work, took too long
    bool endless = false;   // overran with many short calls: a layer step did not end
    bool stopped = false;   // ended because it had been stopped (SIGSTOP)
    bool late = false;      // asked to end, it did not do so in time
    // A signal, or a stop, that none of the loaded policies can have sent: only bundled ones are.
    bool from_outside = false;
    // The parent did not receive what the child sent: a policy closed, replaced or wrote to one of
    // its descriptors.
    bool garbled = false;
    uint32_t limit_ms = 0;  // the limit that was overrun
    // The policy at work. Without `call` ("victims"), no policy was. `policy` is empty while a
    // library is being opened, and for code of a library outside calls. `kind` lists all kinds of
    // the policy if the call belongs to none of them.
    std::string policy, library, kind, call;
    std::string note;    // other details: an address, an exception's text, the last output
    std::string file;    // the mapped file that changed and so ended the work
    std::string forked;  // the policy that forked this process; the fork was ended; "": none
    // If the culprit is unknown: the loaded policies that are not bundled, "policy mine
    // (./mine.so)". "": none.
    std::string suspects;
    bool in_step = false;  // layer and token are valid
    uint32_t layer = 0;
    uint64_t token = 0;
    std::string bytes;  // sent by the work through its `sender`

    bool died() const { return !finished; }
    bool policy_died() const { return died() && (!call.empty() || !suspects.empty()); }
    // One line without control characters:
    // "cache policy mine (./mine.so): died of SIGSEGV in victims, layer 3, token 17: ..."
    std::string text() const;
    std::string signal_name() const;  // "SIGSEGV"; "": none
};

// Sends bytes from the running work to its parent.
using sender = std::function<void(std::string_view)>;
// A work is identified by its index and returns an exit code.
using indexed_work = std::function<int(size_t index, const sender &send)>;

enum class printed_on : uint8_t { output, errors };

struct supervision {
    double time_limit_s = 0;  // of the whole work; 0: none
    bool quiet = false;       // discards its stdout and stderr; the note keeps the last line
    uint32_t end_within_ms =
        0;  // of the first signal that asks it to end; then it is ended; 0: none
    // Prints in this process what the child gives to print_by_parent(). Returns 0, or errno of the
    // first write to standard output that failed. Null: the child prints itself.
    std::function<int(std::string_view, printed_on)> print = nullptr;
    // Called in a child whose work returned: may it do the next work? Null: each work gets its own
    // child.
    std::function<bool()> may_go_on = nullptr;
};

// Forks. The child runs `work`, ends the policy libraries and exits with the result of `work`;
// handlers and destructors of policies do not run. SIGINT, SIGTERM and SIGHUP are passed on to the
// child. If the child dies of one, this process ends with it, too. Processes that the child leaves
// behind are ended. Requires: one thread.
ending supervise(const std::function<int(const sender &send)> &work, const supervision &options);

// As above for `count` works, at most `at_once` at a time. `ended` is called in this process with
// each, in the order in which they end. A child that may go on takes the next work. A child that
// dies loses only its own work. Returns the signal that asked this process to end, or 0. After a
// signal some works have not ended. If children may go on, the signals then stay blocked until
// end_by() is called, so that the results so far can be shown.
int supervise_all(size_t count, size_t at_once, const indexed_work &work,
                  const supervision &options,
                  const std::function<void(size_t index, ending outcome)> &ended);

// Is this a child whose parent prints for it? Then no policy there can reach the output.
// print_by_parent() returns errno of an earlier failed write, or 0.
bool has_printing_parent();
int print_by_parent(std::string_view text, printed_on target = printed_on::output);
int print_errno_of_parent();

// Ends this process as the signal from supervise_all() would have.
void end_by(int signal);

}  // namespace moorage::core
