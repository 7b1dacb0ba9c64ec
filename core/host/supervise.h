// supervise.h - does work in a child process and says how it ended (core/decisions/0019).
//
//   const ending how = supervise([&](const sender &) { return work(); }, {});
//   if (how.died()) say(how.text());
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "core/host/call.h"

namespace moorage::core {

struct ending {
    int exit_code = 0;      // of the process, where no signal ended it
    int signal = 0;         // that ended it; 0: none
    bool finished = false;  // the work returned
    bool overran = false;   // a call, or all of it, took longer than allowed, and was ended
    uint32_t limit_ms = 0;  // the limit that was overrun
    // Who was at work; no `call` ("victims"): no policy was. `policy` is empty while a library is
    // being opened, and `kind` has all kinds of the policy where the call belongs to none of them.
    std::string policy, library, kind, call;
    std::string note;  // what is known besides: an address, an exception's text, the last output
    std::string file;  // the mapped file whose change ended the work
    bool in_step = false;  // layer and token mean something
    uint32_t layer = 0;
    uint64_t token = 0;
    std::string bytes;  // what the work sent with its `out`

    bool died() const { return !finished; }
    bool policy_died() const { return died() && !call.empty(); }
    // One line, fit for a terminal:
    // "cache policy mine (./mine.so): died of SIGSEGV in victims, layer 3, token 17: ..."
    std::string text() const;
    std::string signal_name() const;  // "SIGSEGV"; "" where there is none
};

// What the work may send to its parent while it lasts.
using sender = std::function<void(std::string_view)>;

struct supervision {
    double time_limit_s = 0;  // of the whole work; 0: none
    bool quiet = false;       // its stdout and stderr go nowhere; the note keeps the last line
};

// Forks; the child runs `work` and exits with what it returns. SIGINT, SIGTERM and SIGHUP are
// passed on to it, and end this process, too, where the child died of them. Requires: one thread.
ending supervise(const std::function<int(const sender &out)> &work, const supervision &how);

// The same for `count` works, at most `at_once` at a time; `ended` is called here with each, in the
// order in which they end.
void supervise_all(size_t count, size_t at_once,
                   const std::function<int(size_t index, const sender &out)> &work,
                   const supervision &how,
                   const std::function<void(size_t index, ending how)> &ended);

}  // namespace moorage::core
