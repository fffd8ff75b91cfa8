// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What tests have to know about their build.
#pragma once

/// 1 where the sanitizer's runtime replaces exports of the C and C++ libraries, so that a test cannot.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PINFOLD_SANITIZED 1
#elif defined(__has_feature)  // clang
#define PINFOLD_SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define PINFOLD_SANITIZED 0
#endif

namespace pinfold::testing {

/// Whether this process runs under a sanitizer, which needs address space of its own and slows everything down.
#if defined(__has_feature)  // clang
inline constexpr bool thread_sanitized = __has_feature(thread_sanitizer);
inline constexpr bool sanitized = thread_sanitized || __has_feature(address_sanitizer);
#elif defined(__SANITIZE_THREAD__)
inline constexpr bool thread_sanitized = true;
inline constexpr bool sanitized = true;
#elif defined(__SANITIZE_ADDRESS__)
inline constexpr bool thread_sanitized = false;
inline constexpr bool sanitized = true;
#else
inline constexpr bool thread_sanitized = false;
inline constexpr bool sanitized = false;
#endif

}  // namespace pinfold::testing
