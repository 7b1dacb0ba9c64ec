// registrar.cpp - turns the registry, carries plans to and fro.
#include "core/node/registrar.h"

#include <algorithm>
#include <utility>

#include "core/base/log.h"
#include "core/base/steady_time.h"
#include "core/base/text.h"

namespace moorage::core {

namespace {

constexpr uint64_t wait_ns = 50'000'000;   // of one look at the registry
constexpr uint64_t lead_ns = 500'000'000;  // between tries
constexpr uint64_t say_ns = 100'000'000;   // between words of a member at least
constexpr uint64_t failed_pause_ms = 200;

}  // namespace

leader_desk::snapshot leader_desk::look() const {
    const std::lock_guard lock(guard_);
    return seen_;
}

void leader_desk::propose(proposal what) {
    const std::lock_guard lock(guard_);
    proposal_ = std::move(what);
}

void leader_desk::answer(std::string text) {
    const std::lock_guard lock(guard_);
    answer_ = std::move(text);
}

void leader_desk::show(bool leads, const registry_state &state) {
    const std::lock_guard lock(guard_);
    if (seen_.version != 0 && seen_.leads == leads && seen_.state == state) return;
    seen_ = {leads, seen_.version + 1, state};
    if (!leads) proposal_.reset();
}

std::optional<leader_desk::proposal> leader_desk::take_proposal() {
    const std::lock_guard lock(guard_);
    return std::exchange(proposal_, std::nullopt);
}

std::optional<std::string> leader_desk::take_answer() {
    const std::lock_guard lock(guard_);
    return std::exchange(answer_, std::nullopt);
}

registrar::registrar(parts of) : of_(std::move(of)), begun_ns_(steady_ns()) {
    view_.where = of_.at->where();
    view_.heard_ns = begun_ns_;
    of_.at->judge_plans([this](uint64_t epoch, const std::string &text) -> plan_opinion {
        const auto plan = read_plan_record(epoch, text, of_.plan);
        if (plan) return {};
        return {is_of_another(text, of_.plan) ? plan_opinion::worth::of_another
                                              : plan_opinion::worth::nonsense,
                plan.failure().text};
    });
}

registrar::~registrar() {
    over_ = true;
    if (thread_.joinable()) thread_.join();
}

void registrar::begin() {
    thread_ = std::thread([this] { run(); });
}

void registrar::wait_for_first(uint64_t within_ns) const {
    const uint64_t end_ns = steady_ns() + within_ns;
    while (!asked_ && steady_ns() < end_ns)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

registry_view registrar::view() const {
    const std::lock_guard lock(guard_);
    return view_;
}

void registrar::run() {
    while (!over_) {
        turned_ns_ = steady_ns();
        turn();
    }
    of_.at->leave();
}

void registrar::turn() {
    const auto turned = of_.at->turn(wait_ns);
    if (!turned) {
        note_trouble(turned.failure().text);
        take_plan();  // readable entries count, even if nothing can be written
        asked_ = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(failed_pause_ms));
        return;
    }
    note_trouble("");
    take_plan();
    asked_ = true;
    const uint64_t now_ns = steady_ns();
    if (!of_.name.empty() && now_ns - said_ns_ > say_ns) {
        said_ns_ = now_ns;
        if (std::string text = to_text(of_.board->said()); text != said_) {
            const status said = of_.at->announce(of_.name, text);
            note_fault("takes no part in the registry", said);
            if (!said) return;
            said_ = std::move(text);
        }
    }
    if (!of_.desk) return;
    if (!of_.name.empty() && !of_.at->leads() && now_ns - led_ns_ > lead_ns) {
        led_ns_ = now_ns;
        const auto led = of_.at->lead();
        note_fault("cannot lead", led ? success() : led.failure());
        if (!led) return;
        if (*led) log_info(format("registry: {} leads", of_.name));
    }
    of_.desk->show(of_.at->leads(), of_.at->state());
    if (of_.at->leads()) write_for_leader();
}

void registrar::take_plan() {
    const registry_state &state = of_.at->state();
    if (state.epoch == 0 || state.epoch == seen_epoch_) return;
    seen_epoch_ = state.epoch;
    auto plan = read_plan_record(state.epoch, state.plan, of_.plan);
    if (!plan) {
        if (std::exchange(refused_, plan.failure().text) != plan.failure().text)
            log_error(format("node: goes on with the plan that it has: {}", refused_));
        return;
    }
    if (of_.board->post(std::move(*plan)) && of_.wake) of_.wake();
}

void registrar::write_for_leader() {
    if (auto what = of_.desk->take_proposal()) {
        const auto done =
            of_.at->put_plan(what->before, what->next.epoch, to_text(what->next, of_.plan));
        note_fault("cannot write the plan", done ? success() : done.failure());
        if (!done) return;
        take_plan();
        of_.desk->show(of_.at->leads(), of_.at->state());
    }
    if (const auto text = of_.desk->take_answer())
        note_fault("cannot write its answer", of_.at->put_note(answer_note, *text));
}

// Once, and again when it is another one.
void registrar::note_fault(const char *what, const status &done) {
    std::string &known = faults_[what];
    const std::string now = done ? "" : done.failure().text;
    if (known == now) return;
    if (now.empty())
        log_warning(format("node: no longer: {}", what));
    else
        log_warning(format("node: {}: {}", what, now));
    known = now;
}

void registrar::note_trouble(const std::string &text) {
    const std::lock_guard lock(guard_);
    if (view_.trouble.empty() && !text.empty()) {
        const uint64_t epoch = of_.board->plan().epoch;
        log_warning(format("node: goes on with {}, as the registry is not to be had: {}",
                           epoch == 0 ? "the file's plan" : format("epoch {} of the plan", epoch),
                           text));
    }
    if (!view_.trouble.empty() && text.empty()) log_warning("node: the registry is there again");
    view_.trouble = text;
    if (!text.empty()) return;
    const registry_state &state = of_.at->state();
    view_.where = of_.at->where();
    view_.heard_ns = steady_ns();
    view_.leader = state.leader;
    view_.leads = of_.at->leads();
    view_.damaged = state.damaged;
    view_.epoch = state.epoch;
    view_.members.clear();
    for (const auto &[name, said] : state.members) view_.members.push_back(name);
}

}  // namespace moorage::core
