// page_files.h - the scripts and styles that every page carries, from tools/comparison/page.
#pragma once

namespace moorage::core {

extern const char *const uplot_script, *const uplot_style;  // uPlot 1.6.32 ...
extern const char *const uplot_licence;                     // ... and its licence
extern const char *const page_script, *const page_style;

}  // namespace moorage::core
