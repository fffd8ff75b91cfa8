// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What most tests include and takes long to compile: compiled once for all of them in sanitizer builds.
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
