// sanitizers.h - parts of the process that a build with sanitizers takes over. Tests of how
// programs die and of exported symbols leave these to it.
#pragma once

#ifndef __has_feature
#define __has_feature(name) 0
#endif

namespace moorage::test {

#ifdef __SANITIZE_ADDRESS__
constexpr bool address_checks = true;
#else
constexpr bool address_checks = __has_feature(address_sanitizer);
#endif
#ifdef __SANITIZE_THREAD__
constexpr bool thread_checks = true;
#else
constexpr bool thread_checks = __has_feature(thread_sanitizer);
#endif
constexpr bool sanitized = address_checks || thread_checks;

}  // namespace moorage::test
