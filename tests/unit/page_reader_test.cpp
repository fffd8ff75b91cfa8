// SPDX-License-Identifier: BSD-3-Clause
// Readers of statistics pages whose bytes are anything.
#include "support/fixtures/local_fixture.hpp"
#include "support/fixtures/statistics_pages.hpp"
#include "support/host/settings.hpp"

#include <pinfold/observation/reader.hpp>

#include <cstring>
#include <fstream>
#include <random>
#include <sys/stat.h>
#include <unistd.h>

namespace pinfold::testing::page_reader_test {
namespace {

using namespace observation;

struct page_reader : ::testing::Test {
  std::string folder = page_folder::path();
  std::string path = folder + "/forged";

  // The bytes of a real page.
  static std::string real() {
    static const std::string bytes = [] {
      cache_options options;
      options.name = "real";
      options.publish_statistics = true;
      options.max_count = 10;
      local_fixture f(options);
      for (std::uintptr_t i = 1; i <= 30; ++i) f.touch(i * 0x10000, i * 0x10000 + 0x1000);
      f.device->fail_opens(
          [](const range&, access_flags) { return error{errc::driver_error, native_kind::posix, 5, "broken"}; });
      EXPECT_FALSE(f.acquire(0x9990000, 0x9991000));
      EXPECT_TRUE(published_now("real"));
      std::ifstream in(page_of().path, std::ios::binary);
      return std::string(std::istreambuf_iterator<char>(in), {});
    }();
    return bytes;
  }
  void write(const std::string& bytes) const { std::ofstream(path, std::ios::binary) << bytes; }

  template <class T>
  static void put(std::string& into, std::size_t at, T value) {
    std::memcpy(into.data() + at, &value, sizeof value);
  }

  // Reads all that there is to read, and uses it.
  std::size_t read_all() const {
    std::size_t used = 0;
    if (const auto seen = read_page(path)) {
      for (const auto& cache : seen->caches) {
        for (const char one : cache.name + cache.kind + cache.monitors) EXPECT_TRUE(one >= ' ' && one <= '~');
        for (const auto& failure : cache.errors) {
          used += std::strlen(failure.message.data());
          used += std::strlen(name_of(static_cast<errc>(failure.code)));
        }
        used += cache.slowest_opens.size() + cache.slowest_closes.size();
      }
      for (const char one : seen->command + seen->library) EXPECT_TRUE(one >= ' ' && one <= '~');
    }
    for (const bool oldest : {false, true}) {
      auto events = event_reader::open(path, oldest);
      if (!events) continue;
      for (int i = 0; i < 2; ++i)
        if (const auto seen = events->read())
          for (const auto& one : *seen) used += std::strlen(name_of(static_cast<event_id>(one.record.kind)));
    }
    return used;
  }
};

TEST_F(page_reader, reads_a_copy_as_the_page) {
  write(real());
  const auto seen = read_page(path);
  ASSERT_TRUE(seen) << describe(seen.error());
  ASSERT_EQ(seen->caches.size(), 1U);
  EXPECT_EQ(seen->caches[0].name, "real");
  EXPECT_EQ(seen->caches[0].errors.size(), 1U);
  EXPECT_GT(read_all(), 0U);
}

TEST_F(page_reader, refuses_what_is_no_page) {
  const auto refusal = [&](const std::string& bytes) {
    write(bytes);
    const auto seen = read_page(path);
    return seen ? errc{} : seen.error().code;
  };
  EXPECT_EQ(refusal(""), errc::invalid_handle);
  EXPECT_EQ(refusal(std::string(4096, '\0')), errc::invalid_handle);
  EXPECT_EQ(refusal(real().substr(0, 5000)), errc::invalid_handle);
  auto later = real();
  put(later, offsetof(page_header, version), page_version + 1);
  EXPECT_EQ(refusal(later), errc::unsupported);
  std::filesystem::remove(path);
  EXPECT_EQ(read_page(path).error().code, errc::invalid_handle);
  EXPECT_EQ(read_page(folder).error().code, errc::invalid_handle);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(read_page(path).error().code, errc::invalid_handle);  // and does not wait for a writer
  std::filesystem::remove(path);
}

TEST_F(page_reader, refuses_a_page_of_another_user_than_expected) {
  write(real());
  const auto own = static_cast<std::uint32_t>(::geteuid());
  EXPECT_TRUE(read_page(path, own));
  EXPECT_TRUE(event_reader::open(path, false, own));
  const auto unread = read_page(path, own + 1);
  ASSERT_FALSE(unread);
  EXPECT_EQ(unread.error().code, errc::not_permitted);
  const auto unopened = event_reader::open(path, false, own + 1);
  ASSERT_FALSE(unopened);
  EXPECT_EQ(unopened.error().code, errc::not_permitted);
}

// A page of a later release that appended: larger slots, more of each.
TEST_F(page_reader, reads_larger_slots_of_a_later_release) {
  const auto from = real();
  constexpr std::size_t slot = 16384;
  std::string larger = from.substr(0, caches_from) + std::string(most_caches * slot, '\x55');
  for (std::size_t i = 0; i < most_caches; ++i)
    larger.replace(caches_from + i * slot, cache_slot_bytes, from, caches_from + i * cache_slot_bytes,
                   cache_slot_bytes);
  put(larger, offsetof(page_header, cache_bytes), static_cast<std::uint32_t>(slot));
  put(larger, offsetof(page_header, page_bytes), static_cast<std::uint64_t>(larger.size()));
  write(larger);
  const auto seen = read_page(path);
  ASSERT_TRUE(seen) << describe(seen.error());
  ASSERT_EQ(seen->caches.size(), 1U);
  EXPECT_EQ(seen->caches[0].name, "real");
}

TEST_F(page_reader, refuses_more_slots_than_any_release_needs) {
  for (const std::uint32_t slots : {256U, 257U}) {
    auto forged = real();
    forged.resize(caches_from + slots * cache_slot_bytes);
    put(forged, offsetof(page_header, caches), slots);
    put(forged, offsetof(page_header, page_bytes), static_cast<std::uint64_t>(forged.size()));
    write(forged);
    EXPECT_EQ(read_page(path).has_value(), slots == 256) << slots;
  }
}

TEST_F(page_reader, survives_every_changed_word_of_the_header) {
  for (std::size_t at = 0; at < sizeof(page_header); at += 4)
    for (const std::uint32_t value : {0U, 1U, 0x7fffffffU, 0x80000000U, 0xffffffffU}) {
      auto forged = real();
      put(forged, at, value);
      write(forged);
      read_all();
    }
}

TEST_F(page_reader, survives_random_bytes) {
  std::mt19937_64 random(test_seed());
  const auto pages = model_steps() / 100;
  for (std::uint64_t i = 0; i < pages; ++i) {
    auto forged = real();
    const auto changes = std::uint64_t{1} << (random() % 16);
    for (std::uint64_t n = 0; n < changes; ++n) forged[random() % forged.size()] = static_cast<char>(random());
    if (random() % 4 == 0) forged.resize(random() % forged.size());
    write(forged);
    read_all();
  }
}

}  // namespace
}  // namespace pinfold::testing::page_reader_test
