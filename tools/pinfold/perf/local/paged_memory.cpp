// SPDX-License-Identifier: BSD-3-Clause
#include "perf/local/paged_memory.hpp"

#include "cli/sizes.hpp"

#include <pinfold/cache.hpp>
#include <pinfold/pools/registered_pool.hpp>
#include <pinfold/registrars/null.hpp>

#include <fmt/format.h>
#include <utility>

namespace tool {
namespace {

using pinfold::page_kind;

constexpr std::size_t huge_page = std::size_t{2} << 20;
constexpr std::size_t page = 4096;

std::size_t in_huge_pages(std::size_t bytes) { return (bytes + huge_page - 1) / huge_page; }

}  // namespace

// A pool gives pages of exactly the requested kind; its registrar registers nothing, which costs nothing.
struct paged_memory::state {
  state(std::size_t bytes, page_kind kind)
      : asked(bytes),
        given(kind == page_kind::plain ? bytes : in_huge_pages(bytes) * huge_page),
        pool(cache, {.pages = kind}),
        data(pool.allocate_registered(given, page).map([](const auto& got) {
          return static_cast<std::byte*>(got.data);
        })) {
    if (data) doubt = pool.slabs().front().reason;
  }
  state(const state&) = delete;
  state& operator=(const state&) = delete;
  ~state() {
    if (data) static_cast<void>(pool.try_deallocate(*data, given));
  }

  std::size_t asked;
  std::size_t given;
  pinfold::cache<pinfold::null_registrar> cache{pinfold::null_registrar{}};
  pinfold::registered_pool<pinfold::null_registrar> pool;
  pinfold::result<std::byte*> data;
  std::string doubt;
};

pinfold::result<paged_memory> paged_memory::map(std::size_t bytes, page_kind kind) {
  auto made = std::make_unique<state>(bytes, kind);
  if (!made->data) return tl::unexpected(made->data.error());
  return paged_memory(std::move(made));
}

paged_memory::paged_memory(std::unique_ptr<state> made) noexcept : state_(std::move(made)) {}
paged_memory::paged_memory(paged_memory&&) noexcept = default;
paged_memory& paged_memory::operator=(paged_memory&&) noexcept = default;
paged_memory::~paged_memory() = default;

std::span<std::byte> paged_memory::bytes() const noexcept { return {*state_->data, state_->asked}; }

pinfold::range paged_memory::where() const noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(*state_->data);
  return {begin, begin + state_->asked};
}

const std::string& paged_memory::doubt() const noexcept { return state_->doubt; }

const char* pages_name(page_kind kind) noexcept { return kind == page_kind::plain ? "4k" : pinfold::name_of(kind); }

std::string missing_pages_note(page_kind kind, std::size_t bytes, const pinfold::error& why) {
  auto note = fmt::format("no {} pages for {}: {}", pages_name(kind), size_text(bytes), pinfold::describe(why));
  if (kind == page_kind::hugetlb)
    note += fmt::format("; root can reserve them: sysctl vm.nr_hugepages={}", in_huge_pages(bytes));
  if (kind == page_kind::thp) note += "; /sys/kernel/mm/transparent_hugepage/enabled must not be never";
  return note;
}

}  // namespace tool
