// unread_config.h - keys of a config.json that ask for arithmetic which nothing here computes, or
// which the architecture has no use for.
#pragma once

#include "core/model/architectures.h"
#include "core/model/config_reader.h"
#include "core/model/model_config.h"

namespace moorage::core {

// Of any architecture.
void refuse_unsupported(config_reader &reader);
// Of `row`; `config` has been read. A value that changes nothing is not refused.
void refuse_unused(config_reader &reader, const architecture &row, const model_config &config);

}  // namespace moorage::core
