// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/hooks/hooks.hpp"

#include "monitors/hooks/code_lock.hpp"
#include "monitors/hooks/copies.hpp"
#include "monitors/hooks/events.hpp"
#include "monitors/hooks/find.hpp"
#include "monitors/hooks/guard.hpp"
#include "monitors/hooks/install.hpp"
#include "monitors/hooks/text_lock.hpp"
#include "os/check.hpp"
#include "os/loaded_object.hpp"
#include "os/wiped_pages.hpp"

#include <atomic>
#include <mutex>

namespace pinfold::monitors {

namespace {

/// The number of monitors. Lies on a page that is wiped in a child, which has no monitors, and no thread to release the
/// lock. The code stays patched in the child, but the next `install` finds that.
struct life {
  std::mutex mutex;
  code_lock code;         // locked alone, with the mutex held
  unsigned monitors = 0;  // guarded by mutex
};
std::atomic<life*> the_life{nullptr};

/// The hooked copies of libc, which are only added. Guarded by the lock. A child of fork(2) may find the entry behind
/// `count` half written, and starts from `count`.
libc_copies hooked;
std::atomic<std::uint64_t> code_scanned{0};

// Calls through a copy that was not hooked were missed, so a new copy invalidates everything.
void add_copies(const libc_copies& found, invalidation::event_log& event_log) noexcept {
  PINFOLD_ASSERT(found.count <= found.all.size(), "each copy has its place");
  if (found.count <= hooked.count) return;
  hooked.all = found.all;
  hooked.bases = found.bases;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  hooked.count = found.count;
  event_log.post_everything(invalidation::source::hooks);
}

class hooks final : public invalidation::monitor {
 public:
  explicit hooks(invalidation::event_log& event_log) noexcept : event_log_(event_log), process_(event_log.process()) {}
  ~hooks() override {
    if (!counted_ || event_log_.process() != process_) return;
    life& here = *the_life.load(std::memory_order_acquire);
    const std::lock_guard locked(here.mutex);
    PINFOLD_ASSERT(here.monitors > 0, "a monitor that has joined is counted");
    if (--here.monitors != 0) return;
    jumps::remove(here.code);
    events::post_to(nullptr, nullptr);
  }

  /// The caller holds the lock.
  result<void> join(life& all, const libc_copies& found) noexcept {
    PINFOLD_ASSERT(!counted_, "a monitor joins once");
    add_copies(found, event_log_);
    const text_lock alone;
    if (all.monitors == 0 || !jumps::lead_to_us(hooked.found()))
      if (auto done = jumps::install(hooked.found(), alone, all.code); !done) return done;
    ++all.monitors;
    counted_ = true;
    sees_loading_ = found.all.front()[static_cast<std::size_t>(events::function::linker_mmap)].entry != 0;
    return {};
  }

  [[nodiscard]] const char* name() const noexcept override { return "hooks"; }
  [[nodiscard]] result<void> watch(const range& /*pages*/) noexcept override {
    if (events::code_mapped() != code_scanned.load(std::memory_order_seq_cst) || !sees_loading_)
      if (auto looked = hook_new_copies(); !looked) return looked;
    return works() ? result<void>{} : regain();
  }
  [[nodiscard]] bool works() const noexcept override { return guard::intact() && !guard::writable(); }
  [[nodiscard]] const char* why_not() const noexcept override {
    return guard::writable() ? "another library is changing the code of libc"
                             : "another library has changed libc's code";
  }

 protected:
  bool restart() noexcept override { return regain().has_value(); }

 private:
  // Called without the lock, because it takes the dynamic linker's lock.
  result<void> hook_new_copies() noexcept {
    if (event_log_.process() != process_) return fail(errc::closed, "the hooks belong to the parent process");
    const auto times = events::code_mapped();
    PINFOLD_ASSERT(counted_ && the_life.load(std::memory_order_relaxed) != nullptr,
                   "a monitor hooks new copies once it has joined");
    libc_copies known;
    {
      const std::lock_guard locked(the_life.load(std::memory_order_seq_cst)->mutex);
      known = hooked;
    }
    const auto found = with_new_copies(known);
    if (!found) return tl::unexpected(found.error());
    const std::lock_guard locked(the_life.load(std::memory_order_seq_cst)->mutex);
    add_copies(*found, event_log_);
    const text_lock alone;
    if (!jumps::lead_to_us(hooked.found()))
      if (auto done = jumps::install(hooked.found(), alone, the_life.load(std::memory_order_seq_cst)->code); !done)
        return done;
    code_scanned.store(times, std::memory_order_seq_cst);
    return {};
  }

  // Restores the hooks after another library has changed the code that leads to them. Invalidates all kept entries,
  // because events may have been missed. No entry is kept until all hooks are in place again, on top of the other
  // library's.
  result<void> regain() noexcept {
    if (event_log_.process() != process_) return fail(errc::closed, "the hooks belong to the parent process");
    const std::lock_guard locked(the_life.load(std::memory_order_seq_cst)->mutex);
    PINFOLD_ASSERT(counted_, "a monitor regains what it had when it joined");
    const text_lock alone;  // another copy of this library may have been in the middle of a change
    if (works()) return {};
    event_log_.post_everything(invalidation::source::hooks);
    if (guard::writable()) return fail(errc::closed, "another library is changing the code of libc");
    if (jumps::lead_to_us(hooked.found())) return {};  // through another copy of this library
    return jumps::install(hooked.found(), alone, the_life.load(std::memory_order_seq_cst)->code);
  }

  invalidation::event_log& event_log_;
  std::uint64_t process_;
  bool counted_ = false;
  bool sees_loading_ = false;  // if false, another libc may appear at any time, so every call searches for it
};

}  // namespace

void prepare_hooks() {
  if (os::stay_loaded()) static_cast<void>(find_functions());  // `make_hooks` reports what is not found now
}

result<std::unique_ptr<invalidation::monitor>> make_hooks(invalidation::event_log& event_log,
                                                          invalidation::registered_filter& memory) {
  life* const all = os::wiped_object(the_life);
  if (all == nullptr)
    return fail(errc::out_of_resources, "cannot map a page that fork clears in the child (needs Linux 4.14)");
  if (!os::stay_loaded()) return fail(errc::unsupported, "cannot keep the library that contains pinfold loaded");
  const auto own = own_copy();  // before the lock: constructors, which may get here, hold the dynamic linker's lock
  if (!own) return tl::unexpected(own.error());
  const auto found = with_new_copies(*own);
  if (!found) return tl::unexpected(found.error());
  auto made = std::make_unique<hooks>(event_log);
  const std::lock_guard locked(all->mutex);
  events::set_code_lock(&all->code);
  if (auto done = made->join(*all, *found); !done) return tl::unexpected(done.error());
  events::post_to(&event_log, &memory);
  return made;
}

}  // namespace pinfold::monitors
