// SPDX-License-Identifier: BSD-3-Clause
// Requests of an io_uring that wait for other requests take pages away long after they were submitted. The event comes
// before their completion (R30).
#include "support/doubles/test_ring.hpp"
#include "support/fixtures/bpf_events.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

namespace pinfold::testing::bpf_waiting_requests_test {
namespace {

/// How a request waits for the end of a read.
struct order {
  const char* name;
  unsigned of_read;
  unsigned of_request;
};
constexpr std::array orders{
    order{"linked", IOSQE_IO_LINK, IOSQE_IO_LINK},
    order{"linked to a request of a worker", IOSQE_IO_LINK | IOSQE_ASYNC, IOSQE_IO_LINK},
    order{"linked, without a completion", IOSQE_IO_LINK, IOSQE_IO_LINK | IOSQE_CQE_SKIP_SUCCESS},
    order{"linked to a request of a worker, without a completion", IOSQE_IO_LINK | IOSQE_ASYNC,
          IOSQE_IO_LINK | IOSQE_CQE_SKIP_SUCCESS},
    order{"drained", 0, IOSQE_IO_DRAIN},
};

/// A request that waits until data is in a pipe. Another waits for its success.
class waiting_request {
 public:
  template <class Prepare>
  waiting_request(const order& how, const Prepare& prepare) {
    if (::pipe2(ends_.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    submit(how.of_read, [&](io_uring_sqe* to) { io_uring_prep_read(to, ends_[0], &received_, 1, 0); });
    submit(how.of_request, prepare);
    submit(how.of_request & IOSQE_IO_DRAIN, [](io_uring_sqe* to) { io_uring_prep_nop(to); });
    ::io_uring_submit(ring_.get());
  }
  waiting_request(const waiting_request&) = delete;
  waiting_request& operator=(const waiting_request&) = delete;
  ~waiting_request() {
    for (const int end : ends_) ::close(end);
  }

  /// Returns whether the request succeeded.
  bool finish() {
    bool succeeded = ::write(ends_[1], "x", 1) == 1;
    for (std::uint64_t done = 0; done != count_;) {
      io_uring_cqe* seen = nullptr;
      if (::io_uring_wait_cqe(ring_.get(), &seen) != 0) return false;
      succeeded = succeeded && seen->res >= 0;
      done = seen->user_data;
      ::io_uring_cqe_seen(ring_.get(), seen);
    }
    return succeeded;
  }

 private:
  template <class Prepare>
  void submit(unsigned flags, const Prepare& prepare) {
    auto* const to = ::io_uring_get_sqe(ring_.get());
    prepare(to);
    to->flags = static_cast<__u8>(flags);
    to->user_data = ++count_;
  }

  std::array<int, 2> ends_{-1, -1};
  char received_ = 0;
  std::uint64_t count_ = 0;
  test_ring ring_;
};

TEST_F(bpf, R30_discards_that_waited_are_reported_before_they_complete) {
  for (const auto& how : orders) {
    const memory at(bytes);
    waiting_request discard(how, [&](auto* to) { io_uring_prep_madvise(to, at.data(), bytes, MADV_DONTNEED); });
    events seen(*monitor);
    EXPECT_TRUE(discard.finish()) << how.name;
    EXPECT_EQ(at.data()[0], std::byte{}) << how.name;
    EXPECT_TRUE(seen.take_cover(at.all())) << how.name;
  }
}

TEST_F(bpf, R30_discards_of_huge_pages_that_waited_are_reported_before_they_complete) {
  constexpr std::size_t huge = std::size_t{2} << 20U;
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB;
  void* const at = ::mmap(nullptr, huge, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (at == MAP_FAILED) GTEST_SKIP() << "no huge pages are reserved (vm.nr_hugepages)";
  const auto begin = reinterpret_cast<std::uintptr_t>(at);
  const watched part({begin, begin + huge});
  for (const auto& how : orders) {
    if ((how.of_request & IOSQE_CQE_SKIP_SUCCESS) != 0) continue;
    static_cast<volatile char*>(at)[0] = 'A';
    waiting_request discard(how, [&](auto* to) { io_uring_prep_madvise(to, at, huge, MADV_DONTNEED); });
    events seen(*monitor);
    EXPECT_TRUE(discard.finish()) << how.name;
    EXPECT_TRUE(seen.take_cover({begin, begin + huge})) << how.name;
  }
  ::munmap(at, huge);
}

TEST_F(bpf, R30_holes_and_truncations_that_waited_are_reported_before_they_complete) {
  constexpr int op_ftruncate = 55;  // Linux 6.9
  for (const auto& how : orders)
    for (const int what : {0, 1, 2}) {
      const memory at(bytes, memory::shared_file);
      const auto path = "/proc/self/fd/" + std::to_string(at.file());
      waiting_request change(how, [&](auto* to) {
        constexpr int hole = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
        if (what == 0) io_uring_prep_fallocate(to, at.file(), hole, 0, bytes);
        if (what == 1) io_uring_prep_openat(to, AT_FDCWD, path.c_str(), O_RDWR | O_CLOEXEC | O_TRUNC, 0);
        if (what == 2) io_uring_prep_rw(op_ftruncate, to, at.file(), nullptr, 0, 0);
      });
      events seen(*monitor);
      const bool done = change.finish();
      EXPECT_TRUE(done || what == 2) << how.name << ' ' << what;
      EXPECT_TRUE(seen.take_cover(at.all()) || !done) << how.name << ' ' << what;
    }
}

// Such pages come and go all the time: an event for each would cost all registrations.
TEST_F(bpf, R31_pages_that_a_worker_reads_into_are_not_reported) {
  const memory other(bytes);
  void* const fresh = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const int zeros = ::open("/dev/zero", O_RDONLY | O_CLOEXEC);
  constexpr order in_a_worker{"read", IOSQE_IO_LINK, IOSQE_IO_LINK | IOSQE_ASYNC};
  bool reported = true;
  for (int round = 0; round < 20 && reported; ++round) {  // what this process reclaims meanwhile is reported
    ASSERT_EQ(::madvise(fresh, bytes, MADV_DONTNEED), 0);
    events seen(*monitor);
    waiting_request read(in_a_worker, [&](auto* to) { io_uring_prep_read(to, zeros, fresh, bytes, 0); });
    EXPECT_TRUE(read.finish());
    reported = seen.take_overlap(other.all());
  }
  EXPECT_FALSE(reported);
  ::munmap(fresh, bytes);
  ::close(zeros);
}

}  // namespace
}  // namespace pinfold::testing::bpf_waiting_requests_test
