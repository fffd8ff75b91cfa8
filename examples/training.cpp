// SPDX-License-Identifier: BSD-3-Clause
// The buffers of a training loop: forward through the layers, backward with the gradients, and an occasional checkpoint
// of all weights. Large tensors lie on huge pages if the system has any, so registering them costs less than their size
// suggests. Its requests make a trace: pinfold trace -o FILE -- example_training 300
#include <pinfold/cache.hpp>
#include <pinfold/registrars/io_uring.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <liburing.h>
#include <memory>
#include <span>
#include <sys/mman.h>
#include <vector>

namespace {

using owner = std::unique_ptr<void, void (*)(void*)>;
std::span<char> tensor(std::vector<owner>& all, std::size_t bytes) {
  const std::size_t alignment = bytes < (2 << 20) ? 4096 : 2 << 20;
  auto* memory = all.emplace_back(std::aligned_alloc(alignment, bytes), std::free).get();
  if (alignment > 4096) madvise(memory, bytes, MADV_HUGEPAGE);
  return {static_cast<char*>(std::memset(memory, 1, bytes)), bytes};
}

struct layer {
  std::span<char> weights, gradients, activations, bias;
};

}  // namespace

int main(int argc, char** argv) {
  io_uring ring{};
  if (io_uring_queue_init(8, &ring, 0) != 0) return 77;
  auto registrar = pinfold::io_uring_registrar::create(&ring);
  if (!registrar) return std::puts(describe(registrar.error()).c_str()), 77;
  std::vector<owner> memory;
  std::vector<layer> layers;
  for (std::size_t i = 0; i < 24; ++i) {
    const std::size_t large = (std::size_t{1} << 20) << i % 3;
    layers.push_back(
        {tensor(memory, large), tensor(memory, large), tensor(memory, 256 << 10), tensor(memory, 16 << 10)});
  }
  // `explicit_`, because the tensors outlive the cache and do not move.
  pinfold::cache cache{std::move(*registrar),
                       {.name = "training", .max_bytes = 32 << 20, .monitor = pinfold::monitor_choice::explicit_}};
  const auto use = [&](std::span<char> wanted) { return cache.acquire(wanted).has_value(); };  // a real one sends

  const int steps = argc > 1 ? std::atoi(argv[1]) : 20;
  bool well = true;
  for (int step = 0; well && step < steps; ++step) {
    for (const auto& one : layers) well = well && use(one.activations) && use(one.bias);
    for (auto one = layers.rbegin(); one != layers.rend(); ++one) well = well && use(one->gradients) && use(one->bias);
    for (const auto& one : layers) well = well && (step % 10 != 9 || use(one.weights));
  }
  std::puts(describe(cache.statistics()).c_str());
  return well ? 0 : 1;
}
