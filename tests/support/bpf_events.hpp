// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What tests of the bpf monitor do to memory, and which ranges they then find on the event log.
#pragma once

#include "monitors/bpf/bpf.hpp"
#include "monitors/bpf/call.hpp"
#include "support/memory_attacks.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace pinfold::testing {

/// Counts a range as registered while it lives.
class watched {
 public:
  explicit watched(const range& what) : what_(what) {
    EXPECT_TRUE(invalidation::registered_filter::here().prepare(what_));
    invalidation::registered_filter::here().add(what_);
  }
  watched(const watched&) = delete;
  watched& operator=(const watched&) = delete;
  ~watched() { invalidation::registered_filter::here().remove(what_); }

 private:
  range what_;
};

/// Memory that counts as registered. While it lives, other mappings get its addresses only by force (MAP_FIXED).
class memory {
 public:
  enum kind { anonymous, shared_file };

  explicit memory(std::size_t bytes, kind what = anonymous)
      : bytes_(bytes),
        file_(what == shared_file ? ::memfd_create("target", MFD_CLOEXEC) : -1),
        data_(map(nullptr, 0)),
        counts_(all()) {
    touch(bytes_, true);
  }
  memory(const memory&) = delete;
  memory& operator=(const memory&) = delete;
  ~memory() {
    unmap();
    if (file_ >= 0) ::close(file_);
  }

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::uintptr_t begin() const { return reinterpret_cast<std::uintptr_t>(data_); }
  [[nodiscard]] range all() const { return {begin(), begin() + bytes_}; }
  [[nodiscard]] int file() const { return file_; }
  [[nodiscard]] target as_target() const { return {data_, bytes_}; }
  void touch(std::size_t bytes, bool really) const {
    if (really) std::memset(data_, 'A', bytes);
  }
  void unmap() const { ::munmap(data_, bytes_); }

 private:
  std::byte* map(void* where, int flags) const {
    if (file_ >= 0 && ::ftruncate(file_, static_cast<off_t>(bytes_)) != 0) throw std::runtime_error("no memory file");
    flags |= file_ >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    return static_cast<std::byte*>(::mmap(where, bytes_, PROT_READ | PROT_WRITE, flags, file_, 0));
  }

  std::size_t bytes_;
  int file_;
  std::byte* data_;
  watched counts_;
};

/// The events on the event log since its construction, or since the last call.
class events {
 public:
  explicit events(monitors::bpf_monitor& monitor) : monitor_(monitor) {
    monitor_.drain();
    cursor_ = invalidation::event_log::here().generation().load();
  }

  std::vector<range> take() {
    monitor_.drain();
    std::vector<range> all;
    for (;;) {
      range gone;
      const auto seen = invalidation::event_log::here().read(cursor_, gone);
      if (seen == invalidation::read_status::nothing) return all;
      all.push_back(seen == invalidation::read_status::one ? gone : range{0, UINTPTR_MAX});
    }
  }
  bool take_cover(const range& wanted) {
    bool found = false;
    for (const auto& one : take()) found = found || one.contains(wanted);
    return found;
  }
  bool take_overlap(const range& wanted) {
    bool found = false;
    for (const auto& one : take()) found = found || one.overlaps(wanted);
    return found;
  }

 private:
  monitors::bpf_monitor& monitor_;
  std::uint64_t cursor_;
};

/// Returns the descriptors of this process that are the kernel's BPF objects.
inline std::vector<int> open_bpf_descriptors() {
  std::vector<int> found;
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto what = std::filesystem::read_symlink(each.path(), gone).string();
    // Skips the test's own output files whose name contains bpf.
    if (what.starts_with("anon_inode:") && what.find("bpf") != std::string::npos)
      found.push_back(std::stoi(each.path().filename()));
  }
  return found;
}

/// Returns the ids of the programs that this process has links to.
inline std::vector<std::uint32_t> programs_of_this_process() {
  std::vector<std::uint32_t> found;
  for (const int number : open_bpf_descriptors()) {
    std::ifstream info("/proc/self/fdinfo/" + std::to_string(number));
    for (std::string word; info >> word;)
      if (word == "prog_id:") {
        std::uint32_t id = 0;
        info >> id;
        found.push_back(id);
      }
  }
  return found;
}

inline bool program_exists(std::uint32_t id) {
  bpf_attr what = monitors::bpf_nothing();
  what.prog_id = id;
  const monitors::bpf_descriptor found(static_cast<int>(monitors::bpf_call(BPF_PROG_GET_FD_BY_ID, what)));
  return static_cast<bool>(found);
}

/// Returns whether this process may look up programs. Without the right, programs of other processes seem not to exist.
inline bool may_find_programs() { return ::geteuid() == 0; }

/// Waits for the kernel to free the program, which it does with a delay. Returns whether it did.
inline bool gone_soon(std::uint32_t id) {
  for (int i = 0; i < 100 && program_exists(id); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  return !program_exists(id);
}

/// A fixture with a monitor that has its own kernel programs.
class bpf : public ::testing::Test {
 protected:
  static result<std::unique_ptr<monitors::bpf_monitor>> load() {
    return monitors::make_bpf(invalidation::event_log::here(), invalidation::registered_filter::here(),
                              {.socket = "", .load = true});
  }

  void SetUp() override {
    auto made = load();
    if (!made) GTEST_SKIP() << describe(made.error());
    monitor = std::move(*made);
  }

  std::unique_ptr<monitors::bpf_monitor> monitor;
};

}  // namespace pinfold::testing
