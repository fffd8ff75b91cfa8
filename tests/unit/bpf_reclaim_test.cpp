// SPDX-License-Identifier: BSD-3-Clause
// A system call of this process that finds too little memory unmaps pages of this process itself, as the kernel's own
// threads do. A page of a file then leaves the file without any further event (R30).
#include "support/fixtures/bpf_events.hpp"
#include "support/processes/child_process.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <linux/magic.h>
#include <string>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <vector>

namespace pinfold::testing::bpf_reclaim_test {
namespace {

/// A group of processes of which any process can reclaim the memory, in cgroups of either version.
class memory_group {
 public:
  memory_group() {
    for (const std::string root : {"/sys/fs/cgroup/memory", "/sys/fs/cgroup"}) {
      folder_ = root + "/pinfold-test-" + std::to_string(::getpid());
      std::error_code failed;
      if (!std::filesystem::create_directory(folder_, failed)) continue;
      for (const auto* const name : {"/memory.reclaim", "/memory.force_empty"})
        if (std::filesystem::exists(folder_ + name)) reclaim_ = folder_ + name;
      if (!reclaim_.empty()) return;
      ::rmdir(folder_.c_str());
    }
  }
  memory_group(const memory_group&) = delete;
  memory_group& operator=(const memory_group&) = delete;
  ~memory_group() { ::rmdir(folder_.c_str()); }

  [[nodiscard]] bool join() const {
    std::ofstream members(folder_ + "/cgroup.procs");
    members << ::getpid() << std::flush;
    return !reclaim_.empty() && members.good();
  }
  void reclaim() const { std::ofstream(reclaim_) << "64M" << std::flush; }

 private:
  std::string folder_;
  std::string reclaim_;
};

/// Pages of a file on a disk, mapped and in the page cache, from where the kernel takes them without swapping.
class clean_pages {
 public:
  explicit clean_pages(std::size_t bytes) : bytes_(bytes) {
    std::string path = ::testing::TempDir() + "pinfold-reclaim-XXXXXX";
    file_ = ::mkstemp(path.data());
    ::unlink(path.c_str());
    struct statfs where{};
    const std::string text(bytes, 'A');
    if (::fstatfs(file_, &where) != 0 || where.f_type == TMPFS_MAGIC) return;
    if (::write(file_, text.data(), bytes) != static_cast<ssize_t>(bytes) || ::fsync(file_) != 0) return;
    void* const at = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, file_, 0);
    if (at != MAP_FAILED) data_ = static_cast<std::byte*>(at);
  }
  clean_pages(const clean_pages&) = delete;
  clean_pages& operator=(const clean_pages&) = delete;
  ~clean_pages() {
    if (data_ != nullptr) ::munmap(data_, bytes_);
    ::close(file_);
  }

  [[nodiscard]] bool exist() const { return data_ != nullptr; }
  [[nodiscard]] bool all_in_memory() const {
    std::vector<unsigned char> here((bytes_ + 4095) / 4096);
    ::mincore(data_, bytes_, here.data());
    return std::all_of(here.begin(), here.end(), [](unsigned char one) { return (one & 1U) != 0; });
  }

 private:
  std::size_t bytes_;
  int file_ = -1;
  std::byte* data_ = nullptr;
};

TEST_F(bpf, R30_pages_that_this_process_reclaims_itself_are_reported) {
  enum { reported = 0, not_reported = 1, unknown = 2 };
  const memory_group group;
  child_process child([&](line&) {
    auto own = load();
    if (!own || !group.join()) return unknown;
    const clean_pages pages(bytes);
    if (!pages.exist()) return unknown;
    const memory other(bytes);
    events seen(**own);
    for (int tries = 0; tries < 10 && pages.all_in_memory(); ++tries) group.reclaim();
    if (pages.all_in_memory()) return unknown;
    return seen.take_cover(other.all()) ? reported : not_reported;
  });
  const int outcome = child.reap();
  if (outcome == unknown) GTEST_SKIP() << "this process cannot make the kernel reclaim its memory";
  EXPECT_EQ(outcome, reported);
}

}  // namespace
}  // namespace pinfold::testing::bpf_reclaim_test
