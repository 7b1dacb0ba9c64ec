// registrar.cpp - turns the registry, carries plans to and fro.
#include "tools/node/registrar.h"

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

void leader_desk::propose(proposal proposed) {
    const std::lock_guard lock(guard_);
    proposal_ = std::move(proposed);
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

registrar::registrar(parts config) : config_(std::move(config)), begun_ns_(steady_ns()) {
    view_.location = config_.registry->location();
    view_.heard_ns = begun_ns_;
    config_.registry->set_plan_judge(
        [this](uint64_t epoch, const std::string &text) -> plan_opinion {
            const auto plan = read_plan_record(epoch, text, config_.plan);
            if (plan) return {};
            return {is_of_other_cluster(text, config_.plan) ? plan_opinion::worth::of_other_cluster
                                                            : plan_opinion::worth::nonsense,
                    plan.failure().text};
        });
}

registrar::~registrar() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
}

void registrar::begin() {
    thread_ = std::thread([this] { run(); });
}

void registrar::wait_for_first(uint64_t within_ns) const {
    const uint64_t end_ns = steady_ns() + within_ns;
    while (!has_looked_ && steady_ns() < end_ns)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

registry_view registrar::view() const {
    const std::lock_guard lock(guard_);
    return view_;
}

void registrar::run() {
    while (!stopping_) {
        turned_ns_ = steady_ns();
        turn();
    }
    config_.registry->leave();
}

void registrar::turn() {
    const auto turned = config_.registry->turn(wait_ns);
    if (!turned) {
        note_trouble(turned.failure().text);
        take_plan();  // readable entries count, even if nothing can be written
        has_looked_ = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(failed_pause_ms));
        return;
    }
    note_trouble("");
    take_plan();
    has_looked_ = true;
    const uint64_t now_ns = steady_ns();
    if (!config_.name.empty() && now_ns - said_ns_ > say_ns) {
        said_ns_ = now_ns;
        if (std::string text = to_text(config_.board->reported()); text != announced_text_) {
            const status announced = config_.registry->announce(config_.name, text);
            note_fault("takes no part in the registry", announced);
            if (!announced) return;
            announced_text_ = std::move(text);
        }
    }
    if (!config_.desk) return;
    if (!config_.name.empty() && !config_.registry->leads() && now_ns - led_ns_ > lead_ns) {
        led_ns_ = now_ns;
        const auto led = config_.registry->lead();
        note_fault("cannot lead", led ? success() : led.failure());
        if (!led) return;
        if (*led) log_info(format("registry: {} leads", config_.name));
    }
    config_.desk->show(config_.registry->leads(), config_.registry->state());
    if (config_.registry->leads()) write_for_leader();
}

void registrar::take_plan() {
    const registry_state &state = config_.registry->state();
    if (state.epoch == 0 || state.epoch == seen_epoch_) return;
    seen_epoch_ = state.epoch;
    auto plan = read_plan_record(state.epoch, state.plan, config_.plan);
    if (!plan) {
        if (std::exchange(refused_, plan.failure().text) != plan.failure().text)
            log_error(format("node: goes on with the plan that it has: {}", refused_));
        return;
    }
    if (config_.board->post(std::move(*plan)) && config_.wake) config_.wake();
}

void registrar::write_for_leader() {
    if (auto proposed = config_.desk->take_proposal()) {
        const auto done = config_.registry->put_plan(proposed->old_epoch, proposed->next.epoch,
                                                     to_text(proposed->next, config_.plan));
        note_fault("cannot write the plan", done ? success() : done.failure());
        if (!done) return;
        take_plan();
        config_.desk->show(config_.registry->leads(), config_.registry->state());
    }
    if (const auto text = config_.desk->take_answer())
        note_fault("cannot write its answer", config_.registry->put_note(answer_note, *text));
}

// Once, and again when it is another one.
void registrar::note_fault(const char *fault, const status &done) {
    std::string &known = faults_[fault];
    const std::string now = done ? "" : done.failure().text;
    if (known == now) return;
    if (now.empty())
        log_warning(format("node: no longer: {}", fault));
    else
        log_warning(format("node: {}: {}", fault, now));
    known = now;
}

void registrar::note_trouble(const std::string &text) {
    const std::lock_guard lock(guard_);
    if (view_.trouble.empty() && !text.empty()) {
        const uint64_t epoch = config_.board->plan().epoch;
        log_warning(format("node: goes on with {}, as the registry is not to be had: {}",
                           epoch == 0 ? "the file's plan" : format("epoch {} of the plan", epoch),
                           text));
    }
    if (!view_.trouble.empty() && text.empty()) log_warning("node: the registry is there again");
    view_.trouble = text;
    if (!text.empty()) return;
    const registry_state &state = config_.registry->state();
    view_.location = config_.registry->location();
    view_.heard_ns = steady_ns();
    view_.leader = state.leader;
    view_.leads = config_.registry->leads();
    view_.damaged = state.damaged;
    view_.epoch = state.epoch;
    view_.members.clear();
    for (const auto &[name, member_text] : state.members) view_.members.push_back(name);
}

}  // namespace moorage::core
