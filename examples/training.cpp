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
#include <new>
#include <span>
#include <string>
#include <sys/mman.h>
#include <utility>
#include <vector>

namespace {

using buffer_cache = pinfold::cache<pinfold::io_uring_registrar>;
using ring_closer = std::unique_ptr<io_uring, decltype(&io_uring_queue_exit)>;

constexpr std::size_t kib = 1024;
constexpr std::size_t mib = 1024 * kib;
constexpr std::size_t page_bytes = 4 * kib;
constexpr std::size_t huge_page_bytes = 2 * mib;
constexpr std::size_t layer_count = 24;
constexpr int default_steps = 20;
constexpr int steps_per_checkpoint = 10;

void report(const char* problem, const std::string& reason) {
  std::fprintf(stderr, "%s: %s\n", problem, reason.c_str());
}

class tensor {
 public:
  explicit tensor(std::size_t bytes) : bytes_(bytes) {
    const bool is_large = bytes >= huge_page_bytes;
    memory_.reset(std::aligned_alloc(is_large ? huge_page_bytes : page_bytes, bytes));
    if (memory_ == nullptr) throw std::bad_alloc();
    if (is_large) madvise(memory_.get(), bytes, MADV_HUGEPAGE);  // no error if refused: then on small pages
    std::memset(memory_.get(), 1, bytes);
  }

  [[nodiscard]] std::span<char> bytes() const { return {static_cast<char*>(memory_.get()), bytes_}; }

 private:
  std::unique_ptr<void, decltype(&std::free)> memory_{nullptr, std::free};
  std::size_t bytes_;
};

struct layer {
  explicit layer(std::size_t weight_bytes) : weights(weight_bytes), gradients(weight_bytes) {}

  tensor weights;
  tensor gradients;
  tensor activations{256 * kib};
  tensor bias{16 * kib};
};

std::vector<layer> make_layers() {
  std::vector<layer> layers;
  for (std::size_t i = 0; i < layer_count; ++i) layers.emplace_back(mib << i % 3);  // 1, 2 or 4 MiB
  return layers;
}

// Acquires the tensor, as a loop does that sends it. A real one passes `lease->registration().index` to io_uring.
bool use(buffer_cache& cache, const tensor& used) {
  const auto lease = cache.acquire(used.bytes());
  if (!lease) report("cannot register a tensor", pinfold::describe(lease.error()));
  return lease.has_value();
}

bool go_forward(buffer_cache& cache, const std::vector<layer>& layers) {
  for (const layer& each : layers) {
    if (!use(cache, each.activations) || !use(cache, each.bias)) return false;
  }
  return true;
}

bool go_backward(buffer_cache& cache, const std::vector<layer>& layers) {
  for (auto each = layers.rbegin(); each != layers.rend(); ++each) {
    if (!use(cache, each->gradients) || !use(cache, each->bias)) return false;
  }
  return true;
}

bool save_weights(buffer_cache& cache, const std::vector<layer>& layers) {
  for (const layer& each : layers) {
    if (!use(cache, each.weights)) return false;
  }
  return true;
}

bool train(buffer_cache& cache, const std::vector<layer>& layers, int steps) {
  for (int step = 0; step < steps; ++step) {
    if (!go_forward(cache, layers) || !go_backward(cache, layers)) return false;
    const bool checkpoint = step % steps_per_checkpoint == steps_per_checkpoint - 1;
    if (checkpoint && !save_weights(cache, layers)) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : default_steps;
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
  const std::vector<layer> layers = make_layers();
  // `manual`: the cache needs no monitor, because the tensors outlive it and do not move. With room for 32 MiB it must
  // choose which registrations to keep: all tensors together are larger.
  buffer_cache cache{std::move(*registrar),
                     {.name = "training", .max_bytes = 32 * mib, .monitor = pinfold::monitor_choice::manual}};
  const bool trained = train(cache, layers, steps);
  std::puts(pinfold::describe(cache.statistics()).c_str());
  return trained ? 0 : 1;
}
