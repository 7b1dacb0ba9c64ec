// strays.cpp - reads /proc for children and ends them, including those that then become children.
#include "core/host/strays.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <string>

namespace moorage::core {

void adopt_strays() { prctl(PR_SET_CHILD_SUBREAPER, 1); }

std::vector<pid_t> children_of_process() {
    const std::string process = std::to_string(getpid());
    std::ifstream input("/proc/" + process + "/task/" + process + "/children");
    std::vector<pid_t> children;
    for (pid_t child; input >> child;) children.push_back(child);
    return children;
}

bool end_strays(const std::vector<pid_t> &kept) {
    constexpr int generations_max = 100;
    bool found_any = false;
    for (int generation = 0; generation < generations_max; ++generation) {
        bool found = false;
        for (const pid_t child : children_of_process()) {
            if (std::find(kept.begin(), kept.end(), child) != kept.end()) continue;
            found = found_any = true;
            kill(child, SIGKILL);
            waitpid(child, nullptr, 0);
        }
        if (!found) break;
    }
    return found_any;
}

}  // namespace moorage::core
