// SPDX-License-Identifier: BSD-3-Clause
// The batch case: many buffers by few calls of the driver, on several threads, and views of the same few blocks.
#include "cli/failure.hpp"
#include "cli/progress.hpp"
#include "perf/local/register.hpp"
#include "perf/slow_registrar.hpp"

#include <algorithm>
#include <functional>
#include <random>
#include <utility>

namespace tool {
namespace {

using ranges = std::vector<pinfold::range>;

constexpr std::size_t most_slow = 256;  // their calls sleep, so that many are enough
constexpr std::size_t blocks = 51;
constexpr std::size_t views = 1265;
constexpr std::size_t block_steps = (views + blocks - 1) / blocks + 2;  // the last view's end, and a gap

// The ranges to register, and how.
struct plan {
  const char* subject;
  const ranges& wanted;
  unsigned workers;          // of the batch; 0: an acquire for each range
  std::size_t expected = 0;  // registrations; 0: any number
};

struct outcome {
  double ms = 0;
  std::uint64_t calls = 0;
  std::uint64_t registrations = 0;
};

// Returns ranges with gaps, so that no two can share a registration.
ranges apart(const paged_memory& memory, std::size_t count, std::size_t size) {
  ranges made;
  for (std::size_t i = 0; i < count; ++i) {
    const auto begin = memory.where().begin + 2 * i * size;
    made.push_back({begin, begin + size});
  }
  return made;
}

// Returns ranges like tensors in a few blocks: neighbours overlap, and they are in random order.
ranges views_of_blocks(const paged_memory& memory, std::size_t size) {
  ranges made;
  for (std::size_t i = 0; i < views; ++i) {
    const auto begin = memory.where().begin + (i % blocks * block_steps + i / blocks) * size;
    made.push_back({begin, begin + 2 * size});
  }
  std::ranges::shuffle(made, std::mt19937_64(views));
  return made;
}

template <class Cache>
pinfold::result<std::vector<typename Cache::lease>> one_by_one(Cache& cache, const plan& what, progress_bar& progress) {
  std::vector<typename Cache::lease> leases;
  leases.reserve(what.wanted.size());
  for (const auto& one : what.wanted) {
    auto lease = cache.acquire(reinterpret_cast<void*>(one.begin), one.size());
    if (!lease) return tl::unexpected(lease.error());
    leases.push_back(std::move(*lease));
    progress.step();
  }
  return leases;
}

template <class Cache>
auto at_once(Cache& cache, const plan& what, progress_bar& progress) {
  const auto told = [&progress, before = std::size_t{0}](std::size_t done, std::size_t) mutable {
    progress.step(done - std::exchange(before, done));
  };
  return cache.acquire_batch(what.wanted, pinfold::local_access, {.workers = what.workers, .progress = told});
}

// Counts the leases, and then releases them.
template <class Cache, class Acquire>
pinfold::result<outcome> count_and_time(Cache& cache, Acquire acquire) {
  const auto before = cache.backend().calls();
  decltype(acquire()) held;
  const auto took = time_of([&] { held = acquire(); });
  if (!held) return tl::unexpected(held.error());
  return outcome{static_cast<double>(took) * 1e-6, cache.backend().calls() - before, cache.statistics().opens};
}

template <class Cache>
pinfold::result<outcome> carry_out(Cache cache, const plan& what, progress_bar& progress) {
  if (what.workers == 0) return count_and_time(cache, [&] { return one_by_one(cache, what, progress); });
  return count_and_time(cache, [&] { return at_once(cache, what, progress); });
}

template <class MakeCache>
json row_of(const register_run& run, const plan& what, const MakeCache& make_cache, progress_bar& progress) {
  const auto& first = what.wanted.front();
  auto row = run.row(what.subject, first.size());
  row["registrar"] = std::remove_cvref_t<decltype(make_cache().backend())>::name;
  row["method"] = what.workers == 0 ? "one-by-one" : "batch";
  row["workers"] = std::max(what.workers, 1U);
  row["buffers"] = what.wanted.size();
  std::vector<outcome> runs;
  for (unsigned repeat = 0; repeat < run.options.repeats; ++repeat) {
    const auto once = carry_out(make_cache(), what, progress);
    if (!once) return add_failure(row, once.error()), row;
    runs.push_back(*once);
  }
  const auto median = median_by(std::move(runs), &outcome::ms);
  row["registrations"] = median.registrations;
  row["calls"] = median.calls;
  row["ms"] = rounded(median.ms);
  row["errors"] = what.expected == 0 || median.registrations == what.expected ? 0 : 1;
  return row;
}

json rows_for(const register_run& run, std::size_t size) {
  const auto& options = run.options;
  const auto kind = options.pages.value_or(pinfold::page_kind::plain);
  const auto bytes = std::max(2 * options.count, blocks * block_steps) * size;
  const auto memory = need(paged_memory::map(bytes, kind), "no memory for the buffers");
  const auto many = apart(memory, options.count, size);
  const auto few = apart(memory, std::min(options.count, most_slow), size);
  const auto shared = views_of_blocks(memory, size);
  const auto in_ring = [&] { return run.ring.cache(options.cache); };
  const auto sleeping = [&] {
    auto cache_options = options.cache;
    cache_options.monitor = pinfold::monitor_choice::manual;
    return pinfold::cache(slow_registrar(std::chrono::milliseconds(options.delay_ms)), cache_options);
  };
  progress_bar progress(options.repeats * (3 * many.size() + 2 * few.size() + shared.size() + blocks));
  auto rows = json::array();
  const auto add = [&](const plan& what, const auto& make_cache) {
    rows.push_back(row_of(run, what, make_cache, progress));
    keep_row(rows.back());
  };
  add({"buffers", many, 0, many.size()}, in_ring);
  add({"buffers", many, 1, many.size()}, in_ring);
  add({"buffers", many, options.workers, many.size()}, in_ring);
  add({"slow calls", few, 1, few.size()}, sleeping);
  add({"slow calls", few, options.workers, few.size()}, sleeping);
  add({"views", shared, 0}, in_ring);
  add({"views", shared, 1, blocks}, in_ring);
  add_gains(rows, "ms", figure_of::time, [](const json& base, const json& row) { return same("subject", base, row); });
  return rows;
}

json run_batch(const register_run& run) {
  auto rows = json::array();
  for (const auto size : run.options.sizes) {
    for (auto& row : rows_for(run, size)) rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<column> batch_columns() {
  return with_errors({words("subject", "subject"), words("registrar", "registrar"), words("method", "method"),
                      count("workers", "workers"), count("#buffers", "buffers"), size("#bytes", "size"),
                      count("#registrations", "registrations"), count("#calls", "calls"),
                      number("total[ms]", "ms", 1, 2), number("gain", "gain", 1, 1)});
}

}  // namespace

const perf_case<register_run> batch_case{"batch", run_batch, batch_columns, "4K"};

}  // namespace tool
