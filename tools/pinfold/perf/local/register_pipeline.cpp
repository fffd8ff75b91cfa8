// SPDX-License-Identifier: BSD-3-Clause
// The pipeline case: one long buffer goes to a real file: registered first and then written, written while its later
// pieces are being registered, and from a warm cache.
#include "cli/failure.hpp"
#include "cli/progress.hpp"
#include "cli/scratch_file.hpp"
#include "peer/message.hpp"
#include "perf/local/register.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace tool {
namespace {

using registration = pinfold::io_uring_registrar::registration_type;

constexpr std::array subjects{"whole", "pipelined", "warm"};

// Writes pieces of memory, several at a time, and keeps their registrations until each is written. Needs a ring with
// nothing else under way, and with room for `depth` writes.
class file_writer {
 public:
  file_writer(uring& ring, int file, unsigned depth) : ring_(ring), file_(file), slots_(depth) {}
  file_writer(const file_writer&) = delete;
  file_writer& operator=(const file_writer&) = delete;
  // No write may outlive its registration. Ends also when waiting for the ring fails: each failed wait leaves one less
  // to wait for.
  ~file_writer() {
    while (under_way_ > 0) static_cast<void>(complete_one());
  }

  // Begins to write `piece` at `offset`; waits first when `depth` writes are under way. Releases `held` when the piece
  // is written. The error may be that of an earlier write.
  pinfold::result<void> write(std::span<std::byte> piece, std::uint64_t offset, const registration& around,
                              uring_cache::lease held = {}) {
    if (under_way_ == slots_.size()) {
      if (auto done = complete_one(); !done) return done;
    }
    const auto free = std::ranges::find(slots_, std::size_t{0}, &slot::bytes);
    const auto number = static_cast<std::uint64_t>(free - slots_.begin());
    if (auto ready = ring_.prepare({true, file_, piece, offset, around}, number); !ready) return ready;
    *free = {piece.size(), std::move(held)};
    ++under_way_;
    return ring_.submit();
  }

  // Waits until everything is written.
  pinfold::result<void> finish() {
    pinfold::result<void> first;
    while (under_way_ > 0) {
      if (auto done = complete_one(); !done && first) first = done;
    }
    return first;
  }

 private:
  struct slot {
    std::size_t bytes = 0;  // under way; 0 when free
    uring_cache::lease held;
  };

  pinfold::result<void> complete_one() {
    --under_way_;
    const auto seen = ring_.wait();
    if (!seen) return tl::unexpected(seen.error());
    auto done = std::exchange(slots_.at(seen->tag), slot{});
    return checked(seen->answer, done.bytes);
  }

  uring& ring_;
  int file_;
  std::vector<slot> slots_;
  std::size_t under_way_ = 0;
};

// One size's memory and file.
struct stage {
  const register_run& run;
  const paged_memory& memory;
  const scratch_file& file;

  [[nodiscard]] std::size_t size() const noexcept { return memory.bytes().size(); }
};

pinfold::result<void> register_then_write(const stage& on, uring_cache& cache) {
  const auto lease = cache.acquire(on.memory.bytes());
  if (!lease) return tl::unexpected(lease.error());
  file_writer writer(on.run.ring, on.file.descriptor(), on.run.options.queue_depth);
  for (std::size_t at = 0; at < on.size(); at += on.run.options.chunk) {
    const auto piece = on.memory.bytes().subspan(at, std::min(on.run.options.chunk, on.size() - at));
    if (auto begun = writer.write(piece, at, lease->registration()); !begun) return begun;
  }
  return writer.finish();
}

pinfold::result<void> register_while_writing(const stage& on, uring_cache& cache) {
  auto pieces = cache.acquire_chunks(on.memory.bytes().data(), on.size(), pinfold::local_access,
                                     {.chunk_bytes = on.run.options.chunk, .depth = on.run.options.depth});
  if (!pieces) return tl::unexpected(pieces.error());
  file_writer writer(on.run.ring, on.file.descriptor(), on.run.options.queue_depth);
  while (!pieces->done()) {
    auto next = pieces->next();
    if (!next) return tl::unexpected(next.error());
    const auto at = next->where.begin - on.memory.where().begin;
    const auto around = next->held.registration();
    if (auto begun = writer.write(on.memory.bytes().subspan(at, next->where.size()), at, around, std::move(next->held));
        !begun)
      return begun;
  }
  return writer.finish();
}

// Makes the registration, untimed, that the warm subject finds.
pinfold::result<void> warm_up(const stage& on, uring_cache& cache) {
  return cache.acquire(on.memory.bytes()).map([](const auto& lease) { static_cast<void>(lease); });
}

struct write_outcome {
  double seconds;
  bool right;
};

// Each run writes new content, so that only this run can have brought it to the file.
pinfold::result<write_outcome> write_once(const stage& on, std::string_view subject, std::uint64_t seed) {
  auto cache = on.run.ring.cache(on.run.options.cache);
  fill(on.memory.bytes(), seed);
  if (subject == "warm") {
    if (auto ready = warm_up(on, cache); !ready) return tl::unexpected(ready.error());
  }
  pinfold::result<void> written;
  const auto took = time_of(
      [&] { written = subject == "pipelined" ? register_while_writing(on, cache) : register_then_write(on, cache); });
  if (!written) return tl::unexpected(written.error());
  return write_outcome{static_cast<double>(took) * 1e-9, on.file.holds_content(seed, on.size())};
}

struct measured {
  std::vector<double> seconds;
  std::uint64_t errors = 0;
  std::optional<pinfold::error> failed;
};

constexpr pinfold::error wrong_bytes{pinfold::errc::driver_error, pinfold::native_kind::none, 0,
                                     "the file holds wrong bytes"};

void add(measured& results, const char* subject, const pinfold::result<write_outcome>& once) {
  if (!once) {
    results.failed = once.error();
    return;
  }
  results.seconds.push_back(once->seconds);
  if (!once->right && results.errors++ == 0) report_error(subject, wrong_bytes);
}

json row_of(const stage& on, const char* subject, const measured& results) {
  auto row = on.run.row(subject, on.size());
  const auto& options = on.run.options;
  row["pages"] = pages_name(options.pages.value_or(pinfold::page_kind::plain));
  row["direct"] = on.file.direct();
  row["chunk"] = options.chunk;
  row["depth"] = options.depth;
  row["queue_depth"] = options.queue_depth;
  if (results.failed) return add_failure(row, *results.failed), row;
  const auto seconds = median_by(results.seconds, std::identity{});
  row["seconds"] = seconds;
  row["gb_per_s"] = rounded(static_cast<double>(on.size()) / seconds * 1e-9);
  row["bytes_checked"] = on.size() * results.seconds.size();
  row["errors"] = results.errors;
  return row;
}

// Subjects take turns, so that other load on the machine affects all of them. The file has its blocks before.
json rows_for(const stage& on, progress_bar& progress) {
  std::map<std::string_view, measured> results;
  if (auto first = write_once(on, "pipelined", 0); !first) results["pipelined"].failed = first.error();
  progress.step();
  for (unsigned repeat = 0; repeat < on.run.options.repeats; ++repeat) {
    for (std::size_t i = 0; i < subjects.size(); ++i) {
      auto& own = results[subjects.at(i)];
      if (!own.failed) add(own, subjects.at(i), write_once(on, subjects.at(i), seed_for(on.size(), repeat, i)));
      progress.step();
    }
  }
  auto rows = json::array();
  for (const char* subject : subjects) rows.push_back(row_of(on, subject, results[subject]));
  return rows;
}

json run_pipeline(const register_run& run) {
  const auto& options = run.options;
  auto rows = json::array();
  progress_bar progress(options.sizes.size() * (1 + options.repeats * subjects.size()));
  for (const auto size : options.sizes) {
    const scratch_file file(options.directory, size);
    const auto memory =
        need(paged_memory::map(size, options.pages.value_or(pinfold::page_kind::plain)), "no memory for the buffer");
    for (auto& row : rows_for({run, memory, file}, progress)) rows.push_back(std::move(row));
    keep_rows(rows);
    if (run.notes.empty()) run.notes.push_back(std::string("file: ") + direct_text(file.direct()));
  }
  return rows;
}

std::vector<column> pipeline_columns() {
  return with_errors({size("#bytes", "size"), words("subject", "subject"), words("pages", "pages"),
                      size("chunk", "chunk"), count("depth", "depth"), count("queue-depth", "queue_depth"),
                      number("total[s]", "seconds", 1, 3), number("GB/s", "gb_per_s", 1, 2)});
}

}  // namespace

const perf_case<register_run> pipeline_case{"pipeline", run_pipeline, pipeline_columns, "1G"};

}  // namespace tool
