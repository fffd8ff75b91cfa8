// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Everything but the back ends, of which a program includes those that it uses: `registrars/`, `importers/`.
#pragma once

#include <pinfold/background.hpp>
#include <pinfold/cache.hpp>
#include <pinfold/cache_set.hpp>
#include <pinfold/dma_buf.hpp>
#include <pinfold/dump_on_signal.hpp>
#include <pinfold/handle.hpp>
#include <pinfold/import_cache.hpp>
#include <pinfold/large_lease.hpp>
#include <pinfold/monitors/announce.hpp>
#include <pinfold/monitors/report.hpp>
#include <pinfold/monitors/server.hpp>
#include <pinfold/node_budget.hpp>
#include <pinfold/numa.hpp>
#include <pinfold/observation/counters.hpp>
#include <pinfold/observation/open_metrics.hpp>
#include <pinfold/observation/reader.hpp>
#include <pinfold/pools/registered_pool.hpp>
#include <pinfold/process_dump.hpp>
#include <pinfold/remote_key_lease.hpp>
#include <pinfold/segmented_registration.hpp>
#include <pinfold/settings.hpp>
#include <pinfold/trace_file.hpp>
#include <pinfold/version.hpp>

/// \namespace pinfold
/// The registration cache for C++. Begin with `cache`, for memory of this process, or `import_cache`, for memory of
/// others.
