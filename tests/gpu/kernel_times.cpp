// kernel_times.cpp - a library that the CUDA driver loads into a program. At its end it prints the
// time of each kernel, copy and runtime call, by CUPTI.
//
//   CUDA_INJECTION64_PATH=$PWD/libgpu_kernel_times.so gpu_bench --shape qwen15moe --profiled 1
//
// It counts the last tokens of the run, from one embedding to the next, and the two longest passes.
// These are prompts if there are any (the first loads its data). Kernels of recordings are listed
// one by one. `gap` is the time since the end of the GPU's kernel before. Tracing costs each launch
// a microsecond or two of the host's time.
#include <cupti.h>
#include <cxxabi.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr size_t buffer_bytes = 8u << 20;
constexpr size_t tokens_counted = 32, longest_shown = 2;

struct span_of {
    std::string name;
    uint32_t blocks;
    uint64_t begin_ns, end_ns;
};

std::mutex guard;
std::vector<span_of> kernels, copies, calls;

// Without the namespaces and the wrapper.
std::string short_name(const char *mangled) {
    int bad = 0;
    char *plain = abi::__cxa_demangle(mangled, nullptr, nullptr, &bad);
    std::string name = bad == 0 ? plain : mangled;
    std::free(plain);
    for (const char *part : {"moorage::core::gpu::", "moorage::core::", "void "})
        for (size_t position; (position = name.find(part)) != std::string::npos;)
            name.erase(position, std::string(part).size());
    const size_t begin = name.find("run_kernel<"), end = name.rfind(">(");
    if (begin == 0 && end != std::string::npos) name = name.substr(11, end - 11);
    return name;
}

void record_activity(const CUpti_Activity *record) {
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
        const auto &activity = *reinterpret_cast<const CUpti_ActivityKernel10 *>(record);
        kernels.push_back({short_name(activity.name),
                           static_cast<uint32_t>(activity.gridX * activity.gridY * activity.gridZ),
                           activity.start, activity.end});
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
        const auto &activity = *reinterpret_cast<const CUpti_ActivityMemcpy6 *>(record);
        const char *way = activity.copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD ? "copy to the GPU"
                          : activity.copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH
                              ? "copy to the host"
                              : "copy";
        copies.push_back(
            {way, static_cast<uint32_t>(activity.bytes), activity.start, activity.end});
    } else if (record->kind == CUPTI_ACTIVITY_KIND_RUNTIME) {
        const auto &activity = *reinterpret_cast<const CUpti_ActivityAPI *>(record);
        const char *name = nullptr;
        if (cuptiGetCallbackName(CUPTI_CB_DOMAIN_RUNTIME_API, activity.cbid, &name) !=
            CUPTI_SUCCESS)
            name = "?";
        calls.push_back({name, 0, activity.start, activity.end});
    }
}

void CUPTIAPI give_buffer(uint8_t **buffer, size_t *bytes, size_t *records_max) {
    *bytes = buffer_bytes;
    *buffer = static_cast<uint8_t *>(std::aligned_alloc(8, buffer_bytes));
    *records_max = 0;
}
void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t *buffer, size_t, size_t valid_bytes) {
    const std::lock_guard<std::mutex> held(guard);
    CUpti_Activity *record = nullptr;
    while (cuptiActivityGetNextRecord(buffer, valid_bytes, &record) == CUPTI_SUCCESS)
        record_activity(record);
    std::free(buffer);
}

struct sum_of {
    uint64_t count = 0, ns = 0, gap_ns = 0;
};

void print_rows(const char *title, const std::map<std::pair<std::string, uint32_t>, sum_of> &rows,
                double tokens, bool gaps) {
    std::vector<std::pair<std::pair<std::string, uint32_t>, sum_of>> sorted(rows.begin(),
                                                                            rows.end());
    std::ranges::sort(sorted,
                      [](const auto &a, const auto &b) { return a.second.ns > b.second.ns; });
    double all_us = 0, gap_us = 0, count = 0;
    for (const auto &[key, sums] : sorted) {
        all_us += static_cast<double>(sums.ns) / 1e3 / tokens;
        gap_us += static_cast<double>(sums.gap_ns) / 1e3 / tokens;
        count += static_cast<double>(sums.count) / tokens;
    }
    std::printf("%-60s%12s%9s%9s%9s%9s\n", title, "blocks/B", "a token", "us each", "us",
                gaps ? "gap us" : "");
    std::printf("%-60s%12s%9.1f%9s%9.1f%9.1f\n", "all", "", count, "", all_us, gap_us);
    for (const auto &[key, sums] : sorted)
        std::printf("%-60.59s%12u%9.1f%9.2f%9.1f%9.1f\n", key.first.c_str(), key.second,
                    static_cast<double>(sums.count) / tokens,
                    static_cast<double>(sums.ns) / 1e3 / static_cast<double>(sums.count),
                    static_cast<double>(sums.ns) / 1e3 / tokens,
                    static_cast<double>(sums.gap_ns) / 1e3 / tokens);
}

// Prints the time between two moments, for each of `passes`.
void print_between(uint64_t begin_ns, uint64_t until_ns, double passes) {
    std::map<std::pair<std::string, uint32_t>, sum_of> rows;
    uint64_t before_ns = begin_ns;
    const auto add = [&](const span_of &span, bool gaps) {
        if (span.begin_ns < begin_ns || span.begin_ns >= until_ns) return;
        sum_of &sums = rows[{span.name, span.blocks}];
        ++sums.count;
        sums.ns += span.end_ns - span.begin_ns;
        if (gaps && span.begin_ns > before_ns) sums.gap_ns += span.begin_ns - before_ns;
        before_ns = std::max(before_ns, span.end_ns);
    };
    for (const span_of &kernel : kernels) add(kernel, true);
    print_rows("kernel", rows, passes, true);
    for (const auto &[title, list] : {std::pair("copy", &copies), std::pair("call", &calls)}) {
        rows.clear();
        for (const span_of &span : *list) add(span, false);
        print_rows(title, rows, passes, false);
    }
}

void print_all() {
    (void)cuptiActivityFlushAll(1);
    const std::lock_guard<std::mutex> held(guard);
    std::ranges::sort(kernels, {}, &span_of::begin_ns);
    std::vector<uint64_t> passes_ns;
    for (const span_of &kernel : kernels)
        if (kernel.name.starts_with("embed_kernel")) passes_ns.push_back(kernel.begin_ns);
    if (passes_ns.size() < 2) return;
    const size_t counted = std::min(tokens_counted, passes_ns.size() - 1);
    const uint64_t begin_ns = passes_ns[passes_ns.size() - 1 - counted],
                   until_ns = passes_ns.back();
    std::printf("\n%zu tokens of %.1f us each\n", counted,
                static_cast<double>(until_ns - begin_ns) / 1e3 / static_cast<double>(counted));
    print_between(begin_ns, until_ns, static_cast<double>(counted));
    std::vector<size_t> order(passes_ns.size() - 1);
    std::iota(order.begin(), order.end(), size_t{0});
    const auto took_ns = [&](size_t pass) { return passes_ns[pass + 1] - passes_ns[pass]; };
    std::ranges::sort(order, std::greater(), took_ns);
    order.resize(std::min(order.size(), longest_shown));
    std::ranges::sort(order);
    for (const size_t pass : order) {
        std::printf("\npass %zu, one of the longest, of %.1f us\n", pass,
                    static_cast<double>(took_ns(pass)) / 1e3);
        print_between(passes_ns[pass], passes_ns[pass + 1], 1);
    }
}

}  // namespace

// Called by the driver.
extern "C" int InitializeInjection() {
    (void)cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
    for (const CUpti_ActivityKind kind : {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                          CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_RUNTIME})
        (void)cuptiActivityEnable(kind);
    std::atexit(print_all);
    return 1;
}
