// SPDX-License-Identifier: BSD-3-Clause
// The emulated driver's virtual memory management, and host memory that is registered with it.
#include "support/fixtures/emulated_cuda_test.hpp"

#include <sys/mman.h>
#include <unistd.h>

namespace emulated_cuda_virtual_test {
namespace {

using namespace pinfold::cuda;
using pinfold::testing::kib;
using pinfold::testing::mib;

constexpr allocation_properties shareable{.type = allocation_type::pinned,
                                          .requested_handle_types = allocation_handle_type::posix_file_descriptor,
                                          .where = {location_type::on_device, 0},
                                          .win32_handle_metadata = nullptr,
                                          .flags = {}};
constexpr access_description readable{{location_type::on_device, 0}, access_rights::read};
constexpr access_description writable{{location_type::on_device, 0}, access_rights::read_write};

class emulated_cuda_virtual : public pinfold::testing::emulated_cuda_fixture {
 protected:
  generic_allocation create(std::size_t bytes, const allocation_properties& properties = shareable) {
    generic_allocation made = 0;
    EXPECT_EQ(cu.mem_create(&made, bytes, &properties, 0), status::success);
    return made;
  }
  device_pointer reserve(std::size_t bytes) {
    device_pointer made = 0;
    EXPECT_EQ(cu.mem_address_reserve(&made, bytes, 0, 0, 0), status::success);
    return made;
  }
  std::size_t free_memory() {
    std::size_t free = 0;
    std::size_t total = 0;
    EXPECT_EQ(cu.mem_get_info(&free, &total), status::success);
    return free;
  }
};

TEST_F(emulated_cuda_virtual, sizes_are_multiples_of_the_granularity) {
  std::size_t bytes = 0;
  ASSERT_EQ(cu.mem_get_allocation_granularity(&bytes, &shareable, allocation_granularity::minimum), status::success);
  EXPECT_EQ(bytes, 2 * mib);
  generic_allocation made = 0;
  EXPECT_EQ(cu.mem_create(&made, mib, &shareable, 0), status::invalid_value);
  device_pointer at = 0;
  EXPECT_EQ(cu.mem_address_reserve(&at, mib, 0, 0, 0), status::invalid_value);
  EXPECT_EQ(cu.mem_address_reserve(&at, 2 * mib, 3 * mib, 0, 0), status::invalid_value);
}

TEST_F(emulated_cuda_virtual, several_segments_lie_in_one_reservation) {
  const auto before = free_memory();
  const device_pointer at = reserve(6 * mib);
  const generic_allocation first = create(2 * mib);
  const generic_allocation second = create(4 * mib);
  EXPECT_EQ(free_memory(), before - 6 * mib);
  EXPECT_EQ(attribute<int>(pointer_attribute::mapped, at), 0);
  EXPECT_EQ(attribute<std::size_t>(pointer_attribute::range_size, at), 6 * mib);
  ASSERT_EQ(cu.mem_map(at, 2 * mib, 0, first, 0), status::success);
  EXPECT_EQ(cu.mem_map(at, 4 * mib, 0, second, 0), status::invalid_value) << "occupied";
  EXPECT_EQ(cu.mem_map(at + 4 * mib, 4 * mib, 0, second, 0), status::invalid_value) << "past the reservation";
  ASSERT_EQ(cu.mem_map(at + 2 * mib, 4 * mib, 0, second, 0), status::success);
  EXPECT_EQ(cu.memset_d8(at, 1, 1), status::invalid_value) << "no access yet";
  ASSERT_EQ(cu.mem_set_access(at, 6 * mib, &writable, 1), status::success);
  EXPECT_EQ(cu.memset_d8(at, 1, 6 * mib), status::success) << "over both";

  using enum pointer_attribute;
  const device_pointer inside = at + 5 * mib;
  EXPECT_EQ(attribute<device_pointer>(range_start_addr, inside), at);
  EXPECT_EQ(attribute<std::size_t>(range_size, inside), 6 * mib);
  EXPECT_EQ(attribute<device_pointer>(mapping_base_addr, inside), at + 2 * mib);
  EXPECT_EQ(attribute<std::size_t>(mapping_size, inside), 4 * mib);
  EXPECT_NE(attribute<unsigned long long>(memory_block_id, at), attribute<unsigned long long>(memory_block_id, inside));
  EXPECT_EQ(attribute<std::uint64_t>(allowed_handle_types, inside), 1U);
  EXPECT_EQ(attribute<int>(is_legacy_cuda_ipc_capable, inside), 0);
  device_pointer base = 0;
  std::size_t bytes = 0;
  ASSERT_EQ(cu.mem_get_address_range(&base, &bytes, inside), status::success);
  EXPECT_EQ(base, at + 2 * mib);
  EXPECT_EQ(bytes, 4 * mib);

  EXPECT_EQ(cu.mem_unmap(at, 4 * mib), status::invalid_value) << "part of the second";
  EXPECT_EQ(cu.mem_address_free(at, 6 * mib), status::invalid_value) << "still mapped";
  ASSERT_EQ(cu.mem_unmap(at, 6 * mib), status::success);
  EXPECT_EQ(cu.memset_d8(at, 1, 1), status::invalid_value);
  EXPECT_EQ(cu.mem_address_free(at, 2 * mib), status::invalid_value);
  ASSERT_EQ(cu.mem_address_free(at, 6 * mib), status::success);
  EXPECT_EQ(cu.mem_release(first), status::success);
  EXPECT_EQ(cu.mem_release(second), status::success);
  EXPECT_EQ(cu.mem_release(second), status::invalid_value);
  EXPECT_EQ(free_memory(), before);
}

TEST_F(emulated_cuda_virtual, mapping_outlives_its_released_handle_and_can_return_it) {
  const auto before = free_memory();
  const device_pointer at = reserve(2 * mib);
  const generic_allocation made = create(2 * mib);
  ASSERT_EQ(cu.mem_map(at, 2 * mib, 0, made, 0), status::success);
  ASSERT_EQ(cu.mem_release(made), status::success);
  EXPECT_EQ(free_memory(), before - 2 * mib);
  generic_allocation again = 0;
  ASSERT_EQ(cu.mem_retain_allocation_handle(&again, reinterpret_cast<void*>(at + mib)), status::success);
  EXPECT_EQ(again, made);
  allocation_properties told{};
  ASSERT_EQ(cu.mem_get_allocation_properties_from_handle(&told, again), status::success);
  EXPECT_EQ(told.requested_handle_types, allocation_handle_type::posix_file_descriptor);
  ASSERT_EQ(cu.mem_unmap(at, 2 * mib), status::success);
  EXPECT_EQ(cu.mem_retain_allocation_handle(&again, reinterpret_cast<void*>(at)), status::invalid_value);
  ASSERT_EQ(cu.mem_release(made), status::success);
  EXPECT_EQ(free_memory(), before);
  EXPECT_EQ(cu.mem_address_free(at, 2 * mib), status::success);
}

TEST_F(emulated_cuda_virtual, exported_descriptor_keeps_the_memory_alive) {
  const device_pointer at = reserve(2 * mib);
  const generic_allocation made = create(2 * mib);
  ASSERT_EQ(cu.mem_map(at, 2 * mib, 0, made, 0), status::success);
  ASSERT_EQ(cu.mem_set_access(at, 2 * mib, &writable, 1), status::success);
  ASSERT_EQ(cu.memset_d8(at, 9, 2 * mib), status::success);
  int number = -1;
  ASSERT_EQ(cu.mem_export_to_shareable_handle(&number, made, allocation_handle_type::posix_file_descriptor, 0),
            status::success);
  ASSERT_EQ(cu.mem_unmap(at, 2 * mib), status::success);
  ASSERT_EQ(cu.mem_release(made), status::success);

  generic_allocation imported = 0;
  void* const handed = reinterpret_cast<void*>(std::intptr_t{number});
  ASSERT_EQ(cu.mem_import_from_shareable_handle(&imported, handed, allocation_handle_type::posix_file_descriptor),
            status::success);
  ::close(number);
  ASSERT_EQ(cu.mem_map(at, 2 * mib, 0, imported, 0), status::success);
  ASSERT_EQ(cu.mem_set_access(at, 2 * mib, &readable, 1), status::success);
  unsigned char value = 0;
  EXPECT_EQ(cu.memcpy_d_to_h(&value, at + 2 * mib - 1, 1), status::success);
  EXPECT_EQ(value, 9);
  EXPECT_EQ(cu.memset_d8(at, 1, 1), status::invalid_value) << "read only";
  ASSERT_EQ(cu.mem_unmap(at, 2 * mib), status::success);
  EXPECT_EQ(cu.mem_release(imported), status::success);
  EXPECT_EQ(cu.mem_address_free(at, 2 * mib), status::success);
}

TEST_F(emulated_cuda_virtual, allocation_without_a_handle_type_is_not_exported) {
  auto plain = shareable;
  plain.requested_handle_types = allocation_handle_type::none;
  const generic_allocation made = create(2 * mib, plain);
  int number = -1;
  EXPECT_EQ(cu.mem_export_to_shareable_handle(&number, made, allocation_handle_type::posix_file_descriptor, 0),
            status::invalid_value);
  EXPECT_EQ(cu.mem_release(made), status::success);
  generic_allocation imported = 0;
  const int other = ::memfd_create("other", MFD_CLOEXEC);
  EXPECT_EQ(cu.mem_import_from_shareable_handle(&imported, reinterpret_cast<void*>(std::intptr_t{other}),
                                                allocation_handle_type::posix_file_descriptor),
            status::invalid_value);
  ::close(other);
}

TEST_F(emulated_cuda_virtual, host_memory_is_registered_once) {
  const std::size_t bytes = 64 * kib;
  char* const memory = static_cast<char*>(
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  EXPECT_EQ(cu.mem_host_unregister(memory), status::host_memory_not_registered);
  EXPECT_EQ(cu.mem_host_register(memory, bytes, 16), status::invalid_value) << "no such flag";
  ASSERT_EQ(cu.mem_host_register(memory, bytes, host_register_device_map), status::success);
  EXPECT_EQ(cu.mem_host_register(memory + 4096, 4096, 0), status::host_memory_already_registered);
  EXPECT_EQ(pinfold::testing::emulated().counters().host_registrations, 1U);
  EXPECT_EQ(attribute<int>(pointer_attribute::memory_type, reinterpret_cast<device_pointer>(memory)), 1);
  device_pointer at = 0;
  ASSERT_EQ(cu.mem_host_get_device_pointer(&at, memory + 1, 0), status::success);
  EXPECT_EQ(at, reinterpret_cast<device_pointer>(memory + 1));
  EXPECT_EQ(cu.mem_host_unregister(memory + 4096), status::host_memory_not_registered) << "not where it begins";
  EXPECT_EQ(cu.mem_host_unregister(memory), status::success);
  EXPECT_EQ(cu.mem_host_unregister(memory), status::host_memory_not_registered);
  ::mprotect(memory, bytes, PROT_READ);
  EXPECT_EQ(cu.mem_host_register(memory, bytes, 0), status::invalid_value) << "the device would write";
  EXPECT_EQ(cu.mem_host_register(memory, bytes, host_register_read_only), status::success);
  EXPECT_EQ(cu.mem_host_unregister(memory), status::success);
  ::mprotect(memory, bytes, PROT_READ | PROT_WRITE);
  ::munmap(memory + bytes / 2, bytes / 2);
  EXPECT_EQ(cu.mem_host_register(memory, bytes, 0), status::invalid_value) << "half of it is no memory";
  ::munmap(memory, bytes / 2);
}

}  // namespace
}  // namespace emulated_cuda_virtual_test
