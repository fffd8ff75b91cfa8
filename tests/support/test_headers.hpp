// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Headers that most tests include and that compile slowly: compiled once for all tests in sanitizer builds.
#pragma once

#include <gtest/gtest.h>
#if __has_include(<nlohmann/json.hpp>)
#include <nlohmann/json.hpp>
#endif
#if __has_include(<rapidcheck.h>)
#include <rapidcheck.h>
#endif

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <tl/expected.hpp>
#include <vector>
