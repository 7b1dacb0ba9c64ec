// supervise.h - does work in child processes and says how it ended (core/decisions/0019, 0048).
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
    int exit_code = 0;      // of the work, or of the process, where no signal ended it
    int signal = 0;         // that ended it; 0: none
    bool finished = false;  // the work returned
    bool overran = false;   // a call, or all of it, took longer than allowed, and was ended
    bool endless = false;   // overran: many calls, none of them long, and no layer step ended
    bool stopped = false;   // the process had been stopped (SIGSTOP), and was ended
    uint32_t limit_ms = 0;  // the limit that was overrun
    // Who was at work; no `call` ("victims"): no policy was. `policy` is empty while a library is
    // being opened and for code of a library outside of calls; `kind` has all kinds of the policy
    // where the call belongs to none of them.
    std::string policy, library, kind, call;
    std::string note;    // what is known besides: an address, an exception's text, the last output
    std::string file;    // the mapped file whose change ended the work
    std::string forked;  // who made a second process of this one: it was ended; "": nobody
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
// Works are told apart by their index; they answer with an exit code.
using indexed_work = std::function<int(size_t index, const sender &out)>;

struct supervision {
    double time_limit_s = 0;  // of the whole work; 0: none
    bool quiet = false;       // its stdout and stderr go nowhere; the note keeps the last line
    // Asked in a child whose work returned: it may do the next one. Null: a child for each work.
    std::function<bool()> may_go_on = nullptr;
};

// Forks; the child runs `work`, ends the policy libraries and exits with what it returned, without
// any handler or destructor of theirs. SIGINT, SIGTERM and SIGHUP are passed on to it, and end this
// process, too, where the child died of them. What the child leaves behind is ended with it.
// Requires: one thread.
ending supervise(const std::function<int(const sender &out)> &work, const supervision &how);

// The same for `count` works, at most `at_once` at a time; `ended` is called here with each, in the
// order in which they end. A child that may go on takes the next work; one that dies loses its own
// alone. The answer: the signal that this process was asked to end with, and 0 for none. After a
// signal some works have not ended; where children may go on, the signals then stay blocked until
// end_by() is called, so that what there is can be shown.
int supervise_all(size_t count, size_t at_once, const indexed_work &work, const supervision &how,
                  const std::function<void(size_t index, ending how)> &ended);

// Ends this process as the signal would have, which supervise_all() answered.
void end_by(int signal);

}  // namespace moorage::core
