// SPDX-License-Identifier: BSD-3-Clause
// The engine as the typed fronts call it.
#include "core/engine.hpp"

namespace pinfold::detail {

void engine_closer::operator()(engine* closing) const noexcept { engine::shut_down(closing); }

engine_handle make_engine(const driver& table, cache_options options) {
  return engine_handle(new engine(table, std::move(options)));
}

result<grant> acquire(engine& on, const request& what) noexcept { return on.acquire(what); }
void acquire_group(engine& on, std::span<const request> what, std::span<result<grant>> granted) noexcept {
  on.acquire_group(what, granted);
}
grant find(engine& on, const request& what) noexcept { return on.find(what); }
result<void> release(record* held) noexcept { return engine::release(static_cast<entry*>(held)); }
void invalidate(engine& on, peer_id peer, range gone) noexcept { on.invalidate(peer, gone); }
void unpersist(engine& on, peer_id peer, range where) noexcept { on.unpersist(peer, where); }
result<void> drop_peer(engine& on, peer_id peer) noexcept { return on.drop_peer(peer); }
result<void> flush(engine& on) noexcept { return on.flush(); }
result<void> quiesce(engine& on) noexcept { return on.quiesce(); }
result<void> progress(engine& on) noexcept { return on.progress(); }
statistics read_statistics(const engine& on) noexcept { return on.read_statistics(); }
std::vector<entry_info> dump(const engine& on) { return on.dump(); }

}  // namespace pinfold::detail
