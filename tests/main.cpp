// main.cpp - the main function of every doctest program. A test case without an assertion fails.
// One that says why it cannot run counts as skipped (skip.h), and so does the program. Names that
// choose no test case at all fail.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <iostream>

#include "core/base/freed_memory.h"
#include "tests/skip.h"

namespace {

std::string reason_to_skip;  // of the test case that runs; empty: it does not

struct outcome {
    int ran = 0, empty = 0, skipped = 0;
} seen;

// Hears of every test case; the reporters that print are doctest's own.
struct counter final : doctest::IReporter {
    explicit counter(const doctest::ContextOptions &) {}
    void report_query(const doctest::QueryData &) override {}
    void test_run_start() override {}
    void test_run_end(const doctest::TestRunStats &) override {}
    void test_case_start(const doctest::TestCaseData &test_case) override {
        ++seen.ran;
        running_ = test_case.m_name;
        reason_to_skip.clear();
    }
    void test_case_reenter(const doctest::TestCaseData &) override {}
    void test_case_end(const doctest::CurrentTestCaseStats &stats) override {
        if (!reason_to_skip.empty()) {
            ++seen.skipped;
            std::cout << "skipped: " << running_ << ": " << reason_to_skip << "\n";
        } else if (stats.numAssertsCurrentTest == 0) {
            ++seen.empty;
            std::cout << "failed: " << running_ << ": made no assertion; give it one, or let it "
                      << "say with skip() why it cannot run\n";
        }
    }
    void test_case_exception(const doctest::TestCaseException &) override {}
    void subcase_start(const doctest::SubcaseSignature &) override {}
    void subcase_end() override {}
    void log_assert(const doctest::AssertData &) override {}
    void log_message(const doctest::MessageData &) override {}
    void test_case_skipped(const doctest::TestCaseData &) override {}

private:
    const char *running_ = "";
};

REGISTER_LISTENER("counter", 1, counter);

}  // namespace

// A race is not reported if its earlier access has left the thread's history. With the default, a
// stream that polls has forgotten its copies within 0.1 s.
extern "C" const char *__tsan_default_options() { return "history_size=7"; }

void moorage::test::skip(const std::string &reason) { reason_to_skip = reason; }

int main(int argc, char **argv) {
    moorage::core::keep_freed_memory();  // as the program does
    doctest::Context context(argc, argv);
    const int failed = context.run();
    if (context.shouldExit()) return failed;  // --help and lists
    if (seen.ran == 0) std::cout << "failed: no test case has the names that are asked for\n";
    if (failed != 0 || seen.empty > 0 || seen.ran == 0) return 1;
    return seen.skipped > 0 ? moorage::test::skipped_exit_code : 0;
}
