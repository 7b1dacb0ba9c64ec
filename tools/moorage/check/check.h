// check.h - the conformance kit: the list of tests and the run over one library.
//
// Every test runs in a child process with a timeout. So a policy that crashes, hangs or corrupts
// memory spoils only one test. All random draws follow from the seed alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/base/setting.h"
#include "core/host/registry.h"

namespace moorage::check {

enum class outcome { passed, failed, warning, skipped, crashed };
const char *name_of(outcome value);

struct verdict {
    outcome result = outcome::passed;
    std::string text;
};
inline verdict passed(std::string text = "") { return {outcome::passed, std::move(text)}; }
inline verdict failed(std::string text) { return {outcome::failed, std::move(text)}; }
inline verdict warned(std::string text) { return {outcome::warning, std::move(text)}; }
inline verdict skipped(std::string text) { return {outcome::skipped, std::move(text)}; }

// The input of a test. Each child makes its own.
struct test_input {
    std::filesystem::path file;
    std::string policy_name;               // empty for tests of the library
    const core::policy *policy = nullptr;  // loaded, except in tests of the library
    uint64_t seed = 1;
    core::settings params{};  // parameters of the instances
    std::string wire_address;
    bool large = false;
};

struct test {
    const char *name;      // kebab-case
    const char *sentence;  // true if the test passes
    enum class scope {
        library,  // once, before anything is loaded
        policy,   // per policy, makes instances but no steps
        steps,    // per policy, runs steps; only if life-cycle passed
        wire,     // per wire, connects two of them; only if life-cycle passed
    } level;
    verdict (*run)(const test_input &);
};
// In the order in which they run.
std::span<const test> all_tests();

struct test_result {
    std::string policy;  // empty for tests of the library
    std::string name;
    verdict test_verdict;
    double seconds = 0;
};

struct options {
    std::filesystem::path file;
    std::string policy, only_test;  // empty: all
    uint64_t seed = 1;
    double timeout_s = 10;
    core::settings params{};  // keys are KIND.KEY or KIND.NAME.KEY
    // For wires: the address to listen at, and whether to try messages of 1 GiB.
    std::string wire_address = "127.0.0.1:0";
    bool large = false;
};
core::result<std::vector<test_result>> run_checks(const options &options);

}  // namespace moorage::check
