// supervise.h - does work in a child process and says how it ended (core/decisions/0019).
//
//   const ending how = supervise([&] { return work(); }, {});
//   if (how.died()) say(how.text());
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/host/call.h"

namespace moorage::core {

struct ending {
    int exit_code = 0;      // of the work, where it finished
    int signal = 0;         // that ended it; 0: none
    bool finished = false;  // the work returned
    bool overran = false;   // a call, or all of it, took longer than allowed
    // Who was at work; empty: no policy was. `call` is "victims".
    std::string policy, library, kind, call, note;
    bool in_step = false;  // layer and token mean something
    uint32_t layer = 0;
    uint64_t token = 0;
    std::string bytes;  // what the work sent with its `out`

    bool died() const { return !finished; }
    // One line: "cache policy mine (./mine.so): died of SIGSEGV in victims, layer 3, token 17: ..."
    std::string text() const;
};

struct supervision {
    double time_limit_s = 0;  // of the whole work; 0: none
    bool quiet = false;       // its stdout and stderr go nowhere; the note keeps the last line
};

// Forks; the child runs `work` and exits with what it returns. `out` takes bytes for the parent
// (ending::bytes). Signals that ask the parent to end are passed on. Requires: one thread.
ending supervise(const std::function<int(const std::function<void(std::string_view)> &out)> &work,
                 const supervision &how);

}  // namespace moorage::core
