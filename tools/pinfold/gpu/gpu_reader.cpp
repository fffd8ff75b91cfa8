// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/gpu_reader.hpp"

namespace tool {

using pinfold::result;

namespace {

using imported = pinfold::imported<pinfold::cuda_ipc_importer::registration_type>;

cuda_pointer pointer_to(const void* data) noexcept { return reinterpret_cast<cuda_pointer>(data); }

class cached : public gpu_reader {
 public:
  explicit cached(gpu_cache& cache) noexcept : cache_(&cache) {}

  result<void> read(const gpu_part& wanted, gpu_target& into) override {
    const auto& handle = wanted.of.handle;
    auto lease = cache_->acquire(wanted.of.peer, handle, handle.base + wanted.offset, wanted.bytes);
    if (!lease) return tl::unexpected(lease.error());
    const auto copied = into.take(pointer_to(lease->data()), wanted.bytes);
    return copied ? lease->release() : copied;
  }
  [[nodiscard]] std::uint64_t opens() const override { return cache_->statistics().opens; }

 private:
  gpu_cache* cache_;
};

class uncached : public gpu_reader {
 public:
  explicit uncached(int device) : importer_({.device = device}) {}

  result<void> read(const gpu_part& wanted, gpu_target& into) override {
    const auto opened = importer_.open(wanted.of.peer, wanted.of.handle);
    if (!opened) return tl::unexpected(opened.error());
    ++opens_;
    const auto copied = into.take(pointer_to(opened->data) + wanted.offset, wanted.bytes);
    const auto closed = importer_.close(opened->registration);
    return copied ? closed : copied;
  }
  [[nodiscard]] std::uint64_t opens() const override { return opens_; }

 private:
  pinfold::cuda_ipc_importer importer_;
  std::uint64_t opens_ = 0;
};

// Reads from held mappings; the importer closes them at its end.
class floor_of_all : public gpu_reader {
 public:
  explicit floor_of_all(int device) : importer_({.device = device}) {}

  result<void> read(const gpu_part& wanted, gpu_target& into) override {
    auto found = held_.find(wanted.of.seed);
    if (found == held_.end()) {
      const auto opened = importer_.open(wanted.of.peer, wanted.of.handle);
      if (!opened) return tl::unexpected(opened.error());
      found = held_.emplace(wanted.of.seed, *opened).first;
    }
    return into.take(pointer_to(found->second.data) + wanted.offset, wanted.bytes);
  }
  [[nodiscard]] std::uint64_t opens() const override { return held_.size(); }

 private:
  pinfold::cuda_ipc_importer importer_;
  std::map<std::uint64_t, imported> held_;  // by the message's seed
};

}  // namespace

std::unique_ptr<gpu_reader> make_gpu_reader(std::string_view name, gpu_cache& cache, int device) {
  if (name == "pinfold") return std::make_unique<cached>(cache);
  if (name == "floor") return std::make_unique<floor_of_all>(device);
  return std::make_unique<uncached>(device);
}

}  // namespace tool
