// check_report.cpp - what is asked of every report before it is shown.
#include "core/base/json.h"
#include "core/base/mapped_file.h"
#include "core/base/text.h"
#include "core/pipeline/run.h"
#include "core/report/odd_figure.h"

namespace moorage::core {

result<run_report> check_report(const run_config &config, result<run_report> report) {
    // Before any other failure: what came of a file that changed is nobody's fault.
    if (const status same = mapped_files_unchanged(); !same) return same.failure();
    if (!report) return report;
    if (const std::string odd = odd_figure(to_json(*report)); !odd.empty())
        return error{
            format("{}: the report's figure {} is no finite number", config.file.string(), odd)};
    return report;
}

}  // namespace moorage::core
