// SPDX-License-Identifier: BSD-3-Clause
// Handles that releases wrote, read by this one. `docs/use/handles.md` says which release writes which version. A file
// in `recorded` never changes; PINFOLD_TEST_RECORD names a folder to write the handles of this release to.
#include "importers/cuda_ipc/handle.hpp"
#include "importers/memfd/handle.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

namespace recorded_handles_test {
namespace {

using pinfold::cuda_ipc_handle;
using pinfold::errc;
using pinfold::memfd_handle;

constexpr std::uint64_t first_version = 1;
constexpr std::uint64_t this_version = 2;

std::vector<char> bytes_of(std::uint64_t version, const std::string& kind) {
  const std::string path = PINFOLD_RECORDED_HANDLES "/version-" + std::to_string(version) + "/" + kind + ".bin";
  std::ifstream source(path, std::ios::binary);
  EXPECT_TRUE(source) << path;
  return {std::istreambuf_iterator<char>(source), {}};
}

template <class Handle>
Handle recorded(std::uint64_t version, const std::string& kind) {
  const auto bytes = bytes_of(version, kind);
  Handle handle;
  EXPECT_EQ(bytes.size(), sizeof handle);
  std::memcpy(static_cast<void*>(&handle), bytes.data(), std::min(bytes.size(), sizeof handle));
  return handle;
}

/// Sizes and addresses are multiples of every page size.
memfd_handle same_memfd(std::uint64_t version) {
  memfd_handle made{.magic = pinfold::memfd::handle_magic - this_version + version,
                    .exporter = 0x0123'4567'89ab'cdef,
                    .serial = 3,
                    .base = 0x7f00'0000'0000,
                    .size = 0x20'0000,
                    .inode = 1234,
                    .start_time = 5678,
                    .pid = 4321,
                    .descriptor = 17,
                    .access = 1,
                    .host = static_cast<std::uint16_t>(version == first_version ? 0 : 0xbeef),
                    .check = 0};
  made.check = pinfold::memfd::checksum_of(made);
  return made;
}

cuda_ipc_handle same_cuda(std::uint64_t version, pinfold::cuda_memory_kind kind) {
  cuda_ipc_handle made{.magic = pinfold::cuda_ipc::handle_magic - this_version + version,
                       .exporter = 0x0123'4567'89ab'cdef,
                       .serial = 3,
                       .base = 0x7f00'0000'0000,
                       .size = 0x20'0000,
                       .buffer_id = 99,
                       .start_time = 5678,
                       .pid = 4321,
                       .kind = static_cast<std::uint32_t>(kind),
                       .device = {},
                       .memory = {},
                       .pool = kind == pinfold::cuda_memory_kind::pool ? 2U : 0U,
                       .host = version == first_version ? 0 : 0xbeefU,
                       .check = 0};
  std::iota(made.device.begin(), made.device.end(), std::uint8_t{1});
  if (kind != pinfold::cuda_memory_kind::segments) std::iota(made.memory.begin(), made.memory.end(), std::uint8_t{64});
  made.check = pinfold::cuda_ipc::checksum_of(made);
  return made;
}

const std::vector<std::pair<std::string, pinfold::cuda_memory_kind>> cuda_kinds{
    {"cuda_ipc_allocation", pinfold::cuda_memory_kind::allocation},
    {"cuda_ipc_segments", pinfold::cuda_memory_kind::segments},
    {"cuda_ipc_pool", pinfold::cuda_memory_kind::pool},
};

template <class Handle>
void record(const std::string& name, const Handle& handle) {
  if (const char* folder = std::getenv("PINFOLD_TEST_RECORD")) {
    std::ofstream to(std::string(folder) + "/" + name + ".bin", std::ios::binary);
    to.write(reinterpret_cast<const char*>(&handle), sizeof handle);
  }
}

TEST(recorded_handles, memfd_handles_of_every_version_are_read) {
  for (auto version = first_version; version <= this_version; ++version) {
    const auto handle = recorded<memfd_handle>(version, "memfd");
    EXPECT_EQ(handle, same_memfd(version)) << "version " << version;
    EXPECT_EQ(pinfold::memfd::checked(handle), same_memfd(version).allocation()) << "version " << version;
  }
}

TEST(recorded_handles, cuda_handles_of_every_version_are_read) {
  for (auto version = first_version; version <= this_version; ++version) {
    for (const auto& [name, kind] : cuda_kinds) {
      const auto handle = recorded<cuda_ipc_handle>(version, name);
      EXPECT_EQ(handle, same_cuda(version, kind)) << name << ", version " << version;
      EXPECT_EQ(pinfold::cuda_ipc::checked(handle), same_cuda(version, kind).allocation()) << name;
    }
  }
}

TEST(recorded_handles, this_release_writes_the_bytes_of_its_version) {
  const auto memfd = pinfold::memfd::completed(same_memfd(this_version));
  record("memfd", memfd);
  EXPECT_EQ(memfd, recorded<memfd_handle>(this_version, "memfd"));
  for (const auto& [name, kind] : cuda_kinds) {
    const auto handle = pinfold::cuda_ipc::completed(same_cuda(this_version, kind));
    record(name, handle);
    EXPECT_EQ(handle, recorded<cuda_ipc_handle>(this_version, name)) << name;
  }
}

TEST(recorded_handles, a_host_in_a_handle_of_version_1_is_damage) {
  auto memfd = same_memfd(first_version);
  memfd.host = 1;
  memfd.check = pinfold::memfd::checksum_of(memfd);
  EXPECT_EQ(pinfold::memfd::checked(memfd).error(), errc::invalid_handle);
  auto cuda = same_cuda(first_version, pinfold::cuda_memory_kind::allocation);
  cuda.host = 1;
  cuda.check = pinfold::cuda_ipc::checksum_of(cuda);
  EXPECT_EQ(pinfold::cuda_ipc::checked(cuda).error(), errc::invalid_handle);
}

TEST(recorded_handles, a_newer_version_and_another_kind_are_told_apart) {
  const auto newer = same_memfd(this_version + 1);
  EXPECT_STREQ(pinfold::memfd::checked(newer).error().message, "the memfd handle has the layout of a newer release");
  auto other = same_memfd(this_version);
  other.magic = pinfold::cuda_ipc::handle_magic;
  EXPECT_STREQ(pinfold::memfd::checked(other).error().message, "not a memfd handle");
  const auto newer_cuda = same_cuda(this_version + 1, pinfold::cuda_memory_kind::pool);
  EXPECT_STREQ(pinfold::cuda_ipc::checked(newer_cuda).error().message,
               "the GPU memory handle has the layout of a newer release");
  auto zero = same_memfd(0);
  EXPECT_EQ(pinfold::memfd::checked(zero).error(), errc::invalid_handle);
}

}  // namespace
}  // namespace recorded_handles_test
