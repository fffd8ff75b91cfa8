// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Marks symbols that the shared library exports; all others are hidden.
#pragma once

#if __cplusplus < 202002L
#error "pinfold needs C++20: compile with -std=c++20, or in CMake target_compile_features(... cxx_std_20)"
#endif

/// Before a function or a class: the shared library exports it.
#define PINFOLD_EXPORT __attribute__((visibility("default")))
