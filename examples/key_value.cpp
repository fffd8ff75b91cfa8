// SPDX-License-Identifier: BSD-3-Clause
// A store of values from 4 KiB to 1 MiB, some of them requested far more often than others, and an occasional backup of
// all values. Sends the values with io_uring. The cache keeps the registrations of popular values, within 16 MiB or
// PINFOLD_MAX_BYTES. Its requests make a trace: pinfold trace -o FILE -- example_key_value 50000
#include <pinfold/cache.hpp>
#include <pinfold/registrars/io_uring.hpp>
#include <pinfold/settings.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <liburing.h>
#include <memory>
#include <random>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

namespace {

using value = std::vector<char>;
using ring_closer = std::unique_ptr<io_uring, decltype(&io_uring_queue_exit)>;

constexpr std::size_t value_count = 600;
constexpr int default_requests = 2000;
constexpr int requests_per_backup = 5000;
constexpr int requests_per_shift = 500;  // of popularity, from one value to the next

void report(const char* problem, const std::string& reason) {
  std::fprintf(stderr, "%s: %s\n", problem, reason.c_str());
}

// Returns a file without a name, in place of a client's socket; negative on failure.
int open_temporary_file() {
  char path[] = "/tmp/pinfold-example-XXXXXX";
  const int file = mkstemp(path);
  if (file >= 0) unlink(path);
  return file;
}

std::vector<value> make_values(std::mt19937& random) {
  std::vector<value> values;
  for (std::size_t i = 0; i < value_count; ++i) {
    const std::size_t bytes = std::size_t{4096} << random() % 9;
    values.emplace_back(bytes, 'v');
  }
  return values;
}

// Returns the rank of the next requested value. A product of fractions: low ranks are common, high ranks rare.
std::size_t random_rank(std::mt19937& random) {
  double fraction = 1;
  for (int factor = 0; factor < 3; ++factor) fraction *= static_cast<double>(random() % 1000) / 1000;
  return static_cast<std::size_t>(fraction * value_count);
}

// Submits the prepared sqe and waits for its cqe. Returns the request's result: bytes, or a negative errno.
int submit_and_wait(io_uring& ring) {
  if (const int submitted = io_uring_submit(&ring); submitted < 0) return submitted;
  io_uring_cqe* cqe = nullptr;
  if (const int error = io_uring_wait_cqe(&ring, &cqe); error != 0) return error;
  const int result = cqe->res;
  io_uring_cqe_seen(&ring, cqe);
  return result;
}

struct connection {
  // Sends a value. If it is popular, the acquire is a hit: the cache still has its registration.
  bool send(const value& sent) {
    const auto lease = cache.acquire(sent);
    if (!lease) {
      report("cannot register a value", pinfold::describe(lease.error()));
      return false;
    }
    const auto bytes = static_cast<unsigned>(sent.size());
    const int buffer_index = static_cast<int>(lease->registration().index);
    io_uring_sqe* sqe = io_uring_get_sqe(&ring);
    io_uring_prep_write_fixed(sqe, file, sent.data(), bytes, 0, buffer_index);
    // The lease lives until after the completion: until then the kernel uses the registration.
    const int result = submit_and_wait(ring);
    if (result == static_cast<int>(bytes)) return true;
    report("write", "result " + std::to_string(result));
    return false;
  }

  io_uring& ring;
  const int file;
  pinfold::cache<pinfold::io_uring_registrar>& cache;
};

bool serve(connection& to_client, const std::vector<value>& values, std::mt19937& random, int requests) {
  for (int i = 0; i < requests; ++i) {
    const auto shift = static_cast<std::size_t>(i / requests_per_shift);  // other values become popular over time
    if (!to_client.send(values[(random_rank(random) + shift) % values.size()])) return false;
    if (i % requests_per_backup != requests_per_backup - 1) continue;
    if (!std::ranges::all_of(values, [&](const value& each) { return to_client.send(each); })) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const int requests = argc > 1 ? std::atoi(argv[1]) : default_requests;
  io_uring ring{};
  if (const int error = io_uring_queue_init(8, &ring, 0); error != 0) {
    report("skipped: io_uring is unavailable", "error " + std::to_string(error));
    return 77;
  }
  // Declared before the cache, so that the cache unregisters its buffers before the ring is closed.
  const ring_closer closer(&ring, io_uring_queue_exit);
  auto registrar = pinfold::io_uring_registrar::create(&ring);
  if (!registrar) {
    report("skipped: io_uring registers no buffers", pinfold::describe(registrar.error()));
    return 77;
  }
  auto options = pinfold::options_from_environment({.name = "key_value", .max_bytes = 16 << 20});
  if (!options) {
    report("wrong setting", options.error().where);
    return 2;
  }
  options->monitor = pinfold::monitor_choice::manual;  // the values outlive the cache and do not move
  const int file = open_temporary_file();
  if (file < 0) {
    std::perror("cannot create a file");
    return 1;
  }

  std::mt19937 random(1);
  const std::vector<value> values = make_values(random);
  pinfold::cache cache{std::move(*registrar), std::move(*options)};
  connection to_client{.ring = ring, .file = file, .cache = cache};
  if (!serve(to_client, values, random, requests)) return 1;
  std::puts(pinfold::describe(cache.statistics()).c_str());
  return 0;
}
