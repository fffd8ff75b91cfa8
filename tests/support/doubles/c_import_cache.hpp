// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A cache with the members of `pinfold::import_cache` that goes through the C interface, over an importer of C
/// functions: the model and fault tests run over both.
#pragma once

#include "support/doubles/c_cache_base.hpp"

#include <pinfold/import_cache.hpp>

namespace pinfold::testing {

/// The functions of a table over an importer in C++.
template <importer I>
struct c_importer_calls {
  using handle_type = typename I::handle_type;
  using registration_type = typename I::registration_type;
  static_assert(sizeof(registration_type) <= sizeof(pinfold_registration));

  static handle_type handle_at(const void* bytes) {
    handle_type handle;
    std::memcpy(&handle, bytes, sizeof handle);
    return handle;
  }

  static int check(void* self, const void* handle, std::uint64_t* base, std::uint64_t* bytes) {
    const auto allocation = static_cast<I*>(self)->check(handle_at(handle));
    if (!allocation) return -1 - static_cast<int>(allocation.error().code);
    *base = allocation->begin;
    *bytes = allocation->size();
    return PINFOLD_OK;
  }
  static int open(void* self, const pinfold_open_request* what, pinfold_imported* made, pinfold_error* failure) {
    EXPECT_EQ(what->argument, argument_in_c()) << "each request passes it";
    const auto got = static_cast<I*>(self)->open({what->peer}, handle_at(what->handle));
    if (!got) return failed_in_c(got.error(), failure);
    made->base = got->covered.begin;
    made->bytes = got->covered.size();
    made->data = got->data;
    made->budget_bytes = got->bytes;
    std::memcpy(&made->registration, &got->registration, sizeof got->registration);
    return PINFOLD_OK;
  }
  static int close(void* self, const pinfold_registration* made, pinfold_error* failure) {
    registration_type of;
    std::memcpy(&of, made, sizeof of);
    const auto done = static_cast<I*>(self)->close(of);
    return done ? PINFOLD_OK : failed_in_c(done.error(), failure);
  }

  static pinfold_importer table() {
    pinfold_importer calls{};
    calls.size = sizeof calls;
    calls.name = I::name;
    calls.handle_bytes = sizeof(handle_type);
    calls.allows_duplicates = I::allows_duplicates ? 1 : 0;
    calls.check = check;
    calls.open = open;
    calls.close = close;
    return calls;
  }
};

template <importer I>
class c_import_cache : public c_cache_base<I> {
  using base = c_cache_base<I>;
  using base::cache_, base::options_, base::over_;
  using handle_type = typename I::handle_type;

 public:
  using lease = typename base::lease;

  explicit c_import_cache(I over, const cache_options& options = {}) : base(std::move(over), options) {
    const auto table = c_importer_calls<I>::table();
    EXPECT_EQ(pinfold_create_import(&table, over_.get(), &options_, &cache_), PINFOLD_OK)
        << pinfold_last_error()->message;
  }

  result<lease> acquire(peer_id peer, const handle_type& handle, std::uintptr_t address, std::size_t bytes) {
    pinfold_acquire_options options{};
    options.size = sizeof options;
    options.argument = argument_in_c();
    return base::leased(pinfold_import_with(cache_, peer.value, &handle, sizeof handle, address, bytes, &options));
  }
  std::optional<lease> find(peer_id peer, const handle_type& handle, std::uintptr_t address, std::size_t bytes) {
    return base::found(pinfold_find_import(cache_, peer.value, &handle, sizeof handle, address, bytes));
  }
  void invalidate(peer_id peer, const range& gone) {
    EXPECT_EQ(pinfold_invalidate_peer(cache_, peer.value, gone.begin, gone.size()), PINFOLD_OK);
  }
  result<void> drop_peer(peer_id peer) { return from_c(pinfold_drop_peer(cache_, peer.value)); }
};

}  // namespace pinfold::testing
