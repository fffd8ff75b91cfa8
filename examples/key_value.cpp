// SPDX-License-Identifier: BSD-3-Clause
// A store of values from 4 KiB to 1 MiB, some of them requested far more often than others, and an occasional backup of
// all values. Sends the values with io_uring. The cache keeps the registrations of popular values, within 16 MiB or
// PINFOLD_MAX_BYTES. Its requests make a trace: pinfold trace -o FILE -- example_key_value 50000
#include <pinfold/cache.hpp>
#include <pinfold/registrars/io_uring.hpp>
#include <pinfold/settings.hpp>

#include <cstdio>
#include <cstdlib>
#include <liburing.h>
#include <random>
#include <unistd.h>
#include <vector>

int main(int argc, char** argv) {
  io_uring ring{};
  if (io_uring_queue_init(8, &ring, 0) != 0) return std::puts("no io_uring here"), 77;
  auto registrar = pinfold::io_uring_registrar::create(&ring);
  if (!registrar) return std::puts(describe(registrar.error()).c_str()), 77;
  auto options = pinfold::options_from_environment({.name = "key_value", .max_bytes = 16 << 20});
  if (!options) return std::puts(options.error().where.c_str()), 2;
  options->monitor = pinfold::monitor_choice::explicit_;  // the values outlive the cache and do not move

  std::mt19937 chance(1);
  std::vector<std::vector<char>> values;
  for (int i = 0; i < 600; ++i) values.emplace_back(std::size_t{4096} << chance() % 9, 'v');
  char path[] = "/tmp/pinfold-example-XXXXXX";
  const int file = mkstemp(path);
  unlink(path);
  pinfold::cache cache{std::move(*registrar), *options};

  const auto send = [&](const std::vector<char>& value) {
    auto held = cache.acquire(value);
    if (!held) return std::puts(describe(held.error()).c_str()), false;
    io_uring_prep_write_fixed(io_uring_get_sqe(&ring), file, value.data(), static_cast<unsigned>(value.size()), 0,
                              static_cast<int>(held->handle().index));
    io_uring_submit(&ring);
    io_uring_cqe* done = nullptr;
    if (io_uring_wait_cqe(&ring, &done) != 0) return false;
    const auto bytes = done->res;
    io_uring_cqe_seen(&ring, done);
    return bytes == static_cast<int>(value.size());
  };

  const int requests = argc > 1 ? std::atoi(argv[1]) : 2000;
  for (int i = 0; i < requests; ++i) {
    double rank = 1;  // a product of fractions: low numbers are common, high numbers rare
    for (int factor = 0; factor < 3; ++factor) rank *= static_cast<double>(chance() % 1000) / 1000;
    const auto moved = static_cast<std::size_t>(i / 500);  // popularity shifts over time
    if (!send(values[(static_cast<std::size_t>(rank * 600) + moved) % values.size()])) return 1;
    for (std::size_t all = 0; i % 5000 == 4999 && all < values.size(); ++all)
      if (!send(values[all])) return 1;
  }
  std::puts(describe(cache.statistics()).c_str());
}
