// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The subcommands. Each adds itself to the command line, and stores its work in `chosen`.
#pragma once

#include "cli/command_line.hpp"

#include <functional>

namespace tool {

/// Runs the chosen subcommand; returns the exit status, 0 on success. May throw `failure` or `usage_failure`.
using action = std::function<int()>;

void add_info(CLI::App& app, action& chosen);
void add_demo(CLI::App& app, action& chosen);
void add_run(CLI::App& app, action& chosen);
void add_dump(CLI::App& app, action& chosen);
void add_top(CLI::App& app, action& chosen);
void add_watch(CLI::App& app, action& chosen);
void add_metrics(CLI::App& app, action& chosen);
void add_trace(CLI::App& app, action& chosen);
void add_replay(CLI::App& app, action& chosen);
void add_report(CLI::App& app, action& chosen);
void add_monitord(CLI::App& app, action& chosen);
void add_perf_import(CLI::App& perf, action& chosen);
void add_perf_register(CLI::App& perf, action& chosen);
void add_perf_io(CLI::App& perf, action& chosen);
void add_perf_speed(CLI::App& perf, action& chosen);
void add_perf_monitor(CLI::App& perf, action& chosen);
void add_perf_startup(CLI::App& perf, action& chosen);

/// Handles `pinfold --driver-facts <driver>`, which `pinfold info` runs: prints the report of the driver's module, and
/// ends. Returns when the command line is another one.
void answer_driver_facts(int argc, char** argv);

}  // namespace tool
