// SPDX-License-Identifier: BSD-3-Clause
// Functions that open and close files, which are cancellation points, on a thread that was cancelled before.
#include "support/fixtures/local_fixture.hpp"
#include "support/fixtures/statistics_pages.hpp"

#include <pinfold/import_cache.hpp>
#include <pinfold/importers/memfd.hpp>
#include <pinfold/observation/reader.hpp>
#include <pinfold/pinfold.h>
#include <pinfold/pools/registered_pool.hpp>
#include <pinfold/release.h>
#include <pinfold/release/listener.hpp>
#include <pinfold/segments.h>
#include <pinfold/trace_file.hpp>

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <pthread.h>
#include <unistd.h>
#include <utility>

namespace pinfold::testing::cancelled_files_test {
namespace {

constexpr std::size_t page = 65536;  // whole pages of every machine

/// Returns whether the call returned, and its thread was cancelled after it.
[[nodiscard]] bool finishes(std::function<void()> call) {
  struct run {
    std::function<void()> call;
    bool finished = false;
  } one{std::move(call)};
  const auto body = [](void* self) -> void* {
    auto& in = *static_cast<run*>(self);
    ::pthread_cancel(::pthread_self());
    in.call();
    in.finished = true;
    ::pthread_testcancel();
    return nullptr;
  };
  pthread_t thread{};
  EXPECT_EQ(::pthread_create(&thread, nullptr, body, &one), 0);
  void* answer = nullptr;
  EXPECT_EQ(::pthread_join(thread, &answer), 0);
  return one.finished && answer == PTHREAD_CANCELED;
}

TEST(cancelled_files, exporters_and_importers_finish_the_call) {
  std::optional<memfd_exporter> exporter;
  std::optional<memfd_buffer> buffer;
  std::optional<memfd_segments> segments;
  std::optional<release_listener> listener;
  EXPECT_TRUE(finishes([&] { exporter = memfd_exporter::create({.serve = true, .release = true}).value(); }));
  EXPECT_TRUE(finishes([&] { buffer = exporter->allocate(page).value(); }));
  EXPECT_TRUE(finishes([&] { EXPECT_FALSE(exporter->allocate(0)); }));
  EXPECT_TRUE(finishes([&] { segments = exporter->reserve(4 * page).value(); }));
  EXPECT_TRUE(finishes([&] { EXPECT_TRUE(segments->add(0, page)); }));
  EXPECT_TRUE(finishes([&] { EXPECT_TRUE(segments->grow(page)); }));
  EXPECT_TRUE(finishes([&] { EXPECT_TRUE(segments->remove(0, page)); }));
  for (const auto via : {memfd_via::automatic, memfd_via::pidfd, memfd_via::scm}) {
    import_cache<memfd_importer> cache(memfd_importer({.via = via}));
    EXPECT_TRUE(finishes([&] { static_cast<void>(cache.can_open(buffer->handle())); }));
    EXPECT_TRUE(finishes([&] { static_cast<void>(probe_memfd(via)); }));
  }
  EXPECT_TRUE(finishes([&] { listener = release_listener::create().value(); }));
  EXPECT_TRUE(finishes([&] { listener.reset(); }));
  EXPECT_TRUE(finishes([&] { segments.reset(); }));
  EXPECT_TRUE(finishes([&] { buffer.reset(); }));
  EXPECT_TRUE(finishes([&] { exporter.reset(); }));
}

TEST(cancelled_files, functions_of_the_C_interface_finish_the_call) {
  pinfold_memfd_exporter* exporter = nullptr;
  pinfold_memfd_exporter* plain = nullptr;
  pinfold_memfd_buffer* buffer = nullptr;
  pinfold_memfd_buffer* retired = nullptr;
  pinfold_memfd_segments* segments = nullptr;
  pinfold_cache* cache = nullptr;
  memfd_handle handle;
  pinfold_exporter_options options{};
  options.size = sizeof options;
  options.flags = PINFOLD_MEMFD_SERVE;
  options.release = 1;
  pinfold_retire_report report{};
  report.size = sizeof report;
  const auto succeeds = [](const std::function<int()>& call) {
    EXPECT_TRUE(finishes([&] { EXPECT_EQ(call(), PINFOLD_OK); }));
  };
  succeeds([&] { return pinfold_memfd_exporter_create_with(&options, &exporter); });
  succeeds([&] { return pinfold_memfd_exporter_create(PINFOLD_MEMFD_SERVE, &plain); });
  succeeds([&] { return pinfold_memfd_allocate(exporter, page, &buffer); });
  succeeds([&] { return pinfold_memfd_allocate(exporter, page, &retired); });
  succeeds([&] { return pinfold_memfd_reserve(exporter, 4 * page, &segments); });
  succeeds([&] { return pinfold_memfd_segment_add(segments, 0, page, &handle, sizeof handle); });
  succeeds([&] { return pinfold_create_memfd(0, nullptr, &cache); });
  EXPECT_TRUE(finishes([&] { static_cast<void>(pinfold_can_open(cache, &handle, sizeof handle)); }));
  succeeds([&] { return pinfold_destroy(cache); });
  succeeds([&] { return pinfold_create_memfd_releasing(0, nullptr, &cache); });
  EXPECT_TRUE(finishes([&] { static_cast<void>(pinfold_can_open(cache, &handle, sizeof handle)); }));
  succeeds([&] { return pinfold_destroy(cache); });
  succeeds([&] { return pinfold_memfd_segment_remove(segments, 0, page); });
  succeeds([&] { return pinfold_memfd_segment_add(segments, 0, page, &handle, sizeof handle); });
  succeeds([&] { return pinfold_memfd_retire(exporter, &retired, 600'000, &report); });
  EXPECT_TRUE(finishes([&] { pinfold_memfd_segments_free(segments); }));
  EXPECT_TRUE(finishes([&] { pinfold_memfd_free(buffer); }));
  EXPECT_TRUE(finishes([&] { pinfold_memfd_exporter_destroy(exporter); }));
  EXPECT_TRUE(finishes([&] { pinfold_memfd_exporter_destroy(plain); }));
}

TEST(cancelled_files, traces_and_statistics_finish_the_call) {
  const std::string path = page_folder::path() + "/trace";
  std::optional<trace_file> trace;
  std::optional<observation::event_reader> events;
  EXPECT_TRUE(finishes([&] { trace = trace_file::open(path).value(); }));
  EXPECT_TRUE(finishes([&] { static_cast<void>(trace->sink("one")); }));
  EXPECT_TRUE(finishes([&] { EXPECT_TRUE(trace->flush()); }));
  EXPECT_TRUE(finishes([&] { trace.reset(); }));
  cache_options options;
  options.publish_statistics = true;
  const local_fixture f(options);
  const auto page_path = observation::find_page(page_folder::path(), ::getpid());
  ASSERT_TRUE(page_path);
  EXPECT_TRUE(finishes([&] { EXPECT_TRUE(observation::read_page(*page_path)); }));
  EXPECT_TRUE(finishes([&] { events = observation::event_reader::open(*page_path, true).value(); }));
  EXPECT_TRUE(finishes([&] { EXPECT_TRUE(events->read()); }));
  EXPECT_TRUE(finishes([&] { EXPECT_TRUE(events->want_stacks(std::chrono::seconds{1})); }));
}

TEST(cancelled_files, pools_finish_the_call) {
  local_fixture f;
  registered_pool<fake_registrar> pool(f.cache, {.slab_bytes = std::size_t{4} << 20U});
  result<void*> data = nullptr;
  EXPECT_TRUE(finishes([&] { data = pool.try_allocate(100); }));
  ASSERT_TRUE(data);
  EXPECT_TRUE(finishes([&] { pool.deallocate(*data, 100); }));
  EXPECT_TRUE(finishes([&] { pool.trim(); }));
}

}  // namespace
}  // namespace pinfold::testing::cancelled_files_test
