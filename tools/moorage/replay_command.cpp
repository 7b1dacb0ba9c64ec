// replay_command.cpp - `moorage replay`: counts misses of cache policies on a trace, beside the
// optimum.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/text.h"
#include "core/cache/replay_packing.h"
#include "tools/comparison/progress.h"
#include "tools/moorage/command.h"
#include "tools/moorage/output.h"
#include "tools/moorage/settings.h"
#include "tools/moorage/plugins.h"
#include "tools/moorage/replay_table.h"
#include "tools/moorage/rows.h"
#include "tools/moorage/setting_text.h"

namespace moorage::tool {

using core::error, core::format, core::result, core::status;

namespace {

constexpr std::string_view optimum_policy = "belady";  // its plain row is the optimum

struct replay_options {
    std::string trace, json;
    std::string policies = "all", slots = "12.5%,25%,50%", sharings = "shared", order = "token";
    std::vector<std::string> params;
    setting_options settings;
    row_file_options rows;
    uint32_t jobs = 0;
    bool timing = false, no_optimum = false;
    core::run_config keys;  // from --set and from flags of keys
};

// The keys of a configuration that a replay uses.
constexpr std::string_view used_keys[] = {"run.seed",       "run.tokens", "memory.experts",
                                          "memory.sharing", "plugins",    "cache"};

// A policy of the list, with the settings that its label carries.
struct listed_policy {
    std::string label;
    const core::policy *policy = nullptr;
    core::settings params;
};

// "lfu:half_life=16:forget_on_evict=true"
result<listed_policy> parse_entry(const std::string &label, const core::registry &policies) {
    const std::vector<std::string> parts = core::split(label, ':');
    listed_policy parsed{label, nullptr, {}};
    std::filesystem::path library;
    for (size_t i = 1; i < parts.size(); ++i) {
        std::error_code failed;
        if (parts[i].starts_with("library=")) {
            library = parts[i].substr(8);
            if (std::filesystem::exists(library, failed))
                library = std::filesystem::absolute(library, failed);
            continue;
        }
        auto setting = parse_setting(parts[i], format("--policies {}", label));
        if (!setting) return setting.failure();
        parsed.params.push_back(std::move(*setting));
    }
    const auto found = policies.find(parts[0], "cache", library);
    if (!found) return error{found.failure().text, true};
    parsed.policy = *found;
    return parsed;
}

// "cache.lfu.half_life=0,16": a key, and its value or the values to be tried.
struct tried_param {
    std::string text;    // as given
    std::string policy;  // empty: every one
    std::string key;
    std::vector<std::string> values;
};

result<tried_param> parse_param(const std::string &text) {
    const size_t equals = text.find('=');
    std::vector<std::string> names = core::split(text.substr(0, equals), '.');
    if (names.size() == 2 && names[0] != "cache" && equals != std::string::npos) {
        warn_old_spelling("--param " + text, "--param cache." + text);
        names.insert(names.begin(), "cache");
    }
    if (equals == std::string::npos || names[0] != "cache" || names.size() < 2 || names.size() > 3)
        return error{format("--param {} is not of the form cache.KEY=VALUE or "
                            "cache.POLICY.KEY=VALUE",
                            text),
                     true};
    auto values = core::parse_sweep(format("cache.{}={}", names.back(), text.substr(equals + 1)));
    if (!values) return error{"--param " + values.failure().text, true};
    return tried_param{text, names.size() == 3 ? names[1] : "", names.back(),
                       std::move(values->values)};
}

// Adds it to every entry of the policy whose label does not set the key. Several values make an
// entry each.
status add_param(const tried_param &param, std::vector<listed_policy> &entries) {
    std::vector<listed_policy> extended;
    std::vector<std::string> names;
    bool used = false;
    std::string setting_label;  // a label
    for (const listed_policy &candidate : entries) {
        names.emplace_back(candidate.policy->name());
        const bool is_meant = param.policy.empty() || param.policy == candidate.policy->name();
        const bool set = std::ranges::any_of(candidate.params, [&](const core::setting &setting) {
            return setting.key == param.key;
        });
        used |= is_meant && !set;
        if (is_meant && set) setting_label = candidate.label;
        if (!is_meant || set) extended.push_back(candidate);
        if (!is_meant || set) continue;
        for (const std::string &value : param.values) {
            const std::string assignment = param.key + "=" + value;
            auto setting = parse_setting(assignment, param.text);
            if (!setting) return setting.failure();
            extended.push_back(candidate);
            extended.back().params.push_back(std::move(*setting));
            if (param.values.size() > 1) extended.back().label += ":" + assignment;
        }
    }
    entries = std::move(extended);
    if (used) return core::success();
    if (!setting_label.empty())
        return error{format("{} is given twice: --policies {} sets it; keep one of them",
                            param.text, setting_label),
                     true};
    return error{format("{}: policy {} is not among --policies{}", param.text, param.policy,
                        core::did_you_mean(param.policy, names)),
                 true};
}

// Adds the parameters of --param, and those of caches from --set.
status add_params(const replay_options &options, std::vector<listed_policy> &entries) {
    std::vector<tried_param> params;
    for (const std::string &text : options.params) {
        auto param = parse_param(text);
        if (!param) return param.failure();
        param->text = "--param " + param->text;
        params.push_back(std::move(param).value());
    }
    const auto set = read_settings(options.settings);
    if (!set) return set.failure();
    for (const core::override_value &setting : *set) {
        if (setting.section != "cache" || setting.key == "plugin" || setting.key == "library")
            continue;
        auto param = parse_param(format("cache.{}={}", setting.key, setting.value));
        if (!param) return param.failure();
        param->text = "--set " + param->text;
        params.push_back(std::move(param).value());
    }
    for (size_t i = 0; i < params.size(); ++i) {
        for (size_t j = 0; j < i; ++j)
            if (params[i].key == params[j].key && params[i].policy == params[j].policy)
                return error{format("{} and {} say two things of one parameter; values to be tried "
                                    "stand in one: {}=0,16",
                                    params[j].text, params[i].text,
                                    params[i].text.substr(0, params[i].text.find('='))),
                             true};
        if (const status added = add_param(params[i], entries); !added) return added;
    }
    return core::success();
}

result<std::vector<listed_policy>> parse_policies(const replay_options &options,
                                                  const core::registry &policies,
                                                  const core::trace &source, core::order requests) {
    std::vector<listed_policy> entries;
    if (options.policies == "all") {
        for (const core::policy &loaded_policy : policies.policies()) {
            if (!loaded_policy.is("cache")) continue;
            const bool alone = policies.find(loaded_policy.name(), "cache").ok();
            entries.push_back(
                {alone ? std::string(loaded_policy.name())
                       : format("{}:library={}", loaded_policy.name(), loaded_policy.path.string()),
                 &loaded_policy,
                 {}});
        }
        std::ranges::sort(entries, {}, &listed_policy::label);
        std::erase_if(entries, [&](const listed_policy &listed) {
            const core::replay_job job{.cache_policy = listed.policy, .requests = requests};
            const status able = core::check_replay(source, job);
            if (!able) core::log_warning(format("left out: {}", able.failure().text));
            return !able;
        });
        if (entries.empty())
            return error{
                "no cache policy was found; build the plugins or name their place with "
                "--plugins"};
    } else {
        for (const std::string &label : core::split(options.policies, ',')) {
            auto parsed = parse_entry(label, policies);
            if (!parsed) return parsed.failure();
            const bool twice = std::ranges::any_of(
                entries, [&](const listed_policy &listed) { return listed.label == label; });
            if (!twice) entries.push_back(std::move(*parsed));
        }
    }
    if (const status added = add_params(options, entries); !added) return added.failure();
    return entries;
}

// Counts, or shares of all experts of the trace ("12.5%"), rounded down.
result<std::vector<uint32_t>> parse_slots(const std::string &list, uint32_t pages) {
    std::vector<uint32_t> sizes;
    for (const std::string &text : core::split(list, ',')) {
        const bool share = text.ends_with('%');
        const char *end = text.data() + text.size() - (share ? 1 : 0);
        double value = 0;
        const auto read = std::from_chars(text.data(), end, value);
        // The small addition keeps 10 % of 250 from becoming 24.
        if (share) value = value * pages / 100 + 1e-9;
        if (read.ec != std::errc() || read.ptr != end || !(value >= 1) || value > 1e9 ||
            (!share && value != std::floor(value)))
            return error{
                format("--slots {}: a count of experts from 1 up, or a share of the {} experts "
                       "of this trace like 25%, is needed",
                       text, pages),
                true};
        const auto slots = static_cast<uint32_t>(value);
        if (std::ranges::find(sizes, slots) == sizes.end()) sizes.push_back(slots);
    }
    return sizes;
}

result<std::vector<core::sharing>> parse_sharings(const std::string &list) {
    std::vector<core::sharing> sharings;
    for (const std::string &text : core::split(list, ',')) {
        auto sharing = core::parse_sharing(text);
        if (!sharing) return error{"--sharing: " + sharing.failure().text, true};
        if (std::ranges::find(sharings, *sharing) == sharings.end()) sharings.push_back(*sharing);
    }
    return sharings;
}

// The jobs of all rows, each once, and where their results go.
struct plan {
    std::vector<core::replay_job> jobs;
    std::vector<size_t> row_job;                 // parallel to the report's rows
    std::vector<std::optional<size_t>> opt_job;  // likewise
};

// A plain belady row serves as the optimum of its size, so that nothing runs twice.
plan make_plan(replay_report &report, const std::vector<listed_policy> &entries,
               const std::vector<uint32_t> &sizes, const std::vector<core::sharing> &sharings,
               bool optimum, const core::policy *belady, const core::replay_job &common) {
    const auto is_optimum = [&](const listed_policy &listed) {
        return listed.policy == belady && listed.params.empty();
    };
    const auto row = std::ranges::find_if(entries, is_optimum);
    plan work;
    for (const core::sharing pools : sharings) {
        for (const uint32_t slots : sizes) {
            core::replay_job job = common;
            job.slots = slots;
            job.pools = pools;
            std::optional<size_t> best;
            if (optimum) {
                best = work.jobs.size();
                job.optimum = row == entries.end();
                job.cache_policy = belady;
                work.jobs.push_back(job);
                job.optimum = false;
            }
            for (const listed_policy &listed : entries) {
                job.cache_policy = listed.policy;
                job.params = listed.params;
                const bool is_same = best && is_optimum(listed);
                work.row_job.push_back(is_same ? *best : work.jobs.size());
                work.opt_job.push_back(best);
                if (!is_same) work.jobs.push_back(job);
                report.rows.push_back({listed.label, slots, pools, {}, {}});
            }
        }
    }
    return work;
}

// All other layers come between two requests of an expert. So a shared lru below one token's
// working set is at its worst: design, section 3.
void warn_of_working_set(replay_report &report, const std::vector<uint32_t> &sizes,
                         const std::vector<core::sharing> &sharings) {
    if (std::ranges::find(sharings, core::sharing::shared) == sharings.end()) return;
    const uint32_t none =
        core::slots_without_lru_hits(report.layers, report.top_k, report.requests);
    const bool rounds = report.requests == core::order::rounds;
    const uint32_t whole = report.layers * (rounds ? 1 : report.top_k);
    std::string below, near;
    for (const uint32_t slots : sizes) {
        std::string &list = slots <= none ? below : near;
        if (slots < whole) list += format("{}{}", list.empty() ? "" : ", ", slots);
    }
    const std::string working_set =
        format("the working set of {} is {} experts",
               rounds ? "one round over the layers" : "one token", whole);
    if (!below.empty())
        report.warnings.push_back(
            format("a shared lru with {} slots hits exactly 0 %: {}, and {} others "
                   "come between two requests of an expert",
                   below, working_set, none));
    if (!near.empty())
        report.warnings.push_back(
            format("a shared lru with {} slots hits next to nothing: {}", near, working_set));
}

row_identity identity_of(const replay_options &options, const core::replay_job &job) {
    row_hash sum;
    sum.add_program();
    sum.add_file(options.trace);
    std::string label = job.optimum ? "the optimum" : std::string(job.cache_policy->name());
    for (const core::setting &setting : job.params)
        label += format(":{}={}", setting.key, core::json_of(setting.value).dump());
    label += format(", {} slots, {}", job.slots, core::name_of(job.pools));
    sum.add(label);
    sum.add(format("{} {} {} {}", options.order, job.seed, job.tokens, int(job.action)));
    if (job.cache_policy) sum.add_file(job.cache_policy->path);
    return {label, sum.text()};
}

// Runs every job in a process of its own. Its figures or its failure go to its rows. Returns the
// signal that interrupted them.
int run_jobs(const core::trace &source, const plan &work, const replay_options &options,
             row_file &kept, replay_report &report) {
    const uint64_t tokens = report.tokens;
    std::optional<core::future> coming;
    for (const core::replay_job &job : work.jobs)
        if (!coming && !job.optimum &&
            (job.cache_policy->descriptor->needs & MOORAGE_NEEDS_FUTURE) != 0)
            coming.emplace(source, tokens);
    core::progress shown("replay", tokens * report.layers * report.top_k * work.jobs.size());
    const auto count_job = [&](size_t i) -> result<std::string> {
        const auto counted = core::replay(source, coming ? &*coming : nullptr, work.jobs[i],
                                          [&](uint64_t done) { shown.advance(done); });
        if (!counted) return counted.failure();
        return core::packed(*counted);
    };
    std::vector<std::optional<core::replay_result>> counted(work.jobs.size());
    std::vector<core::failed_row> failures(work.jobs.size());
    std::vector<bool> has_ended(work.jobs.size());
    rows_options row_options{.at_once = options.jobs, .is_measured = options.timing};
    if (kept.is_open() && !options.timing) {
        row_options.kept = &kept;
        row_options.identity = [&](size_t i) { return identity_of(options, work.jobs[i]); };
        row_options.figures = [](const std::string &) { return core::json(); };
    }
    const int signal =
        run_rows(work.jobs.size(), row_options, count_job, [&](size_t i, row_end finished_row) {
            has_ended[i] = true;
            if (finished_row.failure)
                failures[i] = std::move(*finished_row.failure);
            else if (!core::unpack(finished_row.bytes, counted[i].emplace()))
                counted[i].reset(), failures[i].reason = "its figures did not arrive whole";
        });
    const size_t rows_asked = report.rows.size();
    std::vector<replay_row> rows_ended;
    for (size_t i = 0; i < rows_asked; ++i) {
        if (!has_ended[work.row_job[i]]) continue;
        replay_row &row = rows_ended.emplace_back(std::move(report.rows[i]));
        if (const auto &row_result = counted[work.row_job[i]]) {
            row.counted = *row_result;
        } else {
            row.failed = true;
            report.failed.push_back(failures[work.row_job[i]]);
            report.failed.back().label =
                format("{}, {} slots, {}", row.label, row.slots, core::name_of(row.pools));
        }
        if (work.opt_job[i] && counted[*work.opt_job[i]])
            row.opt_misses = counted[*work.opt_job[i]]->misses;
    }
    report.rows = std::move(rows_ended);
    if (signal != 0)
        report.warnings.push_back(format("interrupted by {} after {} of {} rows; {}",
                                         name_of_signal(signal), report.rows.size(), rows_asked,
                                         kept.remedy()));
    for (size_t i = 0; i < work.jobs.size(); ++i)
        if (has_ended[i] && !counted[i] && std::ranges::find(work.row_job, i) == work.row_job.end())
            report.warnings.push_back(format("the optimum of {} slots, {}, was not counted: {}",
                                             work.jobs[i].slots, core::name_of(work.jobs[i].pools),
                                             failures[i].reason));
    return signal;
}

result<replay_report> count_misses(const replay_options &options, row_file &kept, int &signal) {
    const auto requests = core::parse_order(options.order);
    if (!requests) return error{"--order: " + requests.failure().text, true};
    const auto sharings = parse_sharings(options.sharings);
    if (!sharings) return sharings.failure();
    const auto policies = open_registry(options.keys.plugin_paths);
    if (!policies) return policies.failure();
    const auto source = core::trace::open(options.trace);
    if (!source) return source.failure();
    const auto entries = parse_policies(options, *policies, *source, *requests);
    if (!entries) return entries.failure();
    const auto sizes = parse_slots(options.slots, source->layers() * source->experts());
    if (!sizes) return sizes.failure();

    replay_report report;
    report.trace = options.trace;
    report.model = source->meta("model");
    report.tokens = options.keys.tokens == 0 ? source->tokens()
                                             : std::min(options.keys.tokens, source->tokens());
    report.layers = source->layers(), report.experts = source->experts(),
    report.top_k = source->top_k();
    report.requests = *requests;
    report.seed = options.keys.seed;
    report.timing = options.timing;
    warn_of_working_set(report, *sizes, *sharings);
    const auto belady = policies->find(optimum_policy, "cache", "cache/belady.so");
    const core::replay_job common{.requests = *requests,
                                  .seed = options.keys.seed,
                                  .tokens = report.tokens,
                                  .action = options.keys.fault_action};
    const plan work = make_plan(report, *entries, *sizes, *sharings, !options.no_optimum,
                                belady ? *belady : nullptr, common);

    // Everything that can be refused is refused before hours of other work.
    for (const core::replay_job &job : work.jobs)
        if (const status able = core::check_replay(*source, job); !able) return able.failure();
    signal = run_jobs(*source, work, options, kept, report);
    return report;
}

// Reads the keys for which the command has no option of its own.
status read_keys(replay_options &options) {
    const auto settings = read_settings(options.settings);
    if (!settings) return settings.failure();
    auto keys = read_alone(options.settings, "replay", used_keys);
    if (!keys) return keys.failure();
    options.keys = std::move(keys).value();
    core::watch_calls(options.keys);
    // A flag that stands for a key counts less than --set.
    if (has_setting(*settings, "cache.plugin")) options.policies = options.keys.cache.plugin;
    if (options.keys.experts) options.slots = format("{}", *options.keys.experts);
    if (options.keys.experts_share > 0)
        options.slots = format("{}%", options.keys.experts_share * 100);
    if (has_setting(*settings, "memory.sharing"))
        options.sharings = options.keys.per_layer ? "per-layer" : "shared";
    return core::success();
}

int run_replay(replay_options &options) {
    if (const status read = read_keys(options); !read) return fail(read.failure());
    auto kept = row_file::open(options.rows, {options.json});
    if (!kept) return fail(kept.failure());
    int signal = 0;
    const auto report = count_misses(options, *kept, signal);
    if (!report) return fail(report.failure());
    const int code = exit_code_of(report->rows.size() - report->failed.size(), report->failed);
    if (code == exit_usage) return code;
    if (options.json != "-") print(to_text(*report));
    if (!options.json.empty())
        if (const status written = write_json(options.json, to_json(*report)); !written)
            return fail(written.failure());
    if (signal != 0) return end_interrupted(signal);
    const status closed = kept->finish(code == exit_ok);
    return closed ? code : fail(closed.failure());
}

}  // namespace

command install_replay(parser &app) {
    const auto options =
        std::make_shared<replay_options>();  // shared: parser and command outlive this
    parser *sub =
        app.add_subcommand("replay", "count hits and misses of cache policies on a trace");
    sub->add_option("trace", options->trace, "trace file (*.safetensors)")->required();
    sub->add_option("--policies", options->policies,
                    "list of cache policies; `all`: every one found; lfu:half_life=16 sets a "
                    "parameter; mine:library=FILE.so chooses one of two libraries ([cache] plugin)")
        ->capture_default_str();
    sub->add_option("--slots", options->slots,
                    "list of cache sizes: experts of all layers together, or shares like 25% "
                    "([memory] experts)")
        ->capture_default_str();
    sub->add_option("--sharing", options->sharings,
                    "shared, per-layer, or both with a comma between them ([memory] sharing)")
        ->capture_default_str();
    sub->add_option("--order", options->order,
                    "token: the experts of a token and layer are one event; serial: they come one "
                    "after the other; rounds: the best-scored expert of all layers, then the next")
        ->one_of({"rounds", "token", "serial"})
        ->capture_default_str();
    sub->add_option("--param", options->params,
                    "parameter of a cache policy and its value, or several values to try: "
                    "cache.lfu.half_life=0,16; repeatable")
        ->type_name("cache.POLICY.KEY=VALUES")
        ->take_all()
        ->expected(1);
    sub->add_flag("--no-optimum", options->no_optimum, "do not count the offline optimum");
    sub->add_option("--jobs", options->jobs,
                    "number of replays at the same time; 0: one for each core")
        ->capture_default_str();
    add_settings(*sub, options->settings);
    for (const char *flag : {"--tokens", "--on-fault", "--guard", "--call-limit-ms"})
        add_flag_of_key(*sub, options->settings, flag);
    add_json(*sub, options->json, "the figures");
    add_row_file(*sub, options->rows);
    sub->add_flag(
        "--timing", options->timing,
        "measure the speed; without it `seconds` is 0, so that equal runs write equal bytes");
    sub->footer(rows_footer);
    return [options] { return run_replay(*options); };
}

}  // namespace moorage::tool
