// unread_config.h - refuses keys of a config.json that need arithmetic which does not exist here,
// or that the architecture does not use.
#pragma once

#include "core/model/architectures.h"
#include "core/model/config_reader.h"
#include "core/model/model_config.h"

namespace moorage::core {

// For any architecture.
void refuse_unsupported(config_reader &reader);
// For `arch`, after `config` has been read. A value that changes nothing is accepted.
void refuse_unused(config_reader &reader, const architecture &arch, const model_config &config);

}  // namespace moorage::core
