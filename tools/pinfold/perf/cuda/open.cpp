// SPDX-License-Identifier: BSD-3-Clause
// The open case: the driver's time to open and to close a peer's GPU memory, by its kind and size, and by the amount
// that is already open. No cache.
#include "cli/progress.hpp"
#include "perf/cuda/cuda.hpp"

#include <algorithm>
#include <utility>

namespace tool {
namespace {

using pinfold::cuda_memory_kind;
using imported = pinfold::imported<pinfold::cuda_ipc_importer::registration_type>;

struct point {
  cuda_memory_kind kind;
  std::size_t size;
  unsigned held;
};

// Returns the sizes with nothing else open, and then the first size beside more and more open memory.
std::vector<point> points_of(const import_options& options) {
  const auto& wanted = options.cuda.memory;
  std::vector<point> points;
  for (const auto kind : {cuda_memory_kind::allocation, cuda_memory_kind::segments}) {
    if (!wanted.empty() && (wanted == "allocations") != (kind == cuda_memory_kind::allocation)) continue;
    for (const auto size : options.sizes) points.push_back({kind, size, 0});
    for (const auto held : options.cuda.held) {
      if (held != 0) points.push_back({kind, options.sizes.front(), held});
    }
  }
  return points;
}

struct opens_and_closes {
  nanoseconds opens;
  nanoseconds closes;
  std::uint64_t errors = 0;
};

void open_and_close(pinfold::cuda_ipc_importer& importer, const gpu_message& message, opens_and_closes& done) {
  pinfold::result<imported> opened = pinfold::fail(pinfold::errc::driver_error, "");
  const auto opening = time_of([&] { opened = importer.open(message.peer, message.handle); });
  if (!opened) {
    if (done.errors++ == 0) report_error("open", opened.error());
    return;
  }
  pinfold::result<void> closed;
  const auto closing = time_of([&] { closed = importer.close(opened->registration); });
  if (!closed) {
    if (done.errors++ == 0) report_error("close", closed.error());
    return;
  }
  done.opens.push_back(opening);
  done.closes.push_back(closing);
}

// The first `held` messages stay open, and are closed with the importer; the others are opened and closed in turn.
opens_and_closes measure_opens(const cuda_run& run, const std::vector<gpu_message>& messages, unsigned held) {
  auto importer = run.importer();
  opens_and_closes done;
  for (unsigned i = 0; i < held; ++i)
    need(importer.open(messages[i].peer, messages[i].handle), "cannot keep other memory open");
  stint rest(run.options);
  for (std::size_t i = 0; rest.goes_on(); ++i)
    open_and_close(importer, messages[held + i % (messages.size() - held)], done);
  return done;
}

json open_row(const cuda_run& run, const point& at, opens_and_closes done) {
  auto row = run.row("driver", at.size, at.kind);
  row["held"] = at.held;
  add_latency(row, summarise(std::move(done.opens)));
  const auto closes = summarise(std::move(done.closes));
  row["close_ns_per_op"] = rounded(closes.average);
  row["close_p50_ns"] = closes.p50;
  row["close_p99_ns"] = closes.p99;
  row["errors"] = done.errors;
  return row;
}

json median_row(const cuda_run& run, const point& at, const std::vector<gpu_message>& messages) {
  std::vector<json> rows;
  for (unsigned repeat = 0; repeat < run.options.repeats; ++repeat)
    rows.push_back(open_row(run, at, measure_opens(run, messages, at.held)));
  return median_by(std::move(rows), [](const json& row) { return row.at("ns_per_op").get<double>(); });
}

// Returns how many messages take turns: fewer for large sizes.
std::size_t turns(const cuda_run& run, std::size_t size) {
  const auto room = need(run.device.free_bytes(), "GPU memory is unavailable") / 2 / size;
  return std::clamp<std::size_t>(room, 1, run.options.buffers);
}

json run_cuda_open(const cuda_run& run) {
  auto rows = json::array();
  const auto points = points_of(run.options);
  progress_bar progress(points.size());
  for (const auto& at : points) {
    const auto messages = run.provide(at.kind, at.held + turns(run, at.size), at.size);
    if (messages) {
      rows.push_back(median_row(run, at, *messages));
      run.peer.take_back(*messages);
    } else {
      rows.push_back(run.row("driver", at.size, at.kind));
      rows.back()["skipped"] = pinfold::describe(messages.error());
    }
    keep_rows(rows);
    progress.step();
  }
  return rows;
}

std::vector<column> cuda_open_columns() {
  return with_errors({words("memory", "memory"), size("#bytes", "size"), count("held", "held"),
                      count("#opens", "iterations"), microseconds("open p50[us]", "p50_ns", 2),
                      microseconds("p99[us]", "p99_ns", 2), microseconds("close p50[us]", "close_p50_ns", 2),
                      microseconds("p99[us]", "close_p99_ns", 2)});
}

}  // namespace

const perf_case<cuda_run> cuda_open_case{"open", run_cuda_open, cuda_open_columns, "4K,64K,1M,16M,64M"};

}  // namespace tool
