// SPDX-License-Identifier: BSD-3-Clause
// What processes share over the emulated driver besides IPC memory handles. Only children call cuInit.
#include "support/fixtures/emulated_cuda.hpp"
#include "support/processes/child_process.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

namespace pinfold::testing::emulated_cuda_sharing_test {
namespace {

using namespace pinfold::cuda;

constexpr auto posix = allocation_handle_type::posix_file_descriptor;

/// Carries descriptors from one process to another.
class descriptor_line {
 public:
  descriptor_line() { EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends_), 0); }
  descriptor_line(const descriptor_line&) = delete;
  descriptor_line& operator=(const descriptor_line&) = delete;
  ~descriptor_line() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }

  void send(int number) noexcept {
    message one;
    *CMSG_FIRSTHDR(&one.header) = {CMSG_LEN(sizeof number), SOL_SOCKET, SCM_RIGHTS};
    std::memcpy(CMSG_DATA(CMSG_FIRSTHDR(&one.header)), &number, sizeof number);
    ::sendmsg(ends_[0], &one.header, 0);
  }
  int receive() noexcept {
    message one;
    int number = -1;
    if (::recvmsg(ends_[1], &one.header, MSG_CMSG_CLOEXEC) == 1) {
      std::memcpy(&number, CMSG_DATA(CMSG_FIRSTHDR(&one.header)), sizeof number);
    }
    return number;
  }

 private:
  struct message {
    char byte = 0;
    iovec data{&byte, 1};
    alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))]{};
    msghdr header{nullptr, 0, &data, 1, room, sizeof room, 0};
  };
  int ends_[2]{-1, -1};
};

// Returns what a child runs: `body`, with a driver. The child's status tells whether an expectation failed.
template <class F>
auto with_driver(F body) {
  return [body](line& parent) noexcept {
    emulated_driver own;
    own.start();
    body(own, parent);
    return ::testing::Test::HasFailure() ? 1 : 0;
  };
}

/// Returns the shareable handle in the form that the driver wants.
void* handed(int number) { return reinterpret_cast<void*>(std::intptr_t{number}); }

int byte_at(driver_table& cu, device_pointer at) {
  unsigned char value = 0;
  return cu.memcpy_d_to_h(&value, at, 1) == status::success ? value : -1;
}

device_pointer map_segment(driver_table& cu, generic_allocation memory, device_pointer at, std::size_t bytes) {
  constexpr access_description writable{{location_type::on_device, 0}, access_rights::read_write};
  const status reserved = at == 0 ? cu.mem_address_reserve(&at, bytes, 0, 0, 0) : status::success;
  EXPECT_EQ(reserved, status::success);
  EXPECT_EQ(cu.mem_map(at, bytes, 0, memory, 0), status::success);
  EXPECT_EQ(cu.mem_set_access(at, bytes, &writable, 1), status::success);
  return at;
}

TEST(emulated_cuda_sharing, descriptor_exports_memory_and_outlives_the_exporting_process) {
  descriptor_line descriptors;
  child_process maker(with_driver([&](emulated_driver& own, line& parent) {
    const allocation_properties wanted{allocation_type::pinned, posix, {location_type::on_device, 0}, nullptr, {}};
    generic_allocation memory = 0;
    int number = -1;
    EXPECT_EQ(own.cu.mem_create(&memory, 2 * mib, &wanted, 0), status::success);
    const device_pointer at = map_segment(own.cu, memory, 0, 2 * mib);
    EXPECT_EQ(own.cu.memset_d8(at, 5, 2 * mib), status::success);
    EXPECT_EQ(own.cu.mem_export_to_shareable_handle(&number, memory, posix, 0), status::success);
    descriptors.send(number);
    parent.receive<int>();
    EXPECT_EQ(byte_at(own.cu, at), 6) << "what the other one wrote";
  }));
  child_process user(with_driver([&](emulated_driver& own, line& parent) {
    const int number = descriptors.receive();
    generic_allocation memory = 0;
    EXPECT_EQ(own.cu.mem_import_from_shareable_handle(&memory, handed(number), posix), status::success);
    ::close(number);
    const device_pointer at = map_segment(own.cu, memory, 0, 2 * mib);
    EXPECT_EQ(byte_at(own.cu, at), 5);
    EXPECT_EQ(own.cu.memset_d8(at, 6, 1), status::success);
    parent.send(1);
    parent.receive<int>();
    EXPECT_EQ(byte_at(own.cu, at + 1), 5) << "its maker is gone";
  }));
  EXPECT_EQ(user.talk().receive<int>(), 1);
  maker.talk().send(1);
  EXPECT_EQ(maker.reap(), 0);
  user.talk().send(1);
  EXPECT_EQ(user.reap(), 0);
}

struct pooled {
  pool_pointer_export pointer;
  device_pointer at;
};

TEST(emulated_cuda_sharing, a_pool_and_its_pointers_are_imported) {
  descriptor_line descriptors;
  child_process maker(with_driver([&](emulated_driver& own, line& parent) {
    const pool_properties wanted{allocation_type::pinned, posix, {location_type::on_device, 0}, nullptr, 0, 0, {}};
    memory_pool pool = nullptr;
    int number = -1;
    EXPECT_EQ(own.cu.mem_pool_create(&pool, &wanted), status::success);
    pooled made{};
    EXPECT_EQ(own.cu.mem_alloc_from_pool_async(&made.at, 64 * kib, pool, nullptr), status::success);
    EXPECT_EQ(own.cu.mem_pool_export_pointer(&made.pointer, made.at), status::invalid_value) << "the pool comes first";
    EXPECT_EQ(own.cu.mem_pool_export_to_shareable_handle(&number, pool, posix, 0), status::success);
    descriptors.send(number);
    EXPECT_EQ(own.cu.memset_d8(made.at, 7, 64 * kib), status::success);
    EXPECT_EQ(own.cu.mem_pool_export_pointer(&made.pointer, made.at), status::success);
    parent.send(made);
    parent.receive<int>();
    EXPECT_EQ(own.cu.mem_free_async(made.at, nullptr), status::success);
    EXPECT_EQ(own.cu.ctx_synchronize(), status::success);
    parent.send(made);
    parent.receive<int>();
  }));
  child_process user(with_driver([&](emulated_driver& own, line& parent) {
    const int number = descriptors.receive();
    memory_pool pool = nullptr;
    EXPECT_EQ(own.cu.mem_pool_import_from_shareable_handle(&pool, handed(number), posix, 0), status::success);
    auto got = parent.receive<pooled>();
    device_pointer at = 0;
    device_pointer again = 0;
    EXPECT_EQ(own.cu.mem_pool_import_pointer(&at, pool, &got->pointer), status::success);
    EXPECT_EQ(byte_at(own.cu, at + 64 * kib - 1), 7);
    EXPECT_EQ(own.cu.mem_pool_import_pointer(&again, pool, &got->pointer), status::success);
    EXPECT_EQ(again, at);
    EXPECT_EQ(own.cu.mem_free(at), status::success);
    EXPECT_EQ(own.cu.mem_free(at), status::invalid_value) << "imports are not counted";
    EXPECT_EQ(own.cu.mem_pool_import_pointer(&at, pool, &got->pointer), status::success);
    EXPECT_EQ(own.cu.mem_free_async(at, nullptr), status::success);
    parent.send(1);
    got = parent.receive<pooled>();
    EXPECT_EQ(own.cu.mem_pool_import_pointer(&at, pool, &got->pointer), status::invalid_value) << "freed there";
    parent.send(1);
  }));
  for (int step = 0; step < 2; ++step) {
    const auto made = maker.talk().receive<pooled>();
    ASSERT_TRUE(made);
    user.talk().send(*made);
    ASSERT_TRUE(user.talk().receive<int>());
    maker.talk().send(1);
  }
  EXPECT_EQ(maker.reap(), 0);
  EXPECT_EQ(user.reap(), 0);
}

struct offer {
  ipc_event_handle done;
  ipc_memory_handle memory;
};

/// Writes by a copy that takes so long, and records the event behind it.
void write_slowly(emulated_driver& own, line& parent, std::chrono::microseconds delay) {
  offer made{};
  cuda::event done = nullptr;
  device_pointer at = 0;
  EXPECT_EQ(own.cu.event_create(&done, event_interprocess | event_disable_timing), status::success);
  EXPECT_EQ(own.cu.mem_alloc(&at, 64 * kib), status::success);
  EXPECT_EQ(own.cu.ipc_get_event_handle(&made.done, done), status::success);
  EXPECT_EQ(own.cu.ipc_get_mem_handle(&made.memory, at), status::success);
  own.control.stream_delay(static_cast<unsigned>(delay.count()));
  const std::vector<char> bytes(64 * kib, 1);
  const auto from = reinterpret_cast<device_pointer>(bytes.data());
  EXPECT_EQ(own.cu.memcpy_async(at, from, bytes.size(), nullptr), status::success);
  EXPECT_EQ(own.cu.event_record(done, nullptr), status::success);
  parent.send(made);
  parent.receive<int>();
  EXPECT_EQ(own.cu.event_destroy(done), status::success);
  parent.send(1);
  parent.receive<int>();
}

/// What a reader says: whether the write was over before it had begun to wait.
enum class reading : int { in_time, late };

/// Lets one process read what another writes, whose copy takes that long. Returns whether the reader was in time.
bool is_ordered(std::chrono::microseconds delay) {
  child_process writer(with_driver([=](emulated_driver& own, line& parent) { write_slowly(own, parent, delay); }));
  child_process reader(with_driver([](emulated_driver& own, line& parent) {
    const auto got = parent.receive<offer>();
    cuda::event done = nullptr;
    EXPECT_EQ(own.cu.ipc_open_event_handle(&done, got->done), status::success);
    const status at_first = own.cu.event_query(done);
    EXPECT_TRUE(at_first == status::not_ready || at_first == status::success);
    device_pointer at = 0;
    EXPECT_EQ(own.cu.ipc_open_mem_handle(&at, got->memory, ipc_lazy_enable_peer_access), status::success);
    std::vector<char> copied(64 * kib);
    EXPECT_EQ(own.cu.stream_wait_event(nullptr, done, 0), status::success);
    const auto to = reinterpret_cast<device_pointer>(copied.data());
    EXPECT_EQ(own.cu.memcpy_async(to, at, copied.size(), nullptr), status::success);
    const bool has_waited = copied.front() != 0;  // the call does not wait
    EXPECT_EQ(own.cu.stream_synchronize(nullptr), status::success);
    EXPECT_EQ(copied.back(), 1);
    EXPECT_EQ(own.cu.event_query(done), status::success);
    EXPECT_EQ(own.cu.event_record(done, nullptr), status::success);
    EXPECT_EQ(own.cu.event_destroy(done), status::success);
    parent.send(at_first == status::not_ready && !has_waited ? reading::in_time : reading::late);
    parent.receive<int>();
    EXPECT_EQ(own.cu.ipc_open_event_handle(&done, got->done), status::invalid_handle) << "destroyed";
  }));
  const auto made = writer.talk().receive<offer>();
  EXPECT_TRUE(made);
  reader.talk().send(made.value_or(offer{}));
  const auto read = reader.talk().receive<reading>();
  EXPECT_TRUE(read);
  writer.talk().send(1);
  EXPECT_TRUE(writer.talk().receive<int>());
  reader.talk().send(1);
  EXPECT_EQ(reader.reap(), 0);
  writer.talk().send(1);
  EXPECT_EQ(writer.reap(), 0);
  return read == reading::in_time;
}

TEST(emulated_cuda_sharing, an_event_orders_two_processes) {
  using namespace std::chrono_literals;
  bool in_time = false;
  for (const std::chrono::microseconds delay : {200ms, 2000ms, 20000ms})  // the reader may be late on a busy machine
    in_time = in_time || HasFailure() || is_ordered(delay);
  EXPECT_TRUE(in_time) << "an event was recorded before the work in front of it was done, or the copy waited for it";
}

TEST(emulated_cuda_sharing, wait_for_work_of_a_dead_process_ends) {
  child_process writer(with_driver([](emulated_driver& own, line& parent) {
    own.control.stream_delay(60'000'000);
    offer made{};
    cuda::event done = nullptr;
    EXPECT_EQ(own.cu.event_create(&done, event_interprocess | event_disable_timing), status::success);
    EXPECT_EQ(own.cu.ipc_get_event_handle(&made.done, done), status::success);
    EXPECT_EQ(own.cu.event_record(done, nullptr), status::success);
    parent.send(made);
    parent.receive<int>();
  }));
  child_process reader(with_driver([&](emulated_driver& own, line& parent) {
    const auto got = parent.receive<offer>();
    cuda::event done = nullptr;
    EXPECT_EQ(own.cu.ipc_open_event_handle(&done, got->done), status::success);
    EXPECT_EQ(own.cu.event_query(done), status::not_ready);
    parent.send(1);
    EXPECT_EQ(own.cu.event_synchronize(done), status::success);
  }));
  const auto made = writer.talk().receive<offer>();
  ASSERT_TRUE(made);
  reader.talk().send(*made);
  ASSERT_TRUE(reader.talk().receive<int>());
  writer.kill();
  EXPECT_EQ(reader.reap(), 0);
}

}  // namespace
}  // namespace pinfold::testing::emulated_cuda_sharing_test
